"""Planner of retrainings: the smallest number of retrainings that meets every due date.

A retraining can serve a request if it starts after the request's rows have been erased, and early enough before the due
date.
"""

import datetime
from collections.abc import Iterable
from dataclasses import dataclass

from app.features.systems.service import fewest

MARGIN = 2.0
"""Lead of a retraining before a due date, as a multiple of its expected duration."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrainingWait:
    """Request waiting for a retraining. `ready_at` is the earliest time at which the request's rows can be absent."""

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
    """Return the shortest sequence of retrainings that serves all `waits`. No request waits longer than
    `max_wait_seconds` once it is ready, unless that is no longer possible."""
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
