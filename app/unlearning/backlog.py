"""Backlog of a tenant: datasets that are due, with the rules and times, in the order in which workers claim them."""

import datetime
from collections.abc import Collection
from dataclasses import dataclass

from sqlalchemy.orm import Session

from app.db.tables import Dataset
from app.deletion.deadlines import BEFORE_THE_DEADLINE
from app.unlearning import due_repository, kinds
from app.unlearning.turns import DueDataset
from lethe.contract.sets import QueueRule

_MAX_DATASETS = 100
_MAX_MODELS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class DueReason:
    """Rule by which a dataset is due. `since` is None if a run was cut off, and `first_due_at`, the earliest deadline,
    is None if no deletion request waits."""

    rule: QueueRule
    since: datetime.datetime | None
    first_due_at: datetime.datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Queued:
    """Dataset that the next free worker claims, with the models to run. `urgent` means that a request is due soon."""

    dataset_id: str
    model_ids: list[str]
    due: list[DueReason]
    urgent: bool


def backlog(session: Session, *, tenant_id: str, at: datetime.datetime) -> list[Queued]:
    """Return the due datasets of a tenant without a run under way, at most 100 per rule, in the order of the queue. The
    session must see all tenants, as a worker's does."""
    by_dataset: dict[str, list[DueDataset]] = {}
    reasons = due_repository.rules_due(session, tenant_id=tenant_id, at=at, limit=_MAX_DATASETS)
    for reason in reasons:
        by_dataset.setdefault(reason.dataset_id, []).append(reason)
    since = due_repository.oldest_ready(session, dataset_ids=by_dataset.keys(), at=at)
    return [
        Queued(
            dataset_id=merged.dataset_id,
            model_ids=_models(session, merged, {reason.rule for reason in by_dataset[merged.dataset_id]}, at=at),
            due=[_reason(reason, since) for reason in by_dataset[merged.dataset_id]],
            urgent=merged.deadline is not None and merged.deadline <= at + BEFORE_THE_DEADLINE,
        )
        for merged in due_repository.ordered(session, reasons, at=at)
    ]


def _models(
    session: Session, due_dataset: DueDataset, rules: Collection[QueueRule | None], *, at: datetime.datetime
) -> list[str]:
    if QueueRule.REQUESTED in rules:
        return due_repository.models_to_serve(session, dataset_id=due_dataset.dataset_id, at=at, limit=_MAX_MODELS)
    dataset = session.get_one(Dataset, due_dataset.dataset_id)
    if due_dataset.test:
        models = (test.model_due(session, dataset_id=dataset.id) for test in kinds.asked_kinds().values())
        return [model.id for model in models if model is not None][:1]
    return [model.id for model, _ in due_repository.models_due(session, dataset=dataset, at=at)][:_MAX_MODELS]


def _reason(due_dataset: DueDataset, since: dict[str, datetime.datetime]) -> DueReason:
    assert due_dataset.rule is not None
    asked_at = due_dataset.learning - due_repository.LEARNING_MAY_WAIT if due_dataset.learning else None
    if due_dataset.rule is QueueRule.REQUESTED:
        asked_at = since.get(due_dataset.dataset_id)
    return DueReason(rule=due_dataset.rule, since=asked_at, first_due_at=due_dataset.deadline)
