"""The calculator: every theorem as a form, its value, and its curve along one of its numbers."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Query, Response

from app.api import bounds, problems
from app.dashboard import numbers, pages
from app.dashboard.request_context import RequestContext, TheContext
from app.dashboard.requests import checked
from lethe.contract.bounds import BoundIn, BoundOut, BoundParameterOut, SweepIn, SweepOut
from lethe.contract.problems import BoundUnknown, Problem

router = pages.new_router()

_POINTS = 80
_WIDE = 100
"""A plot whose numbers differ by more has a logarithmic scale."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """A theorem along one of its numbers. `refused`: why there is no number, and at how many points."""

    over: str
    output: str
    rows: list[list[float | None]]
    is_log: bool
    is_log_over: bool
    refused: list[tuple[str, int]]


@router.get("/calculator")
def list_bounds(context: TheContext, sought: Annotated[str, Query(max_length=100)] = "") -> Response:
    """Those whose name, title or reference has all words that are sought."""
    words = sought.lower().split()
    known = context.ask(bounds.list_bounds).items
    found = [one for one in known if all(word in f"{one.name} {one.title} {one.reference}".lower() for word in words)]
    return context.page("calculator/list.html", bounds=found, sought=sought, of=len(known))


@router.get("/calculator/{name}")
def show_bound(context: TheContext, name: str) -> Response:
    """A theorem with its form; evaluated as soon as its numbers are in the address, so that they can be passed on."""
    bound = next((one for one in context.ask(bounds.list_bounds).items if one.name == name), None)
    if bound is None:
        raise BoundUnknown("There is no such theorem in the calculator.")
    written = dict(context.request.query_params)
    is_asked = any(parameter.name in written for parameter in bound.parameters)
    params = _params(bound, written) if is_asked else {}
    over = written.get("plot-over", "") if is_asked else ""
    outputs, plot, error = None, None, None
    try:
        if over:
            plot = _plotted(context, bound, params, over=over, written=written)
        if is_asked and (not over or over in params):
            outputs = context.ask(bounds.evaluate_bound, name=name, body=BoundIn(params=params))
    except Problem as fault:
        error = fault
    return context.page(
        "calculator/one.html",
        status=problems.status_of(type(error)) if error else 200,
        bound=bound,
        numbers=[one.name for one in bound.parameters if one.kind in ("real", "integer")],
        paired=_paired,
        written=written,
        is_asked=is_asked,
        outputs=outputs,
        plot=plot,
        error=error,
    )


def _plotted(
    context: RequestContext, bound: BoundOut, params: dict[str, Any], *, over: str, written: Mapping[str, str]
) -> Plot:
    scale = "log" if written.get("plot-scale") == "log" else "linear"
    low, high = _ends(bound, params.get(over), over=over, written=written)
    body = checked(SweepIn, params=params, over=over, low=low, high=high, points=_POINTS, scale=scale)
    swept = context.ask(bounds.sweep_bound, name=bound.name, body=body)
    wanted = written.get("plot-output", "")
    output = wanted if wanted in bound.outputs else next(iter(bound.outputs))
    return _plot(swept, output=output, is_log_over=scale == "log")


def _plot(swept: SweepOut, *, output: str, is_log_over: bool) -> Plot:
    rows = [[point.value, _plottable((point.outputs or {}).get(output))] for point in swept.points]
    found = [value for _, value in rows if value is not None]
    refused: dict[str, int] = {}
    for point in swept.points:
        if point.refused:
            refused[point.refused.name] = refused.get(point.refused.name, 0) + 1
    return Plot(
        over=swept.over,
        output=output,
        rows=rows,
        is_log=bool(found) and min(found) > 0 and max(found) > _WIDE * min(found),
        is_log_over=is_log_over,
        refused=list(refused.items()),
    )


def _ends(bound: BoundOut, value: object, *, over: str, written: Mapping[str, str]) -> tuple[Any, Any]:
    """As they were written; a tenth and tenfold of the number that varies, as far as it goes, where they were not."""
    low, high = (numbers.read(written.get(f"plot-{end}", "").strip()) for end in ("low", "high"))
    if isinstance(value, int | float) and value > 0:
        most = next((one.high for one in bound.parameters if one.name == over), None)
        low = value / 10 if low == "" else low
        high = min(10 * value, most or math.inf) if high == "" else high
    return low, high


def _params(bound: BoundOut, written: Mapping[str, str]) -> dict[str, Any]:
    """The parameters in the form, as the API reads them. What cannot be read is sent as it is: the API says what it
    wants."""
    found = {}
    for parameter in bound.parameters:
        text = written.get(parameter.name, "").strip()
        if parameter.kind == "boolean":
            found[parameter.name] = text == "on"
        elif text:
            found[parameter.name] = _value(parameter, text)
    return found


def _value(parameter: BoundParameterOut, text: str) -> Any:
    match parameter.kind:
        case "real" | "integer":
            return numbers.read(text)
        case "reals" | "integers":
            return [numbers.read(item) for item in text.replace(",", " ").split()]
        case "words":
            return text.replace(",", " ").split()
        case "segments":
            return [[numbers.read(part) for part in item.split(":")] for item in text.replace(",", " ").split()]
        case _:
            return text


def _paired(names: Iterable[str]) -> list[tuple[str, str]]:
    """As options of a choice."""
    return [(name, name) for name in names]


def _plottable(value: object) -> float | None:
    """The value as a plot can show it."""
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
