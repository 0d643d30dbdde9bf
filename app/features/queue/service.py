"""A tenant's due datasets, in the order in which workers claim them, each with when and why it became due."""

import datetime
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.db.tables import Dataset, Erasure, Model, Run
from app.deletion.deadlines import BEFORE_THE_DEADLINE
from app.unlearning import due_repository, kinds, turns
from lethe.contract.sets import QueueRule, RunStatus

_MAX_DATASETS = 100
_MAX_MODELS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class DueReason:
    """Rule by which a dataset is due. `since` is None after an interrupted run, and `first_due_at`, the earliest
    deadline, is None if no deletion request is waiting."""

    rule: QueueRule
    since: datetime.datetime | None
    first_due_at: datetime.datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Queued:
    """Dataset waiting for a free worker, with the models to run. `urgent` means that a request is due soon."""

    dataset_id: str
    model_ids: list[str]
    due: list[DueReason]
    urgent: bool


def backlog(session: Session, *, tenant_id: str, at: datetime.datetime) -> list[Queued]:
    """Return a tenant's due datasets that have no run in progress, at most 100 per rule, in queue order. The session
    must see all tenants, as a worker's session does."""
    by_dataset: dict[str, list[turns.DueDataset]] = {}
    reasons = list(due_repository.due(session, at=at, tenant_id=tenant_id, limit=_MAX_DATASETS))
    for reason in reasons:
        by_dataset.setdefault(reason.dataset_id, []).append(reason)
    since = _oldest_ready(session, dataset_ids=by_dataset.keys(), at=at)
    return [
        Queued(
            dataset_id=merged.dataset_id,
            model_ids=_models(session, merged, {reason.rule for reason in by_dataset[merged.dataset_id]}, at=at),
            due=[_due_reason(reason, since) for reason in by_dataset[merged.dataset_id]],
            urgent=merged.deadline is not None and merged.deadline <= at + BEFORE_THE_DEADLINE,
        )
        for merged in due_repository.ordered(session, reasons, at=at)
    ]


def _models(
    session: Session, due_dataset: turns.DueDataset, rules: Collection[QueueRule | None], *, at: datetime.datetime
) -> list[str]:
    if QueueRule.REQUESTED in rules:
        return _models_to_serve(session, dataset_id=due_dataset.dataset_id, at=at, limit=_MAX_MODELS)
    dataset = session.get_one(Dataset, due_dataset.dataset_id)
    if due_dataset.test:
        models = (test.model_due(session, dataset_id=dataset.id) for test in kinds.asked_kinds().values())
        return [model.id for model in models if model is not None][:1]
    return [model.id for model, _ in due_repository.models_due(session, dataset=dataset, at=at)][:_MAX_MODELS]


def _due_reason(due_dataset: turns.DueDataset, since: dict[str, datetime.datetime]) -> DueReason:
    assert due_dataset.rule is not None
    asked_at = due_dataset.learning - due_repository.LEARNING_MAY_WAIT if due_dataset.learning else None
    if due_dataset.rule is QueueRule.REQUESTED:
        asked_at = since.get(due_dataset.dataset_id)
    return DueReason(rule=due_dataset.rule, since=asked_at, first_due_at=due_dataset.deadline)


def _models_to_serve(session: Session, *, dataset_id: str, at: datetime.datetime, limit: int) -> list[str]:
    """Return the ids of the models that the next run for a dataset's unclaimed requests must update: models that have
    been or will be trained, except those that are still batching requests."""
    carries = sa.or_(Model.live_version.is_not(None), Model.wanted.is_not(None))
    patient = due_repository.patient_models(session, at=at, dataset_id=dataset_id)
    query = sa.select(Model.id).where(
        Model.dataset_id == dataset_id, carries, due_repository.MAY_RUN, Model.id.not_in(patient)
    )
    query = query.where(Model.retired_at.is_(None)).order_by(Model.created_at, Model.id).limit(limit)
    return list(session.scalars(query, {"at": at}))


def _oldest_ready(
    session: Session, *, dataset_ids: Collection[str], at: datetime.datetime
) -> dict[str, datetime.datetime]:
    """Return the time at which each dataset's oldest unclaimed request became ready, keyed by dataset id."""
    query = sa.select(Erasure.dataset_id, sa.func.min(Erasure.ready_at)).group_by(Erasure.dataset_id)
    is_ready = sa.and_(Erasure.revision.is_(None), Erasure.ready_at <= at)
    ready = session.execute(query.where(Erasure.dataset_id.in_(list(dataset_ids)), is_ready))
    return {dataset_id: ready_at for dataset_id, ready_at in ready if ready_at}


def runs_by_hour(
    session: Session, *, begins: Sequence[datetime.datetime], hour: datetime.timedelta
) -> list[tuple[int, int]]:
    """Return the numbers of published and unsuccessful runs that began in each hour, oldest hour first."""
    count = sa.func.count().filter
    is_unsuccessful = Run.status.not_in((RunStatus.PUBLISHED, RunStatus.RUNNING))
    columns = []
    for begin in begins:
        in_hour = sa.and_(Run.started_at >= begin, Run.started_at < begin + hour)
        columns += [count(in_hour, Run.status == RunStatus.PUBLISHED), count(in_hour, is_unsuccessful)]
    counts = session.execute(sa.select(*columns).select_from(Run).where(Run.started_at >= begins[0])).one()
    return list(zip(counts[::2], counts[1::2], strict=True))
