"""Queue of runs: claim the next run under a lease, with the rows of all waiting requests, or estimate that run."""

import datetime
from collections.abc import Iterable
from dataclasses import dataclass

from sqlalchemy.orm import Session

from app import telemetry
from app.accounting import budgets, ledger, repository as accounting_repository
from app.catalogue import additions, repository as catalogue_repository, service as catalogue
from app.catalogue.additions import AdditionTask
from app.db import now
from app.db.tables import Addition, Dataset, Model, Run, Version, new_id
from app.deletion import claims, repository as deletion_repository
from app.rows import records
from app.unlearning import due_repository, kinds, planner, repository, service
from lethe.contract import problems, sets
from lethe.proof import canary_test, errors
from lethe.proof.mechanism import Mechanism

_LOOK_AGAIN = datetime.timedelta(days=1)
"""Delay before the next run of a model whose dataset's budget has no room for another version."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedRun:
    """Run held by a worker, with everything it needs, so that it reads nothing from the database while in progress.

    `additions` are batches of rows to write into their slots before any row is erased. `root` is the recorded digest of
    the rows. A run that `gives_way` serves no deletion request and pauses while its worker serves one. `first_step` is
    the number of steps in the model's chain before this run."""

    run_id: str
    kind: str
    dataset_id: str
    additions: tuple[AdditionTask, ...]
    erases: bool
    slots_to_null: tuple[int, ...]
    root: str
    model_id: str | None
    evaluation_dataset_id: str | None
    mechanism: Mechanism | None
    steps: int
    parent_version_id: str | None
    version_id: str
    audit: canary_test.CanaryPlan | None
    gives_way: bool
    first_step: int


def claim(
    session: Session, *, worker: str, lease_seconds: float, max_requests: int, deletions_only: bool = False
) -> ClaimedRun | None:
    """Claim the next due run, with the rows of all requests waiting on its dataset; return None if no run is due. With
    `deletions_only`, claim only a run that a deletion request is waiting for.

    Workers claim under the write lock (`Database.writing`), so no run is claimed twice. Runs with an expired lease are
    abandoned first. At most one run per dataset is in progress, because each run starts from the recorded rows and
    replaces them. A dataset's run is not claimed if the dataset, or a record that the run would erase, is damaged.
    """
    at = now(session)
    for run in repository.expired_runs(session, at=at):
        service.abandon(session, run, error_code="lease_expired")
    for due_dataset in due_repository.datasets_due(session, at=at, deletions_only=deletions_only):
        dataset = session.get_one(Dataset, due_dataset.dataset_id)
        try:
            # With a savepoint, a dataset that is put off leaves nothing half claimed in this transaction.
            with session.begin_nested():
                if due_dataset.test:
                    return _claim_test(session, dataset, worker=worker, lease_seconds=lease_seconds)
                claimed_run = _claim(
                    session,
                    dataset,
                    worker=worker,
                    lease_seconds=lease_seconds,
                    max_requests=max_requests,
                    deletions_only=deletions_only,
                )
                if claimed_run is not None:
                    return claimed_run
        except problems.DatasetDamaged as error:
            records.record(session, error)
        except (problems.Problem, errors.PrivacyError) as error:
            # A problem of one dataset must not stop the others.
            code = error.code if isinstance(error, problems.Problem) else type(error).__name__
            telemetry.logger().error("unlearning.dataset_put_off", dataset_id=dataset.id, error=code)
            dataset.attempts, dataset.not_before = service.back_off(session, dataset.attempts)
    return None


def _claim(
    session: Session, dataset: Dataset, *, worker: str, lease_seconds: float, max_requests: int, deletions_only: bool
) -> ClaimedRun | None:
    """Claim the run of a dataset; return None if no due model has budget left and no rows are waiting."""
    staged = additions.take(session, dataset=dataset)
    claims.claim_erasures(session, dataset=dataset, limit=max_requests)
    model, live, records = None, None, 0
    for due_model, version in due_repository.models_due(
        session, dataset=dataset, at=now(session), deletions_only=deletions_only
    ):
        records = accounting_repository.records_waiting_for(session, due_model)
        plan = plan_next(session, due_model, records=records)
        if _has_room(session, dataset, due_model, plan):
            model, live = due_model, version if plan.kind == sets.RunKind.UNLEARN else None
            break
    else:
        erases = bool(deletion_repository.unconfirmed_erasures(session, dataset_id=dataset.id))
        if not erases and not staged:
            return None
        records = 0
        kind = sets.RunKind.ERASE if erases else sets.RunKind.ADD
        plan = planner.Plan(kind=kind, steps=0, reason=planner.PlanReason.NO_MODEL_DUE)
    run = _begin(session, dataset, model, plan, live=live, records=records, worker=worker, lease_seconds=lease_seconds)
    if model:
        claims.start_models(session, model_id=model.id, revision=run.revision, run_id=run.id)
    return _claimed(session, run, dataset, model, staged)


def _has_room(session: Session, dataset: Dataset, model: Model, plan: planner.Plan) -> bool:
    """Return True if the dataset's budget has room for the version that a plan would produce. Otherwise postpone the
    model: no plan is cheaper, and publication cannot be undone, so the budget does not recover."""
    try:
        budgets.require_room(session, dataset, catalogue.mechanism_of(model), steps=plan.steps)
    except problems.AdaptiveBudgetSpent as error:
        if model.error_code != error.code:
            telemetry.logger().error("unlearning.model_waits", model_id=model.id, error=error.code)
        model.error_code, model.not_before = error.code, now(session) + _LOOK_AGAIN
        return False
    return True


def _claim_test(session: Session, dataset: Dataset, *, worker: str, lease_seconds: float) -> ClaimedRun:
    """Claim the first requested test. No row is claimed, so batched requests continue to wait."""
    tests = (test for test in kinds.asked_kinds().values() if test.model_due(session, dataset_id=dataset.id))
    test = next(tests)
    planned = test.plan(session, dataset)
    model, live = planned.model, planned.live
    run = _begin(
        session, dataset, model, planned.plan, live=live, records=0, worker=worker, lease_seconds=lease_seconds
    )
    test.start(session, run)
    staged = catalogue_repository.staged_additions(session, dataset_id=dataset.id)
    return _claimed(session, run, dataset, model, staged)


def _begin(
    session: Session,
    dataset: Dataset,
    model: Model | None,
    plan: planner.Plan,
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
        status=sets.RunStatus.RUNNING,
        dataset_id=dataset.id,
        model_id=model.id if model else None,
        revision=dataset.revision,
        parent_version_id=live.id if live else None,
        version_id=new_id("ver"),
        first_step=accounting_repository.chain_steps(session, model_id=model.id) if model and live else 0,
        steps_total=plan.steps,
        steps_done=0,
        records=records,
        reason=plan.reason,
        reason_facts=dict(plan.facts),
        worker=worker,
        lease_expires_at=at + datetime.timedelta(seconds=lease_seconds),
        started_at=at,
    )
    session.add(run)
    # Rows of request_models will refer to the run.
    session.flush()
    return run


def _claimed(session: Session, run: Run, dataset: Dataset, model: Model | None, staged: list[Addition]) -> ClaimedRun:
    learns = run.kind in (sets.RunKind.LEARN, sets.RunKind.RELEARN, *kinds.asked_kinds())
    erases, to_null = deletion_repository.claimed_records(session, dataset_id=dataset.id)
    return ClaimedRun(
        run_id=run.id,
        kind=run.kind,
        dataset_id=dataset.id,
        additions=tuple(additions.tasks(session, staged)),
        erases=erases,
        slots_to_null=records.verified_slots(session, dataset.id, to_null),
        root=dataset.digest,
        model_id=run.model_id,
        evaluation_dataset_id=model.evaluation_dataset_id if model else None,
        mechanism=catalogue.mechanism_of(model) if model else None,
        steps=run.steps_total,
        parent_version_id=run.parent_version_id,
        version_id=run.version_id,
        audit=kinds.planned(run, model) if model else None,
        gives_way=learns and not deletion_repository.request_models_of_run(session, run_id=run.id),
        first_step=run.first_step,
    )


def estimate(session: Session, *, model_ids: Iterable[str], max_requests: int) -> list[tuple[str, planner.Plan, int]]:
    """Return (model id, plan, number of records to forget) for each model's next run, as computed by `next_run`."""
    return [
        (model_id, *next_run(session, catalogue.get_model(session, model_id), max_requests=max_requests))
        for model_id in model_ids
    ]


def next_run(session: Session, model: Model, *, max_requests: int) -> tuple[planner.Plan, int]:
    """Return the plan for a run of the model that starts now and serves up to `max_requests` waiting requests, and the
    number of records it would forget."""
    records = deletion_repository.count_waiting(session, dataset_id=model.dataset_id, at_most=max_requests)
    records += accounting_repository.records_waiting_for(session, model)
    return plan_next(session, model, records=records), records


def plan_next(session: Session, model: Model, *, records: int) -> planner.Plan:
    """Plan the next run of a model, given that `records` more rows become null before it."""
    mechanism = catalogue.mechanism_of(model)
    match model.wanted:
        case sets.RunKind.LEARN:
            return planner.learn(mechanism, kind=sets.RunKind.LEARN)
        case sets.RunKind.RELEARN:
            return planner.learn(mechanism, kind=sets.RunKind.RELEARN)
        case _:
            if accounting_repository.records_added_to_chain(session, model, waiting=True):
                return planner.learn(mechanism, kind=sets.RunKind.RELEARN, reason=planner.PlanReason.ROWS_ADDED)
            chain = ledger.history_of(session, model_id=model.id, mechanism=mechanism).chain
            return planner.forget(chain, records=records, epsilon=model.epsilon, delta=model.delta)
