"""Page about reasons for leaving: the estimated share of each reason, with its confidence interval."""

import datetime
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from fastapi import Response

from app.features.desk import languages, menu, rendering, rendering as pages, request_context, wording
from app.features.leaving import endpoints as leaving_reasons
from lethe.features.leaving.contract import ReasonOut, SurveyOut

router = pages.new_router()

Weeks = Literal["", "4", "13", "52"]
_WEEKS: list[tuple[Weeks, str]] = [
    ("", languages.marked("Ever")),
    ("4", languages.marked("4 weeks")),
    ("13", languages.marked("13 weeks")),
    ("52", languages.marked("52 weeks")),
]
_REASONS: Mapping[str, str] = {
    "privacy": languages.marked("Privacy"),
    "not_using": languages.marked("No longer uses it"),
    "cost": languages.marked("Cost"),
    "switched": languages.marked("Uses something else"),
    "other": languages.marked("Another reason"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasonBar:
    """Table row drawn as one bar of the plot. `low`, `mark` and `high` are positions from 0 to 100."""

    reason: str
    share: str
    between: str
    sent: int
    low: float
    mark: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasonChart:
    survey: SurveyOut
    bars: list[ReasonBar]


@router.get("/leaving-reasons")
def show_leaving_reasons(context: request_context.TheContext, weeks: Weeks = "") -> Response:
    """Show estimates from the answers of the last `weeks` weeks, or from all answers, largest survey first."""
    today = datetime.datetime.now(datetime.UTC).date()
    since = today - datetime.timedelta(weeks=int(weeks)) if weeks else None
    estimates = context.ask(leaving_reasons.get_leaving_reasons, since=since)
    ordered = sorted(estimates.surveys, key=lambda survey: -survey.num_answers)
    charts = [ReasonChart(survey=survey, bars=[_bar(reason) for reason in survey.reasons]) for survey in ordered]
    return context.page(
        "leaving_reasons.html",
        found=estimates,
        surveys=charts,
        weeks=weeks,
        choices=[(value, languages.gettext(label)) for value, label in _WEEKS],
    )


def _bar(reason: ReasonOut) -> ReasonBar:
    low, high = (f"{round_(100 * end)} %" for round_, end in ((math.floor, reason.low), (math.ceil, reason.high)))
    return ReasonBar(
        reason=languages.gettext(_REASONS[reason.reason])
        if reason.reason in _REASONS
        else wording.words(reason.reason),
        share=f"{round(100 * reason.share)} %".replace("-", "−"),
        between=languages.gettext("{low} to {high}").format(low=low, high=high),
        sent=reason.sent,
        low=100 * reason.low,
        mark=100 * min(1.0, max(0.0, reason.share)),
        high=100 * reason.high,
    )


PAGES = (router,)
MENU = (
    menu.MenuEntry(
        100,
        languages.marked("Leaving reasons"),
        f"{rendering.ROOT}/leaving-reasons",
        leaving_reasons.get_leaving_reasons,
    ),
)
