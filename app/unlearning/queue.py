"""The queue of runs: claim the next one under a lease, with the rows of all who wait, or say what it would be now."""

import datetime
from collections.abc import Iterable
from dataclasses import dataclass

from sqlalchemy.orm import Session

from app import telemetry
from app.accounting import budgets, ledger
from app.accounting import repository as accounting_repository
from app.catalogue import additions
from app.catalogue import service as catalogue
from app.catalogue.additions import Taken
from app.db import now
from app.db.tables import Dataset, Model, Run, Version, new_id
from app.deletion import claims
from app.deletion import repository as deletion_repository
from app.rows import damage, records
from app.unlearning import audits, due_repository, planner, repository, service, tests_repository
from app.unlearning.planner import Plan
from lethe.contract.problems import AdaptiveBudgetSpent, DatasetDamaged, Problem
from lethe.contract.sets import RehearsalStatus, RunKind, RunStatus
from lethe.proof.audit import AuditPlan
from lethe.proof.errors import PrivacyError
from lethe.proof.mechanism import Mechanism

_LOOK_AGAIN = datetime.timedelta(days=1)
"""Time after which a model whose dataset has no room for another version is looked at again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedRun:
    """A run that this worker holds: all it needs to know, so that nothing is read from the database while it runs.

    `additions`: batches of rows to write into their slots, before anything is erased. `root`: of the rows as they are
    on record. `gives_way`: it honours no deletion, and stands still while its worker does one.
    """

    run_id: str
    kind: str
    dataset_id: str
    additions: tuple[Taken, ...]
    erases: bool
    slots_to_null: tuple[int, ...]
    root: str
    model_id: str | None
    evaluation_dataset_id: str | None
    mechanism: Mechanism | None
    steps: int
    parent_version_id: str | None
    version_id: str
    audit: AuditPlan | None
    gives_way: bool
    first_step: int
    """Steps of the model's chain before this run's first."""


def claim(
    session: Session, *, worker: str, lease_seconds: float, max_requests: int, deletions_only: bool = False
) -> ClaimedRun | None:
    """Take the next run that is due, with the rows of everybody who waits on its dataset; None if nothing is due.
    With `deletions_only`, the next that somebody waits for who asked to be forgotten.

    Workers claim under the write lock (`Database.writing`): what one has taken is not due for the next. Also takes back
    runs whose lease is over. At most one run per dataset is under way: each begins with the rows that are on record,
    and decides what is next. A dataset that is damaged has none, nor one of which a record that is to be erased proves
    to be.
    """
    at = now(session)
    for run in repository.expired_runs(session, at=at):
        service.abandon(session, run, error_code="lease_expired")
    for due in due_repository.datasets_due(session, at=at, deletions_only=deletions_only):
        dataset = session.get_one(Dataset, due.dataset_id)
        try:
            with session.begin_nested():
                if due.test:
                    return _claim_test(session, dataset, worker=worker, lease_seconds=lease_seconds)
                claimed = _claim(
                    session,
                    dataset,
                    worker=worker,
                    lease_seconds=lease_seconds,
                    max_requests=max_requests,
                    deletions_only=deletions_only,
                )
                if claimed is not None:
                    return claimed
        except DatasetDamaged as error:
            damage.record(session, error)
        except (Problem, PrivacyError) as error:  # what is wrong with one dataset must not stop the others
            code = error.code if isinstance(error, Problem) else type(error).__name__
            telemetry.logger().error("unlearning.dataset_put_off", dataset_id=dataset.id, error=code)
            dataset.attempts, dataset.not_before = service.back_off(session, dataset.attempts)
    return None


def anything_to_do(session: Session, *, deletions_only: bool = False) -> bool:
    """Return True if `claim` would find something: asked in a reading session, so that an idle worker disturbs
    nobody."""
    at = now(session)
    return bool(repository.expired_runs(session, at=at)) or due_repository.anything_due(
        session, at=at, deletions_only=deletions_only
    )


def _claim(
    session: Session, dataset: Dataset, *, worker: str, lease_seconds: float, max_requests: int, deletions_only: bool
) -> ClaimedRun | None:
    """None where all that there was to do is up to models that may publish no version any more."""
    additions.take(session, dataset=dataset)
    claims.claim_erasures(session, dataset=dataset, limit=max_requests)
    model, live, records = None, None, 0
    for due, version in due_repository.models_due(
        session, dataset=dataset, at=now(session), deletions_only=deletions_only
    ):
        records = accounting_repository.records_waiting_for(session, due)
        plan = _plan(session, due, records=records)
        if _has_room(session, dataset, due, plan):
            model, live = due, version
            break
    else:
        erases = bool(deletion_repository.unconfirmed_erasures(session, dataset_id=dataset.id))
        if not erases and not additions.taken(session, dataset_id=dataset.id):
            return None
        records = 0
        plan = Plan(
            kind=RunKind.ERASE if erases else RunKind.ADD, steps=0, reason="no model of this dataset is to be run"
        )
    run = _begin(session, dataset, model, plan, live=live, records=records, worker=worker, lease_seconds=lease_seconds)
    if model:
        claims.start_models(session, model_id=model.id, revision=run.revision, run_id=run.id)
    return _claimed(session, run, dataset, model)


def _has_room(session: Session, dataset: Dataset, model: Model, plan: Plan) -> bool:
    """Return True if the dataset's budget has room for the version that a plan makes. Without room the model waits:
    there is no cheaper way, and what is published is never forgotten by those who read it."""
    try:
        budgets.require_room(session, dataset, catalogue.mechanism_of(model), steps=plan.steps)
    except AdaptiveBudgetSpent as error:
        if model.error_code != error.code:
            telemetry.logger().error("unlearning.model_waits", model_id=model.id, error=error.code)
        model.error_code, model.not_before = error.code, now(session) + _LOOK_AGAIN
        return False
    return True


def _claim_test(session: Session, dataset: Dataset, *, worker: str, lease_seconds: float) -> ClaimedRun:
    """An audit, or else a rehearsal. No row is taken: requests that wait for each other go on waiting."""
    if model := tests_repository.model_to_audit(session, dataset_id=dataset.id):
        plan = planner.audit(catalogue.mechanism_of(model), epsilon=model.epsilon, delta=model.delta)
        run = _begin(session, dataset, model, plan, live=None, records=0, worker=worker, lease_seconds=lease_seconds)
        return _claimed(session, run, dataset, model)
    rehearsal = tests_repository.rehearsal_to_make(session, dataset_id=dataset.id)
    assert rehearsal is not None
    model = session.get_one(Model, rehearsal.model_id)
    live = catalogue.get_live_version(session, model)
    plan = _plan_rehearsal(session, model, records=rehearsal.people)[1]
    run = _begin(session, dataset, model, plan, live=live, records=0, worker=worker, lease_seconds=lease_seconds)
    rehearsal.status, rehearsal.run_id = RehearsalStatus.RUNNING, run.id
    return _claimed(session, run, dataset, model)


def plan_rehearsal(session: Session, *, run_id: str, records: int) -> Plan:
    """The plan by which to forget so many records more, now that they are drawn. Raises `LeaseLost`."""
    service.check_held(session, run_id=run_id)
    run = session.get_one(Run, run_id)
    forgetting, plan = _plan_rehearsal(session, session.get_one(Model, run.model_id), records=records)
    run.steps_total = plan.steps
    return forgetting


def _plan_rehearsal(session: Session, model: Model, *, records: int) -> tuple[Plan, Plan]:
    """The plan by which the model would forget so many records more, and that of its rehearsal."""
    records += accounting_repository.records_waiting_for(session, model)
    forgetting = _plan(session, model, records=records)
    return forgetting, planner.rehearsal(catalogue.mechanism_of(model), forgetting=forgetting)


def _begin(
    session: Session,
    dataset: Dataset,
    model: Model | None,
    plan: Plan,
    *,
    live: Version | None,
    records: int,
    worker: str,
    lease_seconds: float,
) -> Run:
    at = now(session)
    run = Run(
        id=new_id("run"),
        tenant_id=dataset.tenant_id,
        kind=plan.kind,
        status=RunStatus.RUNNING,
        dataset_id=dataset.id,
        model_id=model.id if model else None,
        revision=dataset.revision,
        parent_version_id=live.id if live and plan.kind in (RunKind.UNLEARN, RunKind.REHEARSAL) else None,
        version_id=new_id("ver"),
        first_step=accounting_repository.chain_steps(session, model_id=model.id)
        if model and plan.kind in (RunKind.UNLEARN, RunKind.REHEARSAL)
        else 0,
        steps_total=plan.steps,
        steps_done=0,
        records=records,
        reason=plan.reason,
        worker=worker,
        lease_expires_at=at + datetime.timedelta(seconds=lease_seconds),
        started_at=at,
    )
    session.add(run)
    session.flush()  # request_models refer to it
    return run


def _claimed(session: Session, run: Run, dataset: Dataset, model: Model | None) -> ClaimedRun:
    learns = run.kind in (RunKind.LEARN, RunKind.RELEARN, *repository.ASKED_FOR)
    return ClaimedRun(
        run_id=run.id,
        kind=run.kind,
        dataset_id=dataset.id,
        additions=tuple(additions.taken(session, dataset_id=dataset.id)),
        erases=bool(deletion_repository.unconfirmed_erasures(session, dataset_id=dataset.id)),
        slots_to_null=records.verified_slots(
            session, dataset.id, deletion_repository.records_to_null(session, dataset_id=dataset.id)
        ),
        root=dataset.digest,
        model_id=run.model_id,
        evaluation_dataset_id=model.evaluation_dataset_id if model else None,
        mechanism=catalogue.mechanism_of(model) if model else None,
        steps=run.steps_total,
        parent_version_id=run.parent_version_id,
        version_id=run.version_id,
        audit=audits.planned(run, model) if model else None,
        gives_way=learns and not deletion_repository.request_models_of_run(session, run_id=run.id),
        first_step=run.first_step,
    )


def estimate(session: Session, *, model_ids: Iterable[str], max_requests: int) -> list[tuple[str, Plan, int]]:
    """Return what `next_run` says of each of these models."""
    return [
        (model_id, *next_run(session, catalogue.get_model(session, model_id), max_requests=max_requests))
        for model_id in model_ids
    ]


def next_run(session: Session, model: Model, *, max_requests: int) -> tuple[Plan, int]:
    """The run of a model if it ran now, for as many who wait on it as one run takes, and how many records that would
    forget."""
    records = deletion_repository.count_waiting(session, dataset_id=model.dataset_id, at_most=max_requests)
    records += accounting_repository.records_waiting_for(session, model)
    return _plan(session, model, records=records), records


def _plan(session: Session, model: Model, *, records: int) -> Plan:
    mechanism = catalogue.mechanism_of(model)
    match model.wanted:
        case RunKind.LEARN:
            return planner.learn(mechanism, kind=RunKind.LEARN)
        case RunKind.RELEARN:
            return planner.learn(mechanism, kind=RunKind.RELEARN)
        case _:
            began = accounting_repository.chain_began_at(session, model_id=model.id)
            if began is not None and accounting_repository.is_anything_added_since(
                session, dataset_id=model.dataset_id, revision=began
            ):
                return planner.learn(mechanism, kind=RunKind.RELEARN, reason="rows were added since it learned")
            if not ledger.goes_on(session, model_id=model.id):
                return planner.learn(mechanism, kind=RunKind.RELEARN, reason="its ledger is of an earlier format")
            chain = ledger.history_of(session, model_id=model.id, mechanism=mechanism).chain
            return planner.forget(chain, records=records, epsilon=model.epsilon, delta=model.delta)
