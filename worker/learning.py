"""Runs that produce a version: train, unlearn or retrain, then test, evaluate and publish the result."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from app import installations, signing, tracing
from app.accounting.certificates import sha256
from app.catalogue import datasets
from app.journal import journal, tombstones
from app.rows import records as damage, repository as rows_repository
from app.unlearning import service as unlearning
from app.unlearning.queue import ClaimedRun
from app.vault import sealing
from lethe.contract import problems, sets
from lethe.encoding.rows import labels_in
from lethe.proof.losses import Objective, num_weight_rows
from lethe.proof.mechanism import Mechanism
from worker import handlers, isolated
from worker.langevin import evaluate, init

_SIGNED_AHEAD = 10
"""Number of attempts to publish a version with signatures made before the write transaction."""


def make_version(installation: installations.Installation, run: ClaimedRun, root: str, holder: handlers.Holder) -> None:
    """Take a run's steps and publish the resulting version."""
    assert run.mechanism is not None
    with tracing.span("steps"):
        result = run_chain(installation, run, run.mechanism, root, holder)
    records = installation.rows.count(run.dataset_id, root)
    handlers.examine(installation, run, records=records, observed=result.observed)
    with tracing.span("evaluate"):
        metrics = _evaluate(installation, run, result)
    with tracing.span("publish"):
        _publish(installation, run, result, metrics)


handlers.register(make_version, sets.RunKind.LEARN, sets.RunKind.UNLEARN, sets.RunKind.RELEARN)


def run_chain(
    installation: installations.Installation, run: ClaimedRun, mechanism: Mechanism, root: str, holder: handlers.Holder
) -> isolated.IsolatedResult:
    """Take a run's steps in a separate process, so that this process holds only the last iterate."""
    network = handlers.network_of(installation, mechanism)
    with installation.rows.open(run.dataset_id, root) as rows:
        if run.parent_version_id is not None:
            initial = sealing.from_safetensors(installation.weights.get(run.parent_version_id))
        else:
            initial = init.origin_of(mechanism, rows.shape.num_columns)
        return isolated.run(
            mechanism,
            rows=rows,
            initial=initial,
            first_step=run.first_step,
            steps=run.steps,
            device=installation.settings.device,
            threads=installation.settings.threads,
            audit=run.audit,
            on_progress=holder.progressed,
            on_opened=holder.opened,
            network=network,
        )


def _evaluate(
    installation: installations.Installation, run: ClaimedRun, result: isolated.IsolatedResult
) -> dict[str, Any]:
    """Return metrics on the evaluation dataset. They only post-process the version and never use its training data.

    The result is empty if that dataset is damaged, because a deletion must not wait for another dataset.
    """
    dataset_id = run.evaluation_dataset_id
    if dataset_id is None:
        return {}
    # Without the lock a run on the evaluation dataset could destroy the rows while they are read.
    with installation.rows.alone(dataset_id):
        with installation.database.reading() as session:
            root = rows_repository.root(session, dataset_id)
            target = datasets.target_of(datasets.get(session, dataset_id)) if root else None
        if root is None:
            return {}
        rows: Iterable[evaluate.LabelledRows] = (
            (block.features, labels_in(block.labels)) for block in installation.rows.read(dataset_id, root)
        )
        parameters = result.parameters
        if network := handlers.network_of(installation, result.mechanism):
            # Only tangent models need torch here.
            from worker.langevin import engines

            rows = engines.scorer()(result.mechanism, network, parameters, rows)
            parameters = np.eye(num_weight_rows(result.mechanism.num_classes, result.mechanism.objective))
        try:
            if target:
                return evaluate.of_target(parameters, rows, target, result.mechanism)
            if result.mechanism.objective is Objective.MULTILABEL_LOGISTIC_REGRESSION:
                return evaluate.of_labels(parameters, rows)
            is_probable = result.mechanism.objective is Objective.LOGISTIC_REGRESSION
            return evaluate.of_classes(parameters, rows, result.mechanism.num_classes, is_probable=is_probable)
        except problems.DatasetDamaged as error:
            with installation.database.writing() as session:
                damage.record(session, error)
            return {}


def _publish(
    installation: installations.Installation, run: ClaimedRun, result: isolated.IsolatedResult, metrics: dict[str, Any]
) -> None:
    sealed = sealing.to_safetensors(result.parameters)
    installation.weights.put(run.version_id, sealed)
    if run.model_id is not None:
        release = journal.Release(
            version_id=run.version_id,
            model_id=run.model_id,
            dataset_id=run.dataset_id,
            mechanism=result.mechanism.to_json(),
            steps=result.steps,
        )
        # Record the release outside the database, so that it still counts after an earlier backup is restored.
        tombstones.record(installation, release)
    ahead = signing.SignedAhead()
    for attempt in range(_SIGNED_AHEAD + 1):
        # Requests that join the run meanwhile change what is to be signed; they cannot delay it forever.
        ahead.at_once = attempt == _SIGNED_AHEAD
        try:
            with installation.database.writing() as session:
                unlearning.publish(
                    session,
                    installation.keys,
                    run_id=run.run_id,
                    first_step_ran=result.first_step,
                    steps_ran=result.steps,
                    mechanism_ran=result.mechanism,
                    weights_sha256=sha256(sealed),
                    metrics=metrics,
                    observed=result.observed,
                    ahead=ahead,
                )
        except signing.NotSigned:
            ahead.sign()
        else:
            return
