"""Runs in progress: renew the lease, publish the result in one transaction, or hand the run back.

App and worker share only the database. A run is fenced by its id: nothing that a worker does after losing its run has
any effect.
"""

import datetime
import functools
from typing import Any

from sqlalchemy.orm import Session

from app.accounting import budgets, certificates, ledger, repository as accounting_repository
from app.audit import checkpoints, service as audit
from app.catalogue import additions, repository as catalogue_repository, service as catalogue
from app.db import now
from app.db.tables import Dataset, Model, Run, Version
from app.deletion import claims, repository as deletion_repository
from app.errors import AuditFailed, LeaseLost, RunDiffersFromPlan, WeightsUnreadable
from app.keys import Keys
from app.rows import records as damage
from app.signing import SignedAhead, Wanted
from app.unlearning import kinds, repository
from lethe.contract.problems import DatasetDamaged, RunNotCancellable, RunUnknown, WeightsDestroyed
from lethe.contract.sets import ModelStatus, RunKind, RunStatus, VersionStatus
from lethe.proof.canary_test import Observed
from lethe.proof.mechanism import Mechanism

_FIRST_BACKOFF = datetime.timedelta(seconds=0.5)
_MAX_BACKOFF = datetime.timedelta(minutes=1)
_PATIENCE = 3
"""Number of failures after which a model without a version becomes `failed`, and of deaths after which it backs off."""
_CLEARED_UP_WITHIN = datetime.timedelta(hours=1)
_DEATHS = 10
"""Number of worker deaths after which a model without a version becomes `failed`."""


def renew(session: Session, *, run_id: str, steps_done: int, lease_seconds: float) -> None:
    """Renew the lease and report progress, or raise `LeaseLost`.

    Only the run's row is locked, and the time is read afterwards: waiting for the lock may take longer than a lease.
    """
    run, _, _ = _held(session, run_id)
    run.steps_done = steps_done
    run.lease_expires_at = now(session) + datetime.timedelta(seconds=lease_seconds)


def check_held(session: Session, *, run_id: str) -> None:
    """Raise `LeaseLost` if the run is no longer held, because another worker may then be writing its rows."""
    _held(session, run_id, lock=False)


def was_any_run_cut_off(session: Session, *, dataset_id: str) -> bool:
    """Return True if an incomplete run on a dataset may have left rows that no recorded root names and that the row
    sweep may not have removed yet. The run's worker may have survived and kept writing after losing the run."""
    return repository.is_any_cut_off(session, dataset_id=dataset_id, since=now(session) - _CLEARED_UP_WITHIN)


def commit_rows(session: Session, *, run_id: str, root: str, has_batches: bool = True) -> None:
    """Record `root`, the root of the run's edited rows, as its dataset's root: any batches are in their slots, and the
    rows to be erased are null. The previous rows remain readable until their keys are destroyed. Raises `LeaseLost`."""
    _, dataset, _ = _held(session, run_id)
    if has_batches:
        additions.confirm(session, dataset=dataset)
    dataset.digest = root


def confirm_edited(session: Session, *, run_id: str, has_batches: bool = True) -> None:
    """Record that the previous rows, and any batches, are unreadable. This completes the erasures. Raises
    `LeaseLost`."""
    _, dataset, _ = _held(session, run_id)
    if has_batches:
        additions.confirm_destroyed(session, dataset_id=dataset.id)
    if claims.confirm_erasures(session, dataset=dataset):
        catalogue_repository.forget_metrics(session, evaluation_dataset_id=dataset.id)
        for test in kinds.asked_kinds().values():
            test.drop_measured(session, dataset_id=dataset.id)
    dataset.attempts, dataset.not_before = 0, None


def note_damage(session: Session, *, run_id: str, error: DatasetDamaged) -> None:
    """Drop the addition whose batch the run found damaged, or block the dataset if its own rows are damaged. Damage
    found by a lost run is ignored, because the run's successor may have destroyed the missing rows."""
    run = repository.run(session, run_id)
    if run is not None and run.status == RunStatus.RUNNING and not additions.drop_damaged(session, error):
        damage.record(session, error)


def finish(session: Session, *, run_id: str, observed: Observed | None = None, error_code: str | None = None) -> Run:
    """End a run that completed all its steps and publishes no version, and return it. An `error_code` marks it as
    failed. Raises `LeaseLost`."""
    run, _, model = _held(session, run_id)
    _note(run, model, observed)
    run.steps_done = run.steps_total
    _end(session, run, status=RunStatus.FAILED if error_code else RunStatus.PUBLISHED, error_code=error_code)
    return run


def examine(session: Session, *, run_id: str, records: int, observed: Observed | None) -> tuple[str, ...]:
    """Return the faults that a run's canary test found; empty if it passed. `records` is the number of non-null rows
    read.

    Raises `LeaseLost` if the run was lost, and `RunDiffersFromPlan` if `records` is not the recorded number of rows or
    the run was not tested as planned.
    """
    run, dataset, model = _held(session, run_id, lock=False)
    assert model is not None
    if run.kind != RunKind.AUDIT and records != dataset.num_rows:
        raise RunDiffersFromPlan(f"Run {run_id} read another number of records than are on record.")
    return kinds.findings(run, model, observed)


def _note(run: Run, model: Model | None, observed: Observed | None) -> None:
    """Store the observations of a run's canary lanes with the run."""
    if observed:
        assert model is not None
        run.audit = observed.to_json(catalogue.mechanism_of(model), delta=model.delta)


def publish(
    session: Session,
    keys: Keys,
    *,
    run_id: str,
    first_step_ran: int,
    steps_ran: int,
    mechanism_ran: Mechanism,
    weights_sha256: str,
    metrics: dict[str, Any],
    observed: Observed | None,
    ahead: SignedAhead | None = None,
) -> Version:
    """Publish a run's version with its ledger entry and one certificate per request, and complete the requests.

    Raises `NotSigned` while `ahead` lacks a signature; without `ahead`, everything is signed in this transaction.
    Raises `LeaseLost` if the run was lost, `RunDiffersFromPlan` if the executed run is not the planned one,
    `AuditFailed` if the run's canary test refutes what would be certified, and `AdaptiveBudgetSpent` if the dataset's
    budget no longer has room for the version.
    """
    run, dataset, model = _held(session, run_id)
    assert model is not None
    mechanism = catalogue.mechanism_of(model)
    live, live_steps = catalogue_repository.live_version_with_steps(session, model)
    if (mechanism_ran, first_step_ran, steps_ran) != (mechanism, run.first_step, run.steps_total):
        raise RunDiffersFromPlan(f"Run {run.id} did not take the steps of the model's mechanism that it was to take.")
    if run.first_step != (live_steps if run.kind == RunKind.UNLEARN else 0):
        raise RunDiffersFromPlan(f"Run {run.id} did not go on where the chain of its model stands.")
    if run.kind == RunKind.UNLEARN and (live is None or live.id != run.parent_version_id):
        raise RunDiffersFromPlan(f"Run {run.id} continued a version that is not the live one.")
    if kinds.findings(run, model, observed):
        raise AuditFailed(f"The canary test of run {run.id} refuted what it was to certify.")
    if model.evaluation_dataset_id is not None and deletion_repository.is_anybody_erased_since(
        session, dataset_id=model.evaluation_dataset_id, at=run.started_at
    ):
        # The metrics were measured on rows that have been erased since.
        metrics = {}
    version = catalogue.publish_version(
        session, run=run, model=model, previous=live, weights_sha256=weights_sha256, metrics=metrics
    )
    # The accountant reads the version just published.
    session.flush()
    budgets.require_kept(session, dataset)
    if accounting_repository.records_added_to_chain(session, model) != 0:
        raise RunDiffersFromPlan(f"Run {run.id} continued a chain that began before rows were added to its data.")
    pending_models = deletion_repository.awaiting_model(session, model_id=model.id, revision=run.revision)
    history = ledger.history_of(session, model_id=model.id, mechanism=mechanism)
    ahead = ahead or SignedAhead(at_once=True)
    at = ahead.at = ahead.at or now(session)
    entry = ledger.post(
        session,
        model=model,
        run=run,
        version=version,
        chain=history.chain,
        requests=[{"request_id": request.id, "records": erasure.num_records} for _, erasure, request in pending_models],
        at=at,
    )
    request_ids = [request.id for _, _, request in pending_models]
    evidences = certificates.Evidences(session, model, history, request_ids=request_ids)
    wanted: dict[str, Wanted] = {
        request.id: certificates.to_sign(
            keys,
            at,
            request=request,
            erasure=erasure,
            model=model,
            dataset=dataset,
            run=run,
            version=version,
            entry=entry,
            evidence=evidences.of(erasure),
            observed=observed,
        )
        for _, erasure, request in pending_models
    }
    for head in checkpoints.heads_now(session, checkpoints.LEDGER, tenant_id=model.tenant_id):
        wanted[head.tenant_id] = head, functools.partial(checkpoints.sign, keys, head, at=at)
    signed = ahead.of(wanted)
    session.add_all(signed.values())
    served = [(demand, request, signed[request.id].id) for demand, _, request in pending_models]
    claims.complete_model(session, served, version=version.number)
    run.steps_done = steps_ran
    _note(run, model, observed)
    _end(session, run, status=RunStatus.PUBLISHED)
    return version


def fail(session: Session, *, run_id: str, error_code: str, observed: Observed | None = None) -> bool:
    """End a failed run, and retry it after a delay, from scratch if the live weights are lost.

    A model without a version becomes `failed` after _PATIENCE attempts. Return False if the run was lost.
    """
    run = repository.run(session, run_id)
    if run is None or run.status != RunStatus.RUNNING:
        return False
    _end(session, run, status=RunStatus.FAILED, error_code=error_code)
    if test := kinds.asked_kind_of(run):
        test.lose(session, run, max_runs=_PATIENCE)
        return True
    dataset = session.get_one(Dataset, run.dataset_id)
    model = session.get_one(Model, run.model_id) if run.model_id else None
    _note(run, model, observed)
    claims.hand_back(session, run)
    if model is None:
        dataset.attempts, dataset.not_before = back_off(session, dataset.attempts)
        return True
    model.attempts, model.not_before = back_off(session, model.attempts)
    model.error_code = error_code
    if error_code in (WeightsDestroyed.code, WeightsUnreadable.code):
        model.wanted = RunKind.RELEARN
    if model.attempts >= _PATIENCE:
        _give_up(session, model, dataset)
    return True


def take_back(session: Session, *, worker: str) -> int:
    """Hand back all runs of a worker known to be dead before their leases expire, and return their number.

    `worker` must name a single process on one host: any other process that claims under this name loses its runs.
    """
    runs = repository.running_runs(session, worker=worker)
    for run in runs:
        abandon(session, run, error_code="worker_died")
    return len(runs)


def cancel(session: Session, run: Run) -> None:
    """Stop a training run or a test, and withdraw its request. A model without a version becomes `cancelled`, and can
    be trained again or retired.

    Raises `RunNotCancellable` if the run has ended, serves a deletion request, or is needed by its model.
    """
    if run.status != RunStatus.RUNNING:
        raise RunNotCancellable.ended(run_id=run.id, status=run.status)
    is_test = kinds.asked_kind_of(run) is not None
    if not (is_test or run.kind in (RunKind.LEARN, RunKind.RELEARN)) or deletion_repository.request_models_of_run(
        session, run_id=run.id
    ):
        raise RunNotCancellable.for_requests(run_id=run.id)
    model = session.get_one(Model, run.model_id)
    if not is_test and not _can_do_without(session, model):
        raise RunNotCancellable.needed(model_id=model.id)
    _stop(session, run)
    if not is_test:
        model.wanted, model.attempts, model.deaths, model.not_before, model.error_code = None, 0, 0, None, None
        _give_up(session, model, session.get_one(Dataset, run.dataset_id), status=ModelStatus.CANCELLED)
    audit.record(session, "run.cancelled", run.id, model_id=model.id)


def stop_runs(session: Session, *, model_id: str | None = None, dataset_id: str | None = None) -> None:
    """Stop the runs in progress for a model or a dataset."""
    for run in repository.runs_to_stop(session, model_id=model_id, dataset_id=dataset_id):
        _stop(session, run)


def _stop(session: Session, run: Run) -> None:
    """Cancel a run in progress. Its worker finds out at its next heartbeat, and discards its results."""
    _end(session, run, status=RunStatus.CANCELLED)
    if test := kinds.asked_kind_of(run):
        test.cancel(session, run)
    else:
        claims.hand_back(session, run)


def _can_do_without(session: Session, model: Model) -> bool:
    """Return True if the model does not need its run from scratch, because it stays as usable without that run."""
    live = catalogue_repository.live_version(session, model)
    if live is None:
        return True
    lost = live.status != VersionStatus.LIVE or model.error_code in (WeightsDestroyed.code, WeightsUnreadable.code)
    return model.wanted is not None and not lost


def get(session: Session, run_id: str) -> Run:
    """Return a run, or raise `RunUnknown`."""
    return RunUnknown.if_none(repository.run(session, run_id), run_id=run_id)


def _held(session: Session, run_id: str, *, lock: bool = True) -> tuple[Run, Dataset, Model | None]:
    """Return a run that is still held, with its dataset and model, or raise `LeaseLost`. Readers pass `lock=False`:
    PostgreSQL refuses to lock a row that a heartbeat has changed since their snapshot."""
    held = repository.run_with_owners(session, run_id, lock=lock)
    if held is None or held[0].status != RunStatus.RUNNING:
        raise LeaseLost(f"Run {run_id} is {held[0].status if held else 'over'}: it was taken from this worker.")
    return held


def abandon(session: Session, run: Run, *, error_code: str) -> None:
    """Mark a run whose worker is silent or dead as abandoned, and discard its work."""
    _end(session, run, status=RunStatus.ABANDONED, error_code=error_code)
    if test := kinds.asked_kind_of(run):
        test.lose(session, run, max_runs=_PATIENCE)
        return
    claims.hand_back(session, run)
    if run.model_id is not None:
        model = session.get_one(Model, run.model_id)
        model.deaths, not_before = back_off(session, model.deaths)
        model.not_before = not_before if model.deaths > _PATIENCE else None
        if model.deaths >= _DEATHS:
            model.error_code = error_code
            _give_up(session, model, session.get_one(Dataset, run.dataset_id))


def _give_up(session: Session, model: Model, dataset: Dataset, *, status: ModelStatus = ModelStatus.FAILED) -> None:
    """Set the final `status` of a model without a version. A model with a version remains unchanged."""
    if model.live_version is None:
        model.status, model.wanted = status, None
        claims.give_up_model(session, model_id=model.id, revision=dataset.revision)


def _end(session: Session, run: Run, *, status: RunStatus, error_code: str | None = None) -> None:
    run.status, run.error_code, run.finished_at = status, error_code, now(session)
    if status in (RunStatus.FAILED, RunStatus.ABANDONED):
        _count_repeats(session, run)


def _count_repeats(session: Session, run: Run) -> None:
    """Keep only the first and the last of successive runs that fail for the same reason, with the number of runs
    between them; otherwise a permanent failure would add a row every minute."""
    # Runs that are canary tests, or failed one, hold observations, so all of them are kept.
    if run.kind == RunKind.AUDIT or run.error_code == AuditFailed.code:
        return
    before = repository.ended_before(session, run, limit=2)
    reason = (run.kind, run.status, run.error_code)
    if [(earlier.kind, earlier.status, earlier.error_code) for earlier in before] == [reason, reason]:
        run.repeated = before[0].repeated + 1
        repository.drop_run(session, before[0], in_favour_of=run)


def back_off(session: Session, attempts: int) -> tuple[int, datetime.datetime]:
    """Return the incremented number of attempts and the time of the next one: in 0.5 s, 1 s, 2 s, ... at most 60 s."""
    pause = min(_FIRST_BACKOFF * 2 ** min(attempts, 10), _MAX_BACKOFF)
    return attempts + 1, now(session) + pause
