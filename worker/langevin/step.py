"""Step of the chain: a gradient step with noise, projected onto the ball. No other file touches pre-noise state."""

import math
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor, linalg

from worker.langevin.noise import Noise

_INSIDE = 1 - 1e-9
"""Fraction of the squared radius below which a point is certainly inside. Nearer the sphere, its norm is computed."""


class Rows(Protocol):
    """A run's rows, on any device."""

    def gradient(self, parameters: Tensor, block: slice = slice(None)) -> Tensor:
        """Return the sum of the loss gradients over the rows `block`  # (1, d) or (C, d) float64"""


def no_lanes() -> Tensor:
    return torch.zeros(0, dtype=torch.float64)


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """State from which the next step is taken. `lanes` are canary-test coordinates that no row touches."""

    parameters: Tensor  # (1, d) or (C, d) float64
    steps_done: int
    lanes: Tensor = field(default_factory=no_lanes)  # (p,) float64


def projected_noisy_step(
    noise: Noise,
    state: State,
    *,
    rows: Rows,
    block: slice = slice(None),
    num_slots: int,
    l2: float,
    step_size: float,
    noise_scale: float,
    radius: float,
    grid: float = 0.0,
    push: Tensor | None = None,
) -> State:
    """Take the step x <- Proj_R( x - step_size * grad f(x) + N(0, nu^2 I) ) with nu^2 = 2 * step_size * noise_scale^2,
    f(x) = (1 / num_slots) * sum of the losses of the records `block` + (l2 / 2) * ||x||^2.

    With `grid` > 0, the point that is projected is a multiple of `grid`: the mean rounded to the grid plus an exact
    normal number rounded to the grid (`docs/mathematics/grid.md`).

    Lanes are coordinates like the others, with two differences: `push` (p,) takes the place of the data's contribution,
    and they are not projected (the product of the parameters' ball and R^p is also convex).

    `state` is not changed, and intermediate values are overwritten. Raises FloatingPointError, without quoting a value,
    if the result is not finite.
    """
    size, lanes = state.parameters.numel(), state.lanes.numel()
    noise_std, keep = math.sqrt(2 * step_size) * noise_scale, 1 - step_size * l2
    gradient = rows.gradient(state.parameters, block)
    if grid:
        normals = noise.rounded_normal(size + lanes, noise_std / grid)
        point = torch.cat((state.parameters.reshape(-1), state.lanes)).mul_(keep)
    else:
        normals = noise.normal(size + lanes)
        point = normals.mul(noise_std)
        point[:size].add_(state.parameters.reshape(-1), alpha=keep)
        point[size:].add_(state.lanes, alpha=keep)
    point[:size].sub_(gradient.reshape(-1), alpha=step_size / num_slots)
    if push is not None and lanes:
        point[size:].add_(push)
    if grid:
        point.div_(grid).round_().add_(normals).mul_(grid)
    # With the noise, a reader of this memory could subtract it from the published iterate.
    for used in (gradient, normals):
        used.zero_()
    parameters = point[:size].view_as(state.parameters)
    try:
        project_onto_ball(parameters, radius)
    except FloatingPointError:
        point.zero_()
        raise
    return State(parameters=parameters, steps_done=state.steps_done + 1, lanes=point[size:])


def project_onto_ball(point: Tensor, radius: float) -> Tensor:
    """Move `point` to the nearest point of the ball of `radius` around 0, and return it. A point inside the ball is
    left bitwise unchanged. Raises FloatingPointError if the norm is not finite."""
    flat = point.view(-1)
    # False for overflow and for NaN.
    if float(flat @ flat) < _INSIDE * radius * radius:
        return point
    norm = float(linalg.vector_norm(point))
    if not math.isfinite(norm):
        raise FloatingPointError("The parameters are no longer finite numbers")
    return point.mul_(radius / norm) if norm > radius else point
