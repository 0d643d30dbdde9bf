"""Outlook of the first page: a calendar of what is due, and weeks of what came in and was completed; each number with
the list that it counts."""

import datetime
import urllib.parse
from collections.abc import Sequence
from dataclasses import dataclass

from app.dashboard import languages
from app.dashboard.languages import gettext
from app.dashboard.pages import ROOT
from app.dashboard.wording import number
from lethe.contract.decisions import CompletionOut, SummaryOut

_DAY = datetime.timedelta(days=1)
_SUNDAY = datetime.timedelta(days=6)
_PRESSING = 7
"""Days from today on whose numbers stand out, as those due soon do in lists by default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Day:
    """A cell of the calendar: `count` of `what` (due on, overdue) `when`; `path`: to the list of them; `tone`: bad or
    warn where there are some; `title`: the date in full."""

    count: int
    what: str
    when: str
    path: str
    title: str = ""
    tone: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """A week of one row: `height` from 0 to 100, of the tallest of both rows."""

    count: int
    when: str
    path: str
    height: float
    said: str
    title: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    days: Sequence[Day]
    received: Sequence[Bar]
    completed: Sequence[Bar]
    completion: CompletionOut
    time_zone: str


def of(summary: SummaryOut) -> Outlook:
    most = max((number for week in summary.weeks for number in (week.received, week.completed)), default=0)

    def bar(count: int, starts: datetime.date, name: str) -> Bar:
        ends = {f"{name}_from": starts, f"{name}_to": starts + _SUNDAY}
        said, title = _of_week(count, languages.short_day(starts), name)
        height = round(100 * count / (most or 1), 1)
        return Bar(
            count=count, when=languages.short_day(starts), path=_list(**ends), height=height, said=said, title=title
        )

    return Outlook(
        days=[*_days(summary)],
        received=[bar(week.received, week.starts, "received") for week in summary.weeks],
        completed=[bar(week.completed, week.starts, "completed") for week in summary.weeks],
        completion=summary.completion,
        time_zone=summary.time_zone,
    )


def _days(summary: SummaryOut) -> list[Day]:
    passed = {"due": "overdue", "order": "deadline"}
    overdue = Day(count=summary.overdue, what="", when=gettext("overdue"), path=_list(**passed), tone="bad")
    days = [
        Day(
            count=one.requests,
            what=gettext("due on") if place else gettext("due"),
            when=languages.short_day(one.day) if place else gettext("today"),
            path=_list(due_from=one.day, due_to=one.day, order="deadline"),
            title=languages.weekday(one.day),
            tone="warn" if place < _PRESSING else "",
        )
        for place, one in enumerate(summary.due)
    ]
    after = summary.due[-1].day + _DAY
    later = Day(
        count=summary.later, what=gettext("due"), when=gettext("later"), path=_list(due_from=after, order="deadline")
    )
    return [overdue, *days, later]


def _of_week(count: int, day: str, name: str) -> tuple[str, str]:
    """The number of a week, as it is read out and as it stands under the pointer."""
    if name == "received":
        said, title = gettext("{number} received in the week of {day}"), gettext("Week of {day}: {number} received")
        none = gettext("Week of {day}: none received")
    else:
        said, title = gettext("{number} completed in the week of {day}"), gettext("Week of {day}: {number} completed")
        none = gettext("Week of {day}: none completed")
    values = {"number": number(count), "day": day}
    return said.format(**values), (title if count else none).format(**values)


def _list(**query: datetime.date | str) -> str:
    return f"{ROOT}/requests?{urllib.parse.urlencode(query)}"
