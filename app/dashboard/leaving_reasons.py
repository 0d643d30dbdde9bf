"""Reasons for leaving: the share of those who answered that has each reason, and how sure that is."""

import datetime
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from fastapi import Response

from app.api import leaving_reasons
from app.dashboard import pages
from app.dashboard.languages import gettext, marked
from app.dashboard.request_context import TheContext
from app.dashboard.wording import words
from lethe.contract.leaving_reasons import ReasonOut, SurveyOut

router = pages.new_router()

Weeks = Literal["", "4", "13", "52"]
_WEEKS: list[tuple[Weeks, str]] = [
    ("", marked("Ever")),
    ("4", marked("4 weeks")),
    ("13", marked("13 weeks")),
    ("52", marked("52 weeks")),
]
_REASONS: Mapping[str, str] = {
    "privacy": marked("Privacy"),
    "not_using": marked("Does not use it any more"),
    "cost": marked("Cost"),
    "switched": marked("Uses something else"),
    "other": marked("Another reason"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """A line of the plot, which is a table. `low`, `mark`, `high`: places on the way from 0 to 100."""

    reason: str
    share: str
    between: str
    sent: int
    low: float
    mark: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    survey: SurveyOut
    bars: list[Bar]


@router.get("/leaving-reasons")
def show_leaving_reasons(context: TheContext, weeks: Weeks = "") -> Response:
    """Estimates with error bars, by what clients sent in the last weeks or ever; those of most answers first."""
    today = datetime.datetime.now(datetime.UTC).date()
    since = today - datetime.timedelta(weeks=int(weeks)) if weeks else None
    found = context.ask(leaving_reasons.get_leaving_reasons, since=since)
    ordered = sorted(found.surveys, key=lambda one: -one.num_answers)
    surveys = [Shown(survey=one, bars=[_bar(reason) for reason in one.reasons]) for one in ordered]
    return context.page(
        "leaving_reasons.html",
        found=found,
        surveys=surveys,
        weeks=weeks,
        choices=[(value, gettext(said)) for value, said in _WEEKS],
    )


def _bar(one: ReasonOut) -> Bar:
    low, high = (f"{round_(100 * end)} %" for round_, end in ((math.floor, one.low), (math.ceil, one.high)))
    return Bar(
        reason=gettext(_REASONS[one.reason]) if one.reason in _REASONS else words(one.reason),
        share=f"{round(100 * one.share)} %".replace("-", "−"),
        between=gettext("{low} to {high}").format(low=low, high=high),
        sent=one.sent,
        low=100 * one.low,
        mark=100 * min(1.0, max(0.0, one.share)),
        high=100 * one.high,
    )
