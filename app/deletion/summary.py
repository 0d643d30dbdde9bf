"""Summary of a tenant's requests: how many are due on each of the next days, how many came in and were completed in
each of the last weeks, and how long that took. Days and weeks are those of the zone of the tenant's policy.

Each number is that of a list: `Sought` by the same bounds finds as many. A paused clock therefore counts on the day of
its deadline, and never as overdue.
"""

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from zoneinfo import ZoneInfo

from sqlalchemy.orm import Session

from app.deletion import deadlines, summary_repository
from app.deletion.views import View
from lethe.contract.decisions import DAYS, WEEKS

_DAY, _WEEK = datetime.timedelta(days=1), datetime.timedelta(days=7)


@dataclass(frozen=True, slots=True, kw_only=True)
class Week:
    """`starts`: on a Monday."""

    starts: datetime.date
    received: int
    completed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """`due`: by day; `took`: number of requests completed in these weeks, by the whole days that each took; `in_time`:
    number of them that were completed before their deadline."""

    overdue: int
    due: Mapping[datetime.date, int]
    later: int
    weeks: Sequence[Week]
    took: Mapping[int, int]
    in_time: int

    @property
    def completed(self) -> int:
        return sum(self.took.values())

    def days_of(self, percent: int) -> int | None:
        """The fewest whole days within which so many in a hundred were completed; None: there are none."""
        left = -(-self.completed * percent // 100)
        for days in sorted(self.took):
            left -= self.took[days]
            if left <= 0:
                return days
        return None


def of_requests(session: Session, *, view: View, zone: str) -> Summary:
    today = view.at.astimezone(ZoneInfo(zone)).date()
    days = [today + n * _DAY for n in range(DAYS)]
    monday = today - today.weekday() * _DAY
    weeks = [monday - n * _WEEK for n in reversed(range(WEEKS))]
    mornings = [deadlines.midnight(day, zone=zone) for day in (*days, today + DAYS * _DAY)]
    mondays = [deadlines.midnight(day, zone=zone) for day in (*weeks, monday + _WEEK)]
    due = summary_repository.due(session, mornings, view=view)
    on = {one.place: one.count for one in due}
    received = summary_repository.received(session, mondays)
    completed = summary_repository.completed(session, mondays, view=view)
    took = summary_repository.took(session, since=mondays[0], before=mondays[-1], view=view)
    return Summary(
        overdue=sum(one.overdue for one in due),
        due={day: on.get(n, 0) for n, day in enumerate(days, start=1)},
        later=on.get(len(mornings), 0),
        weeks=[
            Week(starts=day, received=new, completed=done)
            for day, new, done in zip(weeks, received, completed, strict=True)
        ],
        took={one.days: one.count for one in took},
        in_time=sum(one.in_time for one in took),
    )
