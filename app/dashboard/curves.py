"""The curve of a model: what was left of anybody after every step of its life, drawn."""

import math
from dataclasses import dataclass
from typing import Any, Literal

from fastapi import Response

from app.api import curves, models
from app.api.calls import Cursor
from app.dashboard import pages
from app.dashboard.languages import gettext, marked
from app.dashboard.request_context import TheContext
from app.dashboard.wording import count, given, number
from lethe.contract.curves import PointOut, SegmentOut, TrajectoryOut
from lethe.contract.sets import RunKind

router = pages.new_router()

Axis = Literal["runs", "steps"]
_RUNS = 12
_POINTS = 60
_EPSILONS = (marked("unlearning"), marked("deletion"), marked("one more"), marked("adaptive"), marked("release"))
_INFLUENCES = (
    marked("of everybody forgotten"),
    marked("of one who stays"),
    marked("noise (standard deviation)"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """A curve as `curves.js` draws it, and as the table behind it says it: oldest run first."""

    segments: list[SegmentOut]
    epsilons: dict[str, Any]
    influences: dict[str, Any]


@router.get("/models/{model_id}/curve")
def show_curve(
    context: TheContext, model_id: str, axis: Axis = "runs", cursor: Cursor = None, known: int | None = None
) -> Response:
    """Erosion while it learns, a jump where people are forgotten, recuperation after. `known`: the version that a
    page has drawn already; it is told that nothing is new, which is soon found out."""
    model = context.ask(models.get_model, model_id=model_id)
    if known is not None and known == (model.live_version or 0):
        return Response(status_code=204)
    curve = context.ask(curves.get_trajectory, model_id=model_id, points=_POINTS, limit=_RUNS, cursor=cursor)
    return context.page(
        "models/curve.html", model=model, curve=curve, drawing=drawn(curve, axis), axis=axis, cursor=cursor
    )


def drawn(curve: TrajectoryOut, axis: Axis) -> Drawing:
    """Both plots of a curve.

    On the axis `runs` each run is as wide as any other and its steps are spaced by their logarithm: a run that forgets
    has a hundredth of the steps of one that learns, and bends early. On `steps` every step is as wide as any other.
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
        "columns": ["at", *map(gettext, _EPSILONS)],
        "rows": [[place, *_epsilons(point)] for place, _, point in places],
        "y": "ε",
        "height": 380,
        "level": {
            "y": curve.target.epsilon,
            "text": gettext("target ε {epsilon}").format(epsilon=given(curve.target.epsilon)),
        },
    }
    influences = shared | {
        "columns": ["at", *map(gettext, _INFLUENCES)],
        "rows": [[place, *_influences(point)] for place, _, point in places],
        "y": gettext("distance of the weights"),
        "height": 260,
        "level": None,
    }
    return Drawing(segments=segments, epsilons=epsilons, influences=influences)


def _place(segment: SegmentOut, index: int, step: int, axis: Axis) -> float:
    if axis == "steps":
        return segment.steps_before + step
    return index + math.log1p(step) / math.log1p(segment.steps) if segment.steps else float(index)


def _name(segment: SegmentOut, point: PointOut) -> str:
    return gettext("version {version}, step {step} of {steps}").format(
        version=segment.version, step=number(point.step), steps=number(segment.steps)
    )


def _marks(segment: SegmentOut, index: int, axis: Axis) -> list[dict[str, Any]]:
    """The marks on a curve: where people were forgotten, and where a version came out."""
    begins, ends = (_place(segment, index, step, axis) for step in (0, segment.steps))
    found: list[dict[str, Any]] = []
    if segment.records:
        found.append({"x": begins, "kind": "batch", "text": f"−{number(segment.records)}"})
    found.append({"x": ends, "kind": "release", "text": f"v{segment.version}"})
    return found


def _ticks(segments: list[SegmentOut]) -> list[list[Any]]:
    return [
        [index + 0.5, ", ".join((_short(segment), count(segment.steps, "step", "steps")))]
        for index, segment in enumerate(segments)
    ]


def _short(segment: SegmentOut) -> str:
    if segment.kind is RunKind.UNLEARN:
        return "−" + count(segment.records, "record", "records")
    return gettext("learned") if segment.kind is RunKind.LEARN else gettext("learned again")


def _epsilons(point: PointOut) -> list[float | None]:
    found = point.epsilon
    return _above_zero(found.unlearning, found.deletion, point.epsilon_of_one, found.adaptive, found.release)


def _influences(point: PointOut) -> list[float | None]:
    return _above_zero(point.influence, point.presence, math.sqrt(point.noise_variance))


def _above_zero(*values: float | None) -> list[float | None]:
    """The values that a logarithmic scale can show."""
    return [value if value and math.isfinite(value) else None for value in values]
