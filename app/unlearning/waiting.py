"""Requests that no run has taken up: how many people a live version carries like everybody else, and why they wait."""

import datetime
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sqlalchemy.orm import Session

from app.db import now
from app.db.tables import Dataset, Model
from app.unlearning import turns, waiting_repository
from app.unlearning.waiting_repository import Unclaimed
from lethe.contract.problems import AdaptiveBudgetSpent
from lethe.contract.sets import WaitReason


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """Requests that wait for the same reason. `until`: when that ends at the latest, if that is known."""

    reason: WaitReason
    requests: int
    until: datetime.datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """The people of whom no guarantee says anything: their rows are in place. `reasons`: the most first."""

    people: int
    requests: int
    first_due_at: datetime.datetime | None
    reasons: tuple[Wait, ...]


NOBODY = Waiting(people=0, requests=0, first_due_at=None, reasons=())


def first_due(session: Session, models: Sequence[Model]) -> dict[str, datetime.datetime]:
    """By the id of each of these models of one tenant that has a live version for which anybody waits: the first
    deadline of those who do."""
    live = [model for model in models if model.live_version is not None]
    found = _unclaimed(session, live, at=now(session))
    return {model.id: found[model.dataset_id].first_due_at for model in live if model.dataset_id in found}


def for_models(session: Session, models: Sequence[Model]) -> dict[str, Waiting]:
    """By the id of each of these models of one tenant that has a live version: who waits for it."""
    live = [model for model in models if model.live_version is not None]
    waiting = {model.id: NOBODY for model in live}
    at = now(session)
    found = _unclaimed(session, live, at=at)
    if not found:
        return waiting
    people = waiting_repository.people(session, tenant_id=live[0].tenant_id, dataset_ids=found.keys())
    busy = waiting_repository.datasets_with_a_run(session, dataset_ids=found.keys())
    datasets = waiting_repository.datasets(session, dataset_ids=found.keys())
    for model in live:
        if of_it := found.get(model.dataset_id):
            dataset = datasets[model.dataset_id]
            reason, until = _reason(dataset, model, of_it, is_busy=dataset.id in busy, at=at)
            ready = Wait(reason=reason, requests=of_it.ready, until=until)
            waiting[model.id] = _waiting(of_it, ready, people=people[dataset.id])
    return waiting


def _unclaimed(session: Session, live: Sequence[Model], *, at: datetime.datetime) -> dict[str, Unclaimed]:
    if not live:
        return {}
    dataset_ids = {model.dataset_id for model in live}
    return waiting_repository.unclaimed(session, tenant_id=live[0].tenant_id, dataset_ids=dataset_ids, at=at)


def _waiting(found: Unclaimed, ready: Wait, *, people: int) -> Waiting:
    in_grace = Wait(reason=WaitReason.GRACE, requests=found.in_grace, until=found.grace_until)
    in_review = Wait(reason=WaitReason.IN_REVIEW, requests=found.in_review, until=None)
    reasons = sorted((ready, in_grace, in_review), key=lambda one: one.requests, reverse=True)
    return Waiting(
        people=people,
        requests=sum(one.requests for one in reasons),
        first_due_at=found.first_due_at,
        reasons=tuple(one for one in reasons if one.requests),
    )


def _reason(
    dataset: Dataset, model: Model, found: Unclaimed, *, is_busy: bool, at: datetime.datetime
) -> tuple[WaitReason, datetime.datetime | None]:
    """Return why no run takes up requests that a worker may take, and until when, if that is known."""
    if dataset.damaged_at is not None:
        return WaitReason.DAMAGED, None
    if model.error_code == AdaptiveBudgetSpent.code:
        return WaitReason.BUDGET_SPENT, None
    if is_busy:
        return WaitReason.RUN_UNDER_WAY, None
    if later := max(_later(dataset, model, at=at), default=None):
        return WaitReason.DELAYED, later
    is_full = model.max_requests is not None and found.ready >= model.max_requests
    if found.oldest_at and found.first_ready_due_at and not is_full:
        ends = turns.batch_ends(
            model.max_wait_seconds, oldest_at=found.oldest_at, first_due_at=found.first_ready_due_at
        )
        if at < ends:
            return WaitReason.BATCH, ends
    return WaitReason.QUEUED, None


def _later(dataset: Dataset, model: Model, *, at: datetime.datetime) -> Iterator[datetime.datetime]:
    yield from (moment for moment in (dataset.not_before, model.not_before) if moment is not None and moment > at)
