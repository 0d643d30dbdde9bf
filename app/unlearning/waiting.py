"""Requests that no run has claimed: how many people they concern per live version, and why they are waiting."""

import datetime
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy.orm import Session

from app.db import now, tables
from app.unlearning import turns, waiting_repository
from lethe.contract import problems, sets


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """Number of requests waiting for the same reason. `until` is the latest time at which the wait ends, if known."""

    reason: sets.WaitReason
    requests: int
    until: datetime.datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """People whom no guarantee covers yet, because their rows are not null. `reasons` starts with the most frequent."""

    people: int
    requests: int
    first_due_at: datetime.datetime | None
    reasons: tuple[Wait, ...]


NOBODY = Waiting(people=0, requests=0, first_due_at=None, reasons=())


def first_due(session: Session, models: Sequence[tables.Model]) -> dict[str, datetime.datetime]:
    """Map each model that has a live version and waiting requests to the earliest deadline of those requests. All
    models must belong to one tenant."""
    live = [model for model in models if model.live_version is not None]
    unclaimed = _unclaimed(session, live, at=now(session))
    return {model.id: unclaimed[model.dataset_id].first_due_at for model in live if model.dataset_id in unclaimed}


def for_models(session: Session, models: Sequence[tables.Model]) -> dict[str, Waiting]:
    """Map each model with a live version to its waiting requests. All models must belong to one tenant."""
    live = [model for model in models if model.live_version is not None]
    waiting = {model.id: NOBODY for model in live}
    at = now(session)
    by_dataset = _unclaimed(session, live, at=at)
    if not by_dataset:
        return waiting
    people = waiting_repository.people(session, tenant_id=live[0].tenant_id, dataset_ids=by_dataset.keys())
    busy = waiting_repository.datasets_with_a_run(session, dataset_ids=by_dataset.keys())
    datasets = waiting_repository.datasets(session, dataset_ids=by_dataset.keys())
    for model in live:
        if unclaimed := by_dataset.get(model.dataset_id):
            dataset = datasets[model.dataset_id]
            reason, until = _reason(dataset, model, unclaimed, is_busy=dataset.id in busy, at=at)
            ready = Wait(reason=reason, requests=unclaimed.ready, until=until)
            waiting[model.id] = _waiting(unclaimed, ready, people=people[dataset.id])
    return waiting


def _unclaimed(
    session: Session, live: Sequence[tables.Model], *, at: datetime.datetime
) -> dict[str, waiting_repository.Unclaimed]:
    if not live:
        return {}
    dataset_ids = {model.dataset_id for model in live}
    return waiting_repository.unclaimed(session, tenant_id=live[0].tenant_id, dataset_ids=dataset_ids, at=at)


def _waiting(unclaimed: waiting_repository.Unclaimed, ready: Wait, *, people: int) -> Waiting:
    in_grace = Wait(reason=sets.WaitReason.GRACE, requests=unclaimed.in_grace, until=unclaimed.grace_until)
    in_review = Wait(reason=sets.WaitReason.IN_REVIEW, requests=unclaimed.in_review, until=None)
    reasons = sorted((ready, in_grace, in_review), key=lambda wait: wait.requests, reverse=True)
    return Waiting(
        people=people,
        requests=sum(wait.requests for wait in reasons),
        first_due_at=unclaimed.first_due_at,
        reasons=tuple(wait for wait in reasons if wait.requests),
    )


def _reason(
    dataset: tables.Dataset,
    model: tables.Model,
    unclaimed: waiting_repository.Unclaimed,
    *,
    is_busy: bool,
    at: datetime.datetime,
) -> tuple[sets.WaitReason, datetime.datetime | None]:
    """Return the reason why no run claims the ready requests, and the time at which their wait ends, if known."""
    if dataset.damaged_at is not None:
        return sets.WaitReason.DAMAGED, None
    if model.error_code == problems.AdaptiveBudgetSpent.code:
        return sets.WaitReason.BUDGET_SPENT, None
    if is_busy:
        return sets.WaitReason.RUN_UNDER_WAY, None
    if later := [moment for moment in (dataset.not_before, model.not_before) if moment is not None and moment > at]:
        return sets.WaitReason.DELAYED, max(later)
    is_full = model.max_requests is not None and unclaimed.ready >= model.max_requests
    if unclaimed.oldest_at and unclaimed.first_ready_due_at and not is_full:
        ends = turns.batch_ends(
            model.max_wait_seconds, oldest_at=unclaimed.oldest_at, first_due_at=unclaimed.first_ready_due_at
        )
        if at < ends:
            return sets.WaitReason.BATCH, ends
    return sets.WaitReason.QUEUED, None
