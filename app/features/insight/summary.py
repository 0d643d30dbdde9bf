"""Summary of a tenant's requests: due dates in the coming days, and submissions, completions and durations of recent
weeks, in the time zone of the tenant's policy.

Each number equals the length of a list: `Sought` with the same bounds finds as many requests. Each open request is
counted once: as overdue, as paused, or on the day on which its deadline falls.
"""

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy.orm import Session

from app.deletion import deadlines, views
from app.features.insight import repository
from lethe.features.insight.contract import DAYS, WEEKS

_DAY, _WEEK = datetime.timedelta(days=1), datetime.timedelta(days=7)


@dataclass(frozen=True, slots=True, kw_only=True)
class Week:
    """Numbers of requests received and completed in the week starting on Monday `starts`."""

    starts: datetime.date
    received: int
    completed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Summary of requests. `due` counts open requests by due date, and `later` counts those due after the last of these
    dates; neither includes overdue or paused requests. `took` counts the requests completed in `weeks` by duration in
    whole days, and `in_time` those completed before their deadline."""

    overdue: int
    paused: int
    due: Mapping[datetime.date, int]
    later: int
    weeks: Sequence[Week]
    took: Mapping[int, int]
    in_time: int

    @property
    def completed(self) -> int:
        return sum(self.took.values())

    def days_of(self, percent: int) -> int | None:
        """Return a percentile of the requests' duration in whole days; None if no request was completed."""
        remaining = -(-self.completed * percent // 100)
        for days in sorted(self.took):
            remaining -= self.took[days]
            if remaining <= 0:
                return days
        return None


def of_requests(session: Session, *, view: views.View, zone: str) -> Summary:
    today = view.at.astimezone(deadlines.zone_named(zone)).date()
    days = [today + n * _DAY for n in range(DAYS)]
    monday = today - today.weekday() * _DAY
    weeks = [monday - n * _WEEK for n in reversed(range(WEEKS))]
    mornings = [deadlines.midnight(day, zone=zone) for day in (*days, today + DAYS * _DAY)]
    mondays = [deadlines.midnight(day, zone=zone) for day in (*weeks, monday + _WEEK)]
    due_counts = repository.count_due(session, mornings, view=view)
    counts = {place: running for place, running, _, _ in due_counts}
    received = repository.count_received(session, mondays)
    completed = repository.count_completed(session, mondays, view=view)
    took = repository.count_durations(session, since=mondays[0], before=mondays[-1], view=view)
    return Summary(
        overdue=sum(overdue for _, _, overdue, _ in due_counts),
        paused=sum(paused for _, _, _, paused in due_counts),
        due={day: counts.get(n, 0) for n, day in enumerate(days, start=1)},
        later=counts.get(len(mornings), 0),
        weeks=[
            Week(starts=day, received=new, completed=done)
            for day, new, done in zip(weeks, received, completed, strict=True)
        ],
        took={days: count for days, (count, _) in took.items()},
        in_time=sum(in_time for _, in_time in took.values()),
    )
