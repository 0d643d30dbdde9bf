"""Planner of retrainings: the fewest that meet every due date.

A request can be served by a retraining that starts when its rows are erased or later, and early enough before its due
date.
"""

import datetime
from collections.abc import Iterable
from dataclasses import dataclass

from app.features.systems.service import fewest

MARGIN = 2.0
"""Factor of the expected duration by which a retraining starts before a due date."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrainingWait:
    """Request waiting for a retraining. `ready_at` is the earliest time at which its rows can be absent."""

    request_id: str
    ready_at: datetime.datetime
    due_at: datetime.datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Retraining:
    """Planned retraining. `is_late`: True if it cannot end by `due_at`, the earliest due date of its requests."""

    start_by: datetime.datetime
    request_ids: list[str]
    due_at: datetime.datetime
    is_late: bool


def plan(
    waits: Iterable[RetrainingWait], *, at: datetime.datetime, expected_seconds: float, max_wait_seconds: float
) -> list[Retraining]:
    """Return the fewest retrainings that serve all `waits`, in order. No request waits longer than `max_wait_seconds`
    once it is ready, unless that is no longer possible."""
    duration = datetime.timedelta(seconds=expected_seconds)
    patience = datetime.timedelta(seconds=max_wait_seconds)

    def latest(wait: RetrainingWait) -> datetime.datetime:
        ends = min(wait.due_at - MARGIN * duration, wait.ready_at + patience)
        return max(ends, wait.ready_at, at)

    by_id = sorted(waits, key=lambda wait: wait.request_id)
    planned = []
    for start, served in fewest(by_id, opens=lambda wait: wait.ready_at, closes=latest):
        due_at = min(wait.due_at for wait in served)
        planned.append(
            Retraining(
                start_by=start,
                request_ids=[wait.request_id for wait in served],
                due_at=due_at,
                is_late=start + duration > due_at,
            )
        )
    return planned
