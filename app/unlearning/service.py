"""Runs under way: keep the lease, publish what was made in one transaction, or hand the run back.

Between app and worker there is only the database. A run is fenced by its own id: whatever a worker does after its run
was taken from it changes nothing.
"""

import datetime
from typing import Any

from sqlalchemy.orm import Session

from app.accounting import budgets, certificates, ledger
from app.accounting import repository as accounting_repository
from app.audit import checkpoints
from app.audit import service as audit
from app.audit.chains import LEDGER
from app.catalogue import additions
from app.catalogue import repository as catalogue_repository
from app.catalogue import service as catalogue
from app.db import now
from app.db.tables import Dataset, Model, Run, Version
from app.deletion import claims
from app.deletion import repository as deletion_repository
from app.errors import AuditFailed, LeaseLost, RunDiffersFromPlan, WeightsUnreadable
from app.keys import Keys
from app.rows import damage
from app.unlearning import audits, rehearsals, repository, tests_repository
from lethe.contract.problems import DatasetDamaged, RunNotCancellable, RunUnknown, WeightsDestroyed
from lethe.contract.sets import ModelStatus, RunKind, RunStatus, VersionStatus
from lethe.proof.audit import Observed
from lethe.proof.mechanism import Mechanism

_FIRST_BACKOFF = datetime.timedelta(seconds=0.5)
_LONGEST_BACKOFF = datetime.timedelta(minutes=1)
_PATIENCE = 3
"""A first learning run that fails this often by itself ends in `failed`; a worker that dies more often backs off."""
_CLEARED_UP_WITHIN = datetime.timedelta(hours=1)
_DEATHS = 10
"""A first learning run whose worker dies this often ends in `failed`."""


def renew(session: Session, *, run_id: str, steps_done: int, lease_seconds: float) -> None:
    """Keep the lease and report progress; changes the run alone, so that the write lock need not be waited for.

    Raises `LeaseLost`.
    """
    run = _held(session, run_id)
    run.steps_done = steps_done
    run.lease_expires_at = now(session) + datetime.timedelta(seconds=lease_seconds)


def check_held(session: Session, *, run_id: str) -> None:
    """Raises `LeaseLost` if the run was taken away: the one who took it may write rows from now on."""
    _held(session, run_id, lock=False)


def was_any_run_cut_off(session: Session, *, dataset_id: str) -> bool:
    """Return True if a run on a dataset may have left what no root on record names: one that did not come to its end,
    and that the sweep of rows may not have cleared up after yet. Its worker may have lived on, and written, after it
    was taken away."""
    return repository.is_any_cut_off(session, dataset_id=dataset_id, since=now(session) - _CLEARED_UP_WITHIN)


def commit_rows(session: Session, *, run_id: str, root: str) -> None:
    """Make these the rows of the run's dataset: the batches that it took are in their slots, and the rows of
    people to be erased are null. The rows that were there may be opened until their keys are destroyed. Raises
    `LeaseLost`."""
    dataset = session.get_one(Dataset, _held(session, run_id).dataset_id)
    additions.confirm(session, dataset=dataset)
    dataset.digest = root


def confirm_edited(session: Session, *, run_id: str) -> None:
    """Note that nobody can open what the rows were before, nor the batches: that everybody who was to be erased is
    gone. Raises `LeaseLost`."""
    run = _held(session, run_id)
    dataset = session.get_one(Dataset, run.dataset_id)
    additions.confirm_destroyed(session, dataset_id=dataset.id)
    if claims.confirm_erasures(session, dataset=dataset):
        catalogue_repository.forget_metrics(session, evaluation_dataset_id=dataset.id)
        tests_repository.forget_reports(session, dataset_id=dataset.id)
    dataset.attempts, dataset.not_before = 0, None


def note_damage(session: Session, *, run_id: str, error: DatasetDamaged) -> None:
    """Stop the dataset whose rows the run found damaged; not if the run was taken away: what is missing then may be
    what the one who took it has destroyed."""
    run = repository.run(session, run_id)
    if run is not None and run.status == RunStatus.RUNNING:
        damage.record(session, error)


def finish(session: Session, *, run_id: str) -> None:
    """End a run that had rows to erase and no model to bring up to date. Raises `LeaseLost`."""
    _end(session, _held(session, run_id), status=RunStatus.PUBLISHED)


def examine(session: Session, *, run_id: str, records: int, observed: Observed | None) -> tuple[str, ...]:
    """The findings of a run's audit: none if all is as it should be. `records`: rows that are not null, as the root
    says that it read.

    Raises `LeaseLost` if the run was taken away, `RunDiffersFromPlan` if it used other rows than are on record, or was
    not audited as its model is to be.
    """
    run = _held(session, run_id, lock=False)
    if run.kind != RunKind.AUDIT and records != session.get_one(Dataset, run.dataset_id).num_rows:
        raise RunDiffersFromPlan(f"Run {run_id} read another number of records than are on record.")
    return audits.findings(run, session.get_one(Model, run.model_id), observed)


def end_audit(session: Session, *, run_id: str, observed: Observed | None, error_code: str | None) -> None:
    """End an audit that was asked for. Raises `LeaseLost`."""
    run = _held(session, run_id)
    _note(session, run, observed)
    session.get_one(Model, run.model_id).audit_asked_at = None
    run.steps_done = run.steps_total
    _end(session, run, status=RunStatus.FAILED if error_code else RunStatus.PUBLISHED, error_code=error_code)


def end_rehearsal(session: Session, *, run_id: str, report: dict[str, Any]) -> None:
    """End a rehearsal with what it measured. Raises `LeaseLost`."""
    run = _held(session, run_id)
    rehearsals.complete(session, run, report)
    run.steps_done = run.steps_total
    _end(session, run, status=RunStatus.PUBLISHED)


def _note(session: Session, run: Run, observed: Observed | None) -> None:
    """Keep with the run what its lanes showed."""
    if observed:
        model = session.get_one(Model, run.model_id)
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
) -> Version:
    """Everything at once: the new version, its ledger entry, a certificate for each request, the requests completed.

    Raises `LeaseLost` if the run was taken away, `RunDiffersFromPlan` if what ran is not what was planned,
    `AuditFailed` if the run's audit found that it is not what is to be certified, `AdaptiveBudgetSpent` if the dataset
    has no room for the version any more.
    """
    run = _held(session, run_id)
    model = session.get_one(Model, run.model_id)
    dataset = session.get_one(Dataset, run.dataset_id)
    mechanism = catalogue.mechanism_of(model)
    live = catalogue_repository.live_version(session, model)
    if (mechanism_ran, first_step_ran, steps_ran) != (mechanism, run.first_step, run.steps_total):
        raise RunDiffersFromPlan(f"Run {run.id} did not take the steps of the model's mechanism that it was to take.")
    goes_on_after = accounting_repository.chain_steps(session, model_id=model.id) if run.kind == RunKind.UNLEARN else 0
    if run.first_step != goes_on_after:
        raise RunDiffersFromPlan(f"Run {run.id} did not go on where the chain of its model stands.")
    if run.kind == RunKind.UNLEARN and (live is None or live.id != run.parent_version_id):
        raise RunDiffersFromPlan(f"Run {run.id} continued a version that is not the live one.")
    if audits.findings(run, model, observed):
        raise AuditFailed(f"The audit of run {run.id} refuted what it was to certify.")
    if model.evaluation_dataset_id is not None and deletion_repository.is_anybody_erased_since(
        session, dataset_id=model.evaluation_dataset_id, at=run.started_at
    ):
        metrics = {}  # measured while somebody's rows were still there
    version = catalogue.publish_version(session, run=run, model=model, weights_sha256=weights_sha256, metrics=metrics)
    session.flush()  # the accountant reads the version just published
    budgets.require_kept(session, dataset)
    began = accounting_repository.chain_began_at(session, model_id=model.id)
    if began is None or accounting_repository.records_added_since(session, dataset_id=dataset.id, revision=began):
        raise RunDiffersFromPlan(f"Run {run.id} continued a chain that began before rows were added to its data.")
    owed = deletion_repository.awaiting_model(session, model_id=model.id, revision=run.revision)
    history = ledger.history_of(session, model_id=model.id, mechanism=mechanism)
    entry = ledger.post(
        session,
        model=model,
        run=run,
        version=version,
        chain=history.chain,
        requests=[{"request_id": request.id, "records": erasure.num_records} for _, erasure, request in owed],
    )
    checkpoints.checkpoint_now(session, keys, LEDGER, tenant_id=model.tenant_id)
    evidences = certificates.Evidences(session, model, history)
    for owed_model, erasure, request in owed:
        certificate = certificates.issue(
            session,
            keys,
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
        claims.complete_model(session, owed_model, version=version.number, certificate_id=certificate.id)
    run.steps_done = steps_ran
    _note(session, run, observed)
    _end(session, run, status=RunStatus.PUBLISHED)
    return version


def fail(session: Session, *, run_id: str, error_code: str, observed: Observed | None = None) -> bool:
    """End a run that failed by itself: back off and try again, from scratch if the live weights are lost.

    A model that never learns ends in `failed`. False if the run was taken away: the one who took it goes on.
    """
    run = repository.run(session, run_id)
    if run is None or run.status != RunStatus.RUNNING:
        return False
    _end(session, run, status=RunStatus.FAILED, error_code=error_code)
    if run.kind in repository.ASKED_FOR:
        _test_lost(session, run)
        return True
    _note(session, run, observed)
    claims.hand_back(session, run)
    dataset = session.get_one(Dataset, run.dataset_id)
    if run.model_id is None:
        dataset.attempts, dataset.not_before = back_off(session, dataset.attempts)
        return True
    model = session.get_one(Model, run.model_id)
    model.attempts, model.not_before = back_off(session, model.attempts)
    model.error_code = error_code
    if error_code in (WeightsDestroyed.code, WeightsUnreadable.code):
        model.wanted = RunKind.RELEARN
    if model.attempts >= _PATIENCE:
        _give_up(session, model, dataset)
    return True


def take_back(session: Session, *, worker: str) -> int:
    """Hand back all runs of a worker that is known to be dead, without waiting for its lease; returns how many.

    `worker` must name one process of one host: another that claims under the same name loses its runs.
    """
    runs = repository.running_runs_of(session, worker=worker)
    for run in runs:
        abandon(session, run, error_code="worker_died")
    return len(runs)


def take_back_all(session: Session) -> int:
    """Hand back all runs: of a database that was restored no worker is left. Returns how many."""
    runs = repository.running_runs(session)
    for run in runs:
        abandon(session, run, error_code="restored")
    return len(runs)


def cancel(session: Session, run: Run) -> None:
    """Stop a run that learns, and ask for it no more. A model that has no version yet is `cancelled` from then on, and
    can be learned again or retired.

    Raises `RunNotCancellable` for a run that has ended, that honours a deletion, or that its model cannot do without.
    """
    if run.status != RunStatus.RUNNING:
        raise RunNotCancellable(f"Run {run.id} has ended: it is {run.status}.")
    if run.kind not in (
        RunKind.LEARN,
        RunKind.RELEARN,
        *repository.ASKED_FOR,
    ) or deletion_repository.request_models_of_run(session, run_id=run.id):
        raise RunNotCancellable(f"Run {run.id} honours deletion requests; nothing cancels it now.")
    model = session.get_one(Model, run.model_id)
    if run.kind not in repository.ASKED_FOR and not _can_do_without(session, model):
        raise RunNotCancellable(
            f"Model {model.id} must learn again: rows were added, its weights are lost, or it was last accounted for "
            "in an earlier format. Retire it to end that "
            f"(DELETE /v1/models/{model.id})."
        )
    _stop(session, run)
    if run.kind not in repository.ASKED_FOR:
        model.wanted, model.attempts, model.deaths, model.not_before, model.error_code = None, 0, 0, None, None
        _give_up(session, model, session.get_one(Dataset, run.dataset_id), status=ModelStatus.CANCELLED)
    audit.record(session, "run.cancelled", run.id, model_id=model.id)


def stop_runs(session: Session, *, model_id: str | None = None, dataset_id: str | None = None) -> None:
    """Cut off what is under way of a model, or on a dataset: nobody waits for it."""
    for run in repository.runs_to_stop(session, model_id=model_id, dataset_id=dataset_id):
        _stop(session, run)


def _stop(session: Session, run: Run) -> None:
    """Its worker finds at the next heartbeat that the run is not its own any more, and throws away what it has."""
    _end(session, run, status=RunStatus.CANCELLED)
    if run.kind == RunKind.AUDIT:
        session.get_one(Model, run.model_id).audit_asked_at = None
    elif run.kind == RunKind.REHEARSAL:
        rehearsals.cancel(session, run)
    else:
        claims.hand_back(session, run)


def _can_do_without(session: Session, model: Model) -> bool:
    """Return True if the model stays as it was without the run from scratch that it has under way."""
    live = catalogue_repository.live_version(session, model)
    if live is None:
        return True
    lost = live.status != VersionStatus.LIVE or model.error_code in (WeightsDestroyed.code, WeightsUnreadable.code)
    return model.wanted is not None and not lost and ledger.goes_on(session, model_id=model.id)


def get(session: Session, run_id: str) -> Run:
    """Raises `RunUnknown`."""
    run = repository.run(session, run_id)
    if run is None:
        raise RunUnknown(f"There is no run {run_id!r}.")
    return run


def _held(session: Session, run_id: str, *, lock: bool = True) -> Run:
    """Without `lock` for who only reads: on a snapshot PostgreSQL refuses to lock what a heartbeat changed since."""
    run = session.get(Run, run_id, with_for_update=True if lock else None)
    if run is None or run.status != RunStatus.RUNNING:
        raise LeaseLost(f"Run {run_id} is {run.status if run else 'over'}: it was taken from this worker.")
    return run


def abandon(session: Session, run: Run, *, error_code: str) -> None:
    """Take a run away from a worker that is silent or dead; what it was doing is thrown away."""
    _end(session, run, status=RunStatus.ABANDONED, error_code=error_code)
    if run.kind in repository.ASKED_FOR:
        _test_lost(session, run)
        return
    claims.hand_back(session, run)
    if run.model_id is not None:
        model = session.get_one(Model, run.model_id)
        model.deaths, not_before = back_off(session, model.deaths)
        model.not_before = not_before if model.deaths > _PATIENCE else None
        if model.deaths >= _DEATHS:
            model.error_code = error_code
            _give_up(session, model, session.get_one(Dataset, run.dataset_id))


def _test_lost(session: Session, run: Run) -> None:
    """Let the audit or the rehearsal be made again, but not for ever: what cut one off says nothing about the model."""
    if run.kind == RunKind.REHEARSAL:
        rehearsals.lose(session, run, at_most=_PATIENCE)
        return
    model = session.get_one(Model, run.model_id)
    session.flush()
    if tests_repository.count_audits_lost(session, model) >= _PATIENCE:
        model.audit_asked_at = None


def _give_up(session: Session, model: Model, dataset: Dataset, *, status: ModelStatus = ModelStatus.FAILED) -> None:
    """A model that has never had a version ends so; one that has stays what it is."""
    if model.live_version is None:
        model.status, model.wanted = status, None
        claims.give_up_model(session, model_id=model.id, revision=dataset.revision)


def _end(session: Session, run: Run, *, status: RunStatus, error_code: str | None = None) -> None:
    run.status, run.error_code, run.finished_at = status, error_code, now(session)
    if status in (RunStatus.FAILED, RunStatus.ABANDONED):
        _count_repeats(session, run)


def _count_repeats(session: Session, run: Run) -> None:
    """Keep the first and the last of successive runs that come to nothing for the same reason, and how many there were
    between: what fails for ever would leave a row a minute."""
    if run.kind == RunKind.AUDIT or run.error_code == AuditFailed.code:  # these say what was observed
        return
    before = repository.ended_before(session, run, limit=2)
    reason = (run.kind, run.status, run.error_code)
    if [(one.kind, one.status, one.error_code) for one in before] == [reason, reason]:
        run.repeated = before[0].repeated + 1
        repository.drop_run(session, before[0], in_favour_of=run)


def back_off(session: Session, attempts: int) -> tuple[int, datetime.datetime]:
    """One more attempt, and when the next may begin: 0.5 s, 1 s, 2 s, ... 60 s."""
    pause = min(_FIRST_BACKOFF * 2 ** min(attempts, 10), _LONGEST_BACKOFF)
    return attempts + 1, now(session) + pause
