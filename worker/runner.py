"""One run, from claim to published version: the only thing that the embedded loop and the Celery task call."""

import functools
import time
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from sqlalchemy.exc import OperationalError

from app import telemetry, tracing
from app.accounting.certificates import sha256
from app.backup import tombstones, verification
from app.backup.journal import Release
from app.catalogue import datasets
from app.encoders import service as encoders
from app.errors import AuditFailed, LeaseLost
from app.installations import Installation
from app.operations import periodic_jobs
from app.rows import damage
from app.rows import repository as rows_repository
from app.unlearning import queue
from app.unlearning import service as unlearning
from app.unlearning.queue import ClaimedRun
from app.vault import weights
from lethe.contract.problems import DatasetDamaged, Problem, Unavailable
from lethe.contract.sets import RunKind
from lethe.encoding.weights import labels_in
from lethe.proof.audit import Observed
from lethe.proof.losses import Objective, num_weight_rows
from lethe.proof.mechanism import Mechanism
from worker import edits, isolated, rehearsing, shadow
from worker.isolated import ChainFailed, Ran
from worker.langevin import evaluate, init, tangent
from worker.langevin.evaluate import Rows
from worker.lease import Lease


def run_next(installation: Installation, *, worker: str, deletions_only: bool = False) -> bool:
    """Do the next run that is due; False if there is none. Never raises for a run that fails: it is handed back.
    With `deletions_only`, the next that somebody waits for who asked to be forgotten.

    While the database cannot be reached, or is not of the keys that are here, nothing is due. What that cut off is a
    run whose lease will end.
    """
    try:
        return _run_next(installation, worker=worker, deletions_only=deletions_only)
    except Unavailable as error:
        telemetry.logger().error("worker.unavailable", error=error.code)
        return False
    except OperationalError as error:
        telemetry.logger().warning("worker.database_lost", error=type(error.orig).__name__)
        return False


def _run_next(installation: Installation, *, worker: str, deletions_only: bool) -> bool:
    with installation.database.reading() as session:
        if not queue.anything_to_do(session, deletions_only=deletions_only):
            return False
    lease_seconds, max_requests = installation.settings.lease_seconds, installation.settings.max_requests_per_run
    with tracing.span("run") as span:
        with tracing.span("claim"), installation.database.writing() as session:
            claimed = queue.claim(
                session,
                worker=worker,
                lease_seconds=lease_seconds,
                max_requests=max_requests,
                deletions_only=deletions_only,
            )
        if claimed is None:
            return False
        _name(span, claimed)
        _do(installation, claimed, span, worker=worker)
    destroy_unneeded(installation)
    return True


def _do(installation: Installation, claimed: ClaimedRun, span: tracing.Span, *, worker: str) -> None:
    log = functools.partial(telemetry.logger().info, run_id=claimed.run_id, model_id=claimed.model_id)
    log("unlearning.run_claimed", kind=claimed.kind, steps=claimed.steps, rows=len(claimed.slots_to_null))
    started = time.monotonic()
    try:
        with Lease(installation, claimed) as lease:
            _work(installation, claimed, _GivesWay(installation, lease, worker=worker) if claimed.gives_way else lease)
    except LeaseLost:
        log("unlearning.run_lost")
    except Exception as error:  # noqa: BLE001  a run that fails is handed back, whatever went wrong
        code = error.code if isinstance(error, Problem | ChainFailed) else type(error).__name__
        observed = error.observed if isinstance(error, Refuted) else None
        if code == AuditFailed.code:
            _alarm(claimed, observed)
        with installation.database.writing() as session:
            if isinstance(error, DatasetDamaged):
                unlearning.note_damage(session, run_id=claimed.run_id, error=error)
            held = unlearning.fail(session, run_id=claimed.run_id, error_code=code, observed=observed)
        span.set_attribute("error.type", code)
        if held:
            telemetry.logger().error("unlearning.run_failed", run_id=claimed.run_id, error=code)
        else:
            log("unlearning.run_lost")
    else:
        log("unlearning.run_ended", kind=claimed.kind, seconds=round(time.monotonic() - started, 3))


def _name(span: tracing.Span, claimed: ClaimedRun) -> None:
    """By the run's id, logs and the API lead from a request to this trace."""
    span.set_attribute("lethe.run_id", claimed.run_id)
    span.set_attribute("lethe.kind", claimed.kind)
    span.set_attribute("lethe.dataset_id", claimed.dataset_id)
    span.set_attribute("lethe.model_id", claimed.model_id or "")
    span.set_attribute("lethe.steps", claimed.steps)
    span.set_attribute("lethe.records", len(claimed.slots_to_null))


def destroy_unneeded(installation: Installation) -> None:
    """Destroy superseded weights, and those of runs that ended without publishing: the database says which."""
    periodic_jobs.destroy_retired(installation)
    periodic_jobs.destroy_orphans(installation)


def _work(installation: Installation, claimed: ClaimedRun, holder: "Lease | _GivesWay") -> None:
    verification.require_whole(installation)
    tombstones.record(installation)  # what is erased must be erased again if a backup brings it back
    root = edits.edited(installation, claimed)
    if claimed.mechanism is None:
        with installation.database.writing() as session:
            unlearning.finish(session, run_id=claimed.run_id)
        return
    if claimed.kind == RunKind.AUDIT:
        _audit(installation, claimed, claimed.mechanism, on_progress=holder.progressed)
        return
    if claimed.kind == RunKind.REHEARSAL:
        rehearsing.run(
            installation,
            claimed,
            claimed.mechanism,
            root,
            network=_network(installation, claimed.mechanism),
            on_progress=holder.progressed,
            on_opened=holder.opened,
        )
        return
    with tracing.span("steps"):
        ran = _run_chain(installation, claimed, claimed.mechanism, root, holder)
    _examine(installation, claimed, records=installation.rows.count(claimed.dataset_id, root), observed=ran.observed)
    with tracing.span("evaluate"):
        metrics = _evaluate(installation, claimed, ran)
    with tracing.span("publish"):
        _publish(installation, claimed, ran, metrics)


def _audit(
    installation: Installation, claimed: ClaimedRun, mechanism: Mechanism, *, on_progress: Callable[[int], None]
) -> None:
    """One that was asked for. It ends with what it found, and is not tried again."""
    assert claimed.audit is not None
    observed: Observed | None = None
    error_code: str | None = None
    try:
        with tracing.span("steps"):
            observed = shadow.run(mechanism, claimed.audit, on_progress=on_progress)
        _examine(installation, claimed, records=0, observed=observed)
    except (AuditFailed, Refuted) as error:
        error_code = error.code
        _alarm(claimed, observed)
    with installation.database.writing() as session:
        unlearning.end_audit(session, run_id=claimed.run_id, observed=observed, error_code=error_code)


def _examine(installation: Installation, claimed: ClaimedRun, *, records: int, observed: Observed | None) -> None:
    """Raises `Refuted` if the run is not what is to be certified."""
    with tracing.span("examine"), installation.database.reading() as session:
        findings = unlearning.examine(session, run_id=claimed.run_id, records=records, observed=observed)
    if findings:
        raise Refuted(observed)


def _alarm(claimed: ClaimedRun, observed: Observed | None) -> None:
    findings = observed.findings(claimed.mechanism) if observed and claimed.mechanism else ()
    telemetry.logger().error("audit.failed", run_id=claimed.run_id, findings=findings)


class Refuted(ChainFailed):
    """A run that is refuted by what its lanes showed."""

    def __init__(self, observed: Observed | None) -> None:
        super().__init__(AuditFailed.code)
        self.observed = observed


def _publish(installation: Installation, claimed: ClaimedRun, ran: Ran, metrics: dict[str, Any]) -> None:
    sealed = weights.to_safetensors(ran.parameters)
    installation.weights.put(claimed.version_id, sealed)
    if claimed.model_id is not None:
        release = Release(
            version_id=claimed.version_id,
            model_id=claimed.model_id,
            dataset_id=claimed.dataset_id,
            mechanism=ran.mechanism.to_json(),
            steps=ran.steps,
        )
        tombstones.record_release(installation, release)  # a restore of a backup from before must count it
    with installation.database.writing() as session:
        unlearning.publish(
            session,
            installation.keys,
            run_id=claimed.run_id,
            first_step_ran=ran.first_step,
            steps_ran=ran.steps,
            mechanism_ran=ran.mechanism,
            weights_sha256=sha256(sealed),
            metrics=metrics,
            observed=ran.observed,
        )


def _run_chain(
    installation: Installation, claimed: ClaimedRun, mechanism: Mechanism, root: str, holder: "Lease | _GivesWay"
) -> Ran:
    """In a process of its own: none of its iterates but the last is ever in this one."""
    network = _network(installation, mechanism)
    with installation.rows.open(claimed.dataset_id, root) as rows:
        if claimed.parent_version_id is not None:
            initial = weights.from_safetensors(installation.weights.get(claimed.parent_version_id))
        else:
            initial = init.origin_of(mechanism, rows.shape.num_columns)
        return isolated.run(
            mechanism,
            rows=rows,
            initial=initial,
            first_step=claimed.first_step,
            steps=claimed.steps,
            device=installation.settings.device,
            threads=installation.settings.threads,
            audit=claimed.audit,
            on_progress=holder.progressed,
            on_opened=holder.opened,
            network=network,
        )


def _network(installation: Installation, mechanism: Mechanism) -> bytes | None:
    """The file of the network that the model moves weights of, if it does. Raises `DatabaseDamaged`."""
    if mechanism.network is None or not mechanism.is_tangent:
        return None
    with installation.database.reading() as session:
        return encoders.content_by(session, mechanism.network.sha256)


def _evaluate(installation: Installation, claimed: ClaimedRun, ran: Ran) -> dict[str, Any]:
    """Metrics on the evaluation dataset: post-processing of the version. Never measured on what it learned from.

    Nobody waits to be forgotten because another dataset is damaged: then nothing is measured.
    """
    dataset_id = claimed.evaluation_dataset_id
    if dataset_id is None:
        return {}
    with installation.rows.alone(dataset_id):  # its own runs edit it
        with installation.database.reading() as session:
            root = rows_repository.root(session, dataset_id)
            target = datasets.target_of(datasets.get(session, dataset_id)) if root else None
        if root is None:
            return {}
        found: Iterable[Rows] = (
            (block.features, labels_in(block.labels)) for block in installation.rows.read(dataset_id, root)
        )
        parameters = ran.parameters
        if network := _network(installation, ran.mechanism):
            found = tangent.scored(ran.mechanism, network, parameters, found)
            parameters = np.eye(num_weight_rows(ran.mechanism.num_classes, ran.mechanism.objective))
        try:
            if target:
                return evaluate.of_target(parameters, found, target, ran.mechanism)
            if ran.mechanism.objective is Objective.MULTILABEL_LOGISTIC_REGRESSION:
                return evaluate.of_labels(parameters, found)
            is_probable = ran.mechanism.objective is Objective.LOGISTIC_REGRESSION
            return evaluate.of_classes(parameters, found, ran.mechanism.num_classes, is_probable=is_probable)
        except DatasetDamaged as error:
            with installation.database.writing() as session:
                damage.record(session, error)
            return {}


class _GivesWay:
    """Give way between two steps of a run that honours no deletion: it stands still while its worker honours those that
    are due on other datasets, and then goes on from where it is, in the memory of its own process.

    It checks before its first step and whenever `poll_seconds` are over. After each run that it let go first it takes
    steps for a tenth of that time at least, so that learning ends however many ask to be forgotten.
    """

    _SHARE = 0.1

    def __init__(self, installation: Installation, lease: Lease, *, worker: str) -> None:
        self._installation = installation
        self._lease = lease
        self._worker = worker
        self._look_at = 0.0

    def opened(self) -> None:
        self._lease.opened()

    def progressed(self, steps_done: int) -> None:
        """Called many times a second. Raises as `Lease.progressed`."""
        self._lease.progressed(steps_done)
        if (began := time.monotonic()) < self._look_at:
            return
        self._lease.stand_still()
        is_held = self._lease.renew()  # a claim takes back what seems to be abandoned, this run too
        if is_held and run_next(self._installation, worker=self._worker, deletions_only=True):
            ended = time.monotonic()
            self._look_at = ended + self._SHARE * (ended - began)
        else:
            self._look_at = time.monotonic() + self._installation.settings.poll_seconds
        self._lease.progressed(steps_done)
