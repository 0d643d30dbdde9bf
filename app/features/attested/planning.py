"""Plan of retrainings: the fewest that meet all deadlines."""

import datetime
from collections.abc import Iterable
from dataclasses import dataclass

from app.features.systems.retrainings import fewest


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitInterval:
    """Wait for a retraining that reads its rows at `asked_at` or later, and at `latest_at` or earlier."""

    asked_at: datetime.datetime
    latest_at: datetime.datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRetraining:
    """Retraining that reads its rows by `latest_at` and serves `num_waiting` waits. `late`: True if it cannot be in
    time for one of them."""

    latest_at: datetime.datetime
    late: bool
    num_waiting: int


def plan(waits: Iterable[WaitInterval], *, at: datetime.datetime) -> list[PlannedRetraining]:
    """Return the fewest retrainings after `at` such that each wait has one within its interval, in order. A wait whose
    latest time has passed, or comes before it was asked, is served at its earliest time, late."""
    planned = fewest(
        waits, opens=lambda wait: max(wait.asked_at, at), closes=lambda wait: max(wait.latest_at, wait.asked_at, at)
    )
    return [
        PlannedRetraining(latest_at=end, late=any(wait.latest_at < end for wait in served), num_waiting=len(served))
        for end, served in planned
    ]
