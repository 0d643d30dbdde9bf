"""Pages with a model's curve, plan and forecasts, and the outlook on the overview page."""

import datetime
import math
import urllib.parse
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from fastapi import Response

from app.api import calls, models, problems
from app.features.desk import forms, languages, rendering as pages, request_context
from app.features.desk.languages import gettext, marked
from app.features.desk.wording import count, given, number
from app.features.insight import endpoints
from lethe.contract.models import ModelIn, ModelOut
from lethe.contract.problems import ModelNotLive, NotFound, Problem
from lethe.contract.sets import RunKind
from lethe.features.insight import contract

router = pages.new_router()

Axis = Literal["runs", "steps"]
_RUNS = 12
_POINTS = 60
_EPSILONS = (marked("unlearning"), marked("deletion"), marked("one more"), marked("adaptive"), marked("release"))
_INFLUENCES = (marked("of all forgotten people"), marked("of one who stays"), marked("noise (standard deviation)"))


@dataclass(frozen=True, slots=True, kw_only=True)
class CurvePlot:
    """Curve as data for `curves.js`, and as rows for the table behind the plot, oldest run first."""

    segments: list[contract.SegmentOut]
    epsilons: dict[str, Any]
    influences: dict[str, Any]


@router.get("/models/{model_id}/curve")
def show_curve(
    context: request_context.TheContext,
    model_id: str,
    axis: Axis = "runs",
    cursor: calls.Cursor = None,
    known: int | None = None,
) -> Response:
    """Plot epsilon and influence over a model's runs.

    `known` is the number of the live version that an open page has already drawn. If that version is still live, the
    response is an empty 204, which avoids reading the ledger.
    """
    model = context.ask(models.get_model, model_id=model_id)
    if known is not None and known == (model.live_version or 0):
        return Response(status_code=204)
    curve = context.ask(endpoints.get_trajectory, model_id=model_id, points=_POINTS, limit=_RUNS, cursor=cursor)
    return context.page(
        "models/curve.html", model=model, curve=curve, drawing=curve_plot(curve, axis), axis=axis, cursor=cursor
    )


def curve_plot(curve: contract.TrajectoryOut, axis: Axis) -> CurvePlot:
    """Return a curve's two plots, of epsilon and of influence.

    On the axis `runs`, all runs have the same width, and each run's steps are spaced logarithmically, because a run
    that forgets has a hundredth as many steps as a training run, and its curve bends early. On the axis `steps`, all
    steps have the same width.
    """
    segments = curve.items[::-1]
    places = [(_place(segment, index, point.step, axis), segment, point) for index, segment in enumerate(segments)
              for point in segment.points]  # fmt: skip
    shared = {
        "x": gettext("steps since the model began") if axis == "steps" else "",
        "names": [_name(segment, point) for _, segment, point in places],
        "marks": [mark for index, segment in enumerate(segments) for mark in _marks(segment, index, axis)],
        "ticks": _ticks(segments) if axis == "runs" else None,
        "log": True,
        "gaps": True,
    }
    epsilons = shared | {
        "columns": [gettext("step"), *map(gettext, _EPSILONS)],
        "rows": [[place, *_epsilons(point)] for place, _, point in places],
        "y": "ε",
        "height": 380,
        "level": {
            "y": curve.target.epsilon,
            "text": gettext("target ε {epsilon}").format(epsilon=given(curve.target.epsilon)),
        },
    }
    influences = shared | {
        "columns": [gettext("step"), *map(gettext, _INFLUENCES)],
        "rows": [[place, *_influences(point)] for place, _, point in places],
        "y": gettext("distance of the weights"),
        "height": 260,
        "level": None,
    }
    return CurvePlot(segments=segments, epsilons=epsilons, influences=influences)


def _place(segment: contract.SegmentOut, index: int, step: int, axis: Axis) -> float:
    if axis == "steps":
        return segment.steps_before + step
    return index + math.log1p(step) / math.log1p(segment.steps) if segment.steps else float(index)


def _name(segment: contract.SegmentOut, point: contract.PointOut) -> str:
    return gettext("version {version}, step {step} of {steps}").format(
        version=segment.version, step=number(point.step), steps=number(segment.steps)
    )


def _marks(segment: contract.SegmentOut, index: int, axis: Axis) -> list[dict[str, Any]]:
    """Return a run's marks: the records forgotten at its start, and the version published at its end."""
    begin, end = (_place(segment, index, step, axis) for step in (0, segment.steps))
    batch = [{"x": begin, "kind": "batch", "text": f"−{number(segment.records)}"}] if segment.records else []
    return [*batch, {"x": end, "kind": "release", "text": f"v{segment.version}"}]


def _ticks(segments: list[contract.SegmentOut]) -> list[list[Any]]:
    return [
        [index + 0.5, ", ".join((_short(segment), count(segment.steps, "step", "steps")))]
        for index, segment in enumerate(segments)
    ]


def _short(segment: contract.SegmentOut) -> str:
    if segment.kind is RunKind.UNLEARN:
        return "−" + count(segment.records, "record", "records")
    return gettext("learned") if segment.kind is RunKind.LEARN else gettext("learned again")


def _epsilons(point: contract.PointOut) -> list[float | None]:
    epsilon = point.epsilon
    return _above_zero(epsilon.unlearning, epsilon.deletion, point.epsilon_of_one, epsilon.adaptive, epsilon.release)


def _influences(point: contract.PointOut) -> list[float | None]:
    return _above_zero(point.influence, point.presence, math.sqrt(point.noise_variance))


def _above_zero(*values: float | None) -> list[float | None]:
    """Replace values that a logarithmic scale cannot show with None."""
    return [value if value and math.isfinite(value) else None for value in values]


Rows = list[list[float | None]]
_SERIES = {
    1: (marked("to learn"), marked("to forget one")),
    3: (
        marked("to learn"),
        marked("to forget one, a quarter of l2"),
        marked("to forget one, l2 as by default"),
        marked("to forget one, four times l2"),
    ),
}
"""Names of the curves, by the number of l2 values in a plan."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanPlot:
    """Plan in the format that `macros.html` plots.

    `reached`: metric by epsilon for all live versions. `versions`: metric by version number for one model. `lived`:
    that model's versions, newest first. `others`: live versions of other models.
    """

    columns: list[str]
    costs: Rows
    metric: str
    reached: Rows
    versions: Rows
    lived: list[contract.MeasuredVersionOut]
    others: list[contract.MeasuredVersionOut]


@router.get("/models/{model_id}/plan")
def show_plan(context: request_context.TheContext, model_id: str) -> Response:
    """Plot the cost of different targets on a model's rows, and the metrics that its versions have reached."""
    model = context.ask(models.get_model, model_id=model_id)
    plan = _plan(context, model, loss_width=model.mechanism.loss_width, l2=None)
    return context.page("models/plan.html", model=model, drawing=plan_plot(plan, model))


def plan_of_new(context: request_context.RequestContext, body: ModelIn) -> PlanPlot | None:
    """Return the plan for a model that has not been created yet; None if the caller may not read plans."""
    if not context.may(endpoints.get_plan):
        return None
    return plan_plot(_plan(context, body, loss_width=body.loss_width, l2=body.l2))


def _plan(
    context: request_context.RequestContext, model: ModelIn | ModelOut, *, loss_width: float | None, l2: float | None
) -> contract.PlanOut:
    plan: contract.PlanOut = context.ask(
        endpoints.get_plan,
        dataset_id=model.dataset_id,
        objective=model.objective,
        loss_width=loss_width,
        metric=model.quality.metric if model.quality else None,
        l2=l2,
    )
    return plan


def plan_plot(plan: contract.PlanOut, model: ModelOut | None = None) -> PlanPlot:
    """Return a plan's curves: passes by epsilon, and the metric measured for each version."""
    epsilons = sorted({cost.epsilon for cost in plan.costs})
    at = {epsilon: [cost for cost in plan.costs if cost.epsilon == epsilon] for epsilon in epsilons}
    width = len(at[epsilons[0]])
    lived = [version for version in plan.measured if model and version.model_id == model.id]
    live = sorted((version for version in plan.measured if version.live), key=lambda version: version.epsilon)
    return PlanPlot(
        columns=["ε", *map(gettext, _SERIES[width])],
        costs=[
            [epsilon, costs[width // 2].learn_passes, *(cost.request_passes for cost in costs)]
            for epsilon, costs in at.items()
        ],
        metric=plan.measured[0].metric if plan.measured else "",
        reached=[[version.epsilon, version.value] for version in live],
        versions=[[version.version, version.value] for version in reversed(lived)],
        lived=lived,
        others=[version for version in live if version not in lived],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIfSettings:
    """Values of the sliders on the what-if form."""

    records: int
    epsilon: float
    batch: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIfResult:
    """Forecast for the sliders' values. `preview` is None if and only if the API refused it with `error`."""

    ask: WhatIfSettings
    preview: contract.PreviewOut | None
    error: Problem | None


@router.get("/models/{model_id}/what-if")
def show_what_if(
    context: request_context.TheContext,
    model_id: str,
    records: forms.OptionalCount = None,
    epsilon: forms.OptionalPositive = None,
    batch: forms.OptionalCount = None,
) -> Response:
    """Show the forecast for the sliders' values."""
    model = context.ask(models.get_model, model_id=model_id)
    ask = WhatIfSettings(records=records or 1, epsilon=epsilon or model.target.epsilon, batch=batch)
    answer = _what_if(context, model, ask)
    status = problems.status_of(type(answer.error)) if answer.error else 200
    return context.page("models/what_if.html", status=status, model=model, answer=answer)


def first_what_if(context: request_context.RequestContext, model: ModelOut) -> WhatIfResult | None:
    """Return the forecast for one more record; None if the caller may not see it or there is no live version."""
    if model.live_version is None or not context.may(endpoints.preview):
        return None
    answer = _what_if(context, model, WhatIfSettings(records=1, epsilon=model.target.epsilon, batch=None))
    return None if isinstance(answer.error, ModelNotLive) else answer


def _what_if(context: request_context.RequestContext, model: ModelOut, ask: WhatIfSettings) -> WhatIfResult:
    body = contract.PreviewIn(model_id=model.id, num_records=ask.records, epsilon=ask.epsilon, batch=ask.batch)
    try:
        preview = context.ask(endpoints.preview, body=body)
    except NotFound:
        raise
    except Problem as error:
        return WhatIfResult(ask=ask, preview=None, error=error)
    return WhatIfResult(ask=ask, preview=preview, error=None)


_DAY = datetime.timedelta(days=1)
_SUNDAY = datetime.timedelta(days=6)
_PRESSING = 7
"""Number of days highlighted, starting today; equal to the default for lists of requests that are due soon."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Day:
    """Calendar cell: the number of requests on a day, with a link to their list.

    `label`: text that screen readers read before `when`. `title`: full date. `tone`: "bad", "warn" or "".
    """

    count: int
    label: str
    when: str
    path: str
    title: str = ""
    tone: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class WeekBar:
    """Bar for one week. `height`: percentage of the highest bar's height. `label`: text for screen readers."""

    count: int
    when: str
    path: str
    height: float
    label: str
    title: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WeeklyOutlook:
    days: Sequence[Day]
    received: Sequence[WeekBar]
    completed: Sequence[WeekBar]
    completion: contract.CompletionOut
    time_zone: str


def weekly_outlook(summary: contract.SummaryOut) -> WeeklyOutlook:
    maximum = max((total for week in summary.weeks for total in (week.received, week.completed)), default=0)

    def bar(total: int, starts: datetime.date, name: str) -> WeekBar:
        ends = {f"{name}_from": starts, f"{name}_to": starts + _SUNDAY}
        when = languages.short_day(starts)
        label, title = _week_texts(total, when, name)
        height = round(100 * total / (maximum or 1), 1)
        return WeekBar(count=total, when=when, path=_requests_path(**ends), height=height, label=label, title=title)

    return WeeklyOutlook(
        days=[*_days(summary)],
        received=[bar(week.received, week.starts, "received") for week in summary.weeks],
        completed=[bar(week.completed, week.starts, "completed") for week in summary.weeks],
        completion=summary.completion,
        time_zone=summary.time_zone,
    )


def _days(summary: contract.SummaryOut) -> list[Day]:
    path = _requests_path(due="overdue", order="deadline")
    overdue = Day(count=summary.overdue, label="", when=gettext("overdue"), path=path, tone="bad")
    path = _requests_path(due="paused", order="deadline")
    paused = Day(count=summary.paused, label="", when=gettext("paused"), path=path)
    days = [
        Day(
            count=day.requests,
            label=gettext("due on") if place else gettext("due"),
            when=languages.short_day(day.day) if place else gettext("today"),
            path=_requests_path(due="running", due_from=day.day, due_to=day.day, order="deadline"),
            title=languages.weekday(day.day),
            tone="warn" if place < _PRESSING else "",
        )
        for place, day in enumerate(summary.due)
    ]
    after = summary.due[-1].day + _DAY
    later = Day(
        count=summary.later,
        label=gettext("due"),
        when=gettext("later"),
        path=_requests_path(due="running", due_from=after, order="deadline"),
    )
    return [overdue, *days, later, paused]


def _week_texts(total: int, day: str, name: str) -> tuple[str, str]:
    """Return the screen-reader text for a week's count, and the tooltip."""
    if name == "received":
        label, title = gettext("{number} received in the week of {day}"), gettext("Week of {day}: {number} received")
        none = gettext("Week of {day}: none received")
    else:
        label, title = gettext("{number} completed in the week of {day}"), gettext("Week of {day}: {number} completed")
        none = gettext("Week of {day}: none completed")
    values = {"number": number(total), "day": day}
    return label.format(**values), (title if total else none).format(**values)


def _requests_path(**query: datetime.date | str) -> str:
    return f"{pages.ROOT}/requests?{urllib.parse.urlencode(query)}"


PAGES = (router,)
