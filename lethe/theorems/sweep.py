"""A bound over a grid of one of its parameters, for plots: outputs at each point, or why there are none."""

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from lethe.proof.errors import DomainError, InfeasibleError, NotionError, PreconditionError, PrivacyError, WorkExceeded
from lethe.theorems.bound import Bound, Outputs, Parameter

Scale = Literal["linear", "log"]
MOST_POINTS = 200
_SECONDS = 5.0
"""Time limit of one sweep: a bound may sum a million steps one by one, and nobody waits minutes for a plot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """The reason why there is no number: the precondition that fails (or domain, notion, infeasible, time, work) and
    what was expected."""

    name: str
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Swept:
    """One point: either `outputs` or `refused`."""

    value: float
    outputs: Outputs | None
    refused: Refusal | None


def grid(*, low: float, high: float, points: int, scale: Scale, whole: bool) -> list[float]:
    """At most `points` numbers from `low` to `high`, both among them; `whole` ones without repetition.

    Raises `DomainError`.

    >>> grid(low=1.0, high=1000.0, points=4, scale="log", whole=True)
    [1.0, 10.0, 100.0, 1000.0]
    """
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise DomainError(f"Expected low={low} < high={high}, both finite")
    if not 2 <= points <= MOST_POINTS:
        raise DomainError(f"Expected 2 <= points={points} <= {MOST_POINTS}")
    if scale == "log" and low <= 0:
        raise DomainError(f"Expected low={low} > 0 on a logarithmic scale")
    if not math.isfinite(high - low):
        raise DomainError(f"Expected high={high} - low={low} to fit a float")
    spaced = np.geomspace(low, high, points) if scale == "log" else np.linspace(low, high, points)
    found: list[float] = (np.unique(spaced.round()) if whole else spaced).tolist()
    return found


def sweep(
    bound: Bound, params: Mapping[str, object], *, over: str, low: float, high: float, points: int, scale: Scale
) -> list[Swept]:
    """`bound` at `params` with the parameter `over` at each point of the grid; what is refused is refused there alone.

    Raises `DomainError` if the grid is none, or `over` no real or integer parameter of the bound.
    """
    parameter = _swept(bound, over)
    ends = time.monotonic() + _SECONDS
    found = []
    for value in grid(low=low, high=high, points=points, scale=scale, whole=parameter.kind == "integer"):
        if time.monotonic() > ends:
            late = Refusal(name="time", detail=f"Expected the points before this one to take at most {_SECONDS:g} s")
            found.append(Swept(value=value, outputs=None, refused=late))
            continue
        try:
            found.append(Swept(value=value, outputs=bound.evaluate({**params, over: value}), refused=None))
        except PrivacyError as error:
            found.append(Swept(value=value, outputs=None, refused=refusal(error)))
    return found


def refusal(error: PrivacyError) -> Refusal:
    """Return the error that was raised, as data."""
    match error:
        case PreconditionError():
            return Refusal(name=error.name, detail=error.detail)
        case InfeasibleError():
            return Refusal(name="infeasible", detail=str(error))
        case WorkExceeded():
            return Refusal(name="work", detail=str(error))
        case NotionError():
            return Refusal(name="notion", detail=str(error))
        case _:
            return Refusal(name="domain", detail=str(error))


def _swept(bound: Bound, over: str) -> Parameter:
    for parameter in bound.parameters:
        if parameter.name == over and parameter.kind in ("real", "integer"):
            return parameter
    numbers = ", ".join(p.name for p in bound.parameters if p.kind in ("real", "integer"))
    raise DomainError(f"Expected over={over!r} to be a number that {bound.name} asks for: {numbers}")
