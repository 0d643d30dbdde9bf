"""The backlog: which datasets are due, by which rule and since when, in the order in which workers take them."""

import datetime
from collections.abc import Collection
from dataclasses import dataclass

from sqlalchemy.orm import Session

from app.db.tables import Dataset
from app.deletion.deadlines import BEFORE_THE_DEADLINE
from app.unlearning import due_repository, tests_repository
from app.unlearning.turns import Due
from lethe.contract.sets import QueueRule

_MOST = 100
_MOST_MODELS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """A rule by which a dataset is due. `since`: None where a run did not come to its end. `first_due_at`: None where
    nobody waits for it who asked to be forgotten."""

    rule: QueueRule
    since: datetime.datetime | None
    first_due_at: datetime.datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Queued:
    """A dataset that a worker takes as soon as it is free, with the models that are to run."""

    dataset_id: str
    model_ids: list[str]
    due: list[Reason]
    urgent: bool


def backlog(session: Session, *, tenant_id: str, at: datetime.datetime) -> list[Queued]:
    """The datasets of a tenant that are due and on which nothing runs, at most 100 by each rule. The session is one of
    all tenants, as the workers' are."""
    by_dataset: dict[str, list[Due]] = {}
    found = due_repository.rules_due(session, tenant_id=tenant_id, at=at, limit=_MOST)
    for due in found:
        by_dataset.setdefault(due.dataset_id, []).append(due)
    since = due_repository.oldest_ready(session, dataset_ids=by_dataset.keys(), at=at)
    return [
        Queued(
            dataset_id=one.dataset_id,
            model_ids=_models(session, one, {due.rule for due in by_dataset[one.dataset_id]}, at=at),
            due=[_reason(due, since) for due in by_dataset[one.dataset_id]],
            urgent=one.deadline is not None and one.deadline <= at + BEFORE_THE_DEADLINE,
        )
        for one in due_repository.ordered(session, found, at=at)
    ]


def _models(session: Session, due: Due, rules: Collection[QueueRule | None], *, at: datetime.datetime) -> list[str]:
    if QueueRule.REQUESTED in rules:
        return due_repository.models_to_serve(session, dataset_id=due.dataset_id, at=at, limit=_MOST_MODELS)
    dataset = session.get_one(Dataset, due.dataset_id)
    if due.test:
        to_audit = tests_repository.model_to_audit(session, dataset_id=dataset.id)
        to_rehearse = tests_repository.rehearsal_to_make(session, dataset_id=dataset.id)
        return [to_audit.id] if to_audit else [to_rehearse.model_id] if to_rehearse else []
    return [model.id for model, _ in due_repository.models_due(session, dataset=dataset, at=at)][:_MOST_MODELS]


def _reason(due: Due, since: dict[str, datetime.datetime]) -> Reason:
    assert due.rule is not None
    asked_at = due.learning - due_repository.LEARNING_MAY_WAIT if due.learning else None
    if due.rule is QueueRule.REQUESTED:
        asked_at = since.get(due.dataset_id)
    return Reason(rule=due.rule, since=asked_at, first_due_at=due.deadline)
