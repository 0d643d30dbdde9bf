"""One step of the chain: down the gradient, plus noise, onto the ball. The only file that touches pre-noise state."""

import math
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from worker.langevin.noise import Noise
from worker.langevin.projection import project_onto_ball


class Rows(Protocol):
    """The rows of a run, wherever they are."""

    def gradient(self, parameters: Tensor, here: slice = slice(None)) -> Tensor:
        """Sum over the rows `here` of the gradient of their loss  # (1, d) or (C, d) float64, as `parameters`"""


def no_lanes() -> Tensor:
    return torch.zeros(0, dtype=torch.float64)


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """All that the next step needs from this one."""

    parameters: Tensor  # (1, d) or (C, d) float64
    steps_done: int
    lanes: Tensor = field(default_factory=no_lanes)  # (p,) float64, coordinates of the audit that no row touches


def projected_noisy_step(
    noise: Noise,
    state: State,
    *,
    rows: Rows,
    here: slice = slice(None),
    num_slots: int,
    l2: float,
    step_size: float,
    noise_scale: float,
    radius: float,
    grid: float = 0.0,
    push: Tensor | None = None,
) -> State:
    """x <- Proj_R( x - step_size * grad f(x) + N(0, nu^2 I) ),  nu^2 = 2 * step_size * noise_scale^2,
    f(x) = (1 / num_slots) * sum of the losses of the records `here` + (l2 / 2) * ||x||^2, in `num_slots` slots.

    With `grid` > 0 what is projected is a multiple of it: the mean rounded to the grid, plus the exact normal number
    rounded to the grid (`docs/mathematics/grid.md`).

    Lanes are coordinates like the others, with two differences: `push` (p,) is minus their data's step, and they are
    not projected (the parameters' ball times all of R^p is convex too).

    Leaves `state` as it was, and overwrites what it needed on the way. Raises FloatingPointError, which quotes no
    number, if the result is not finite.
    """
    size, lanes = state.parameters.numel(), state.lanes.numel()
    noise_std, keep = math.sqrt(2 * step_size) * noise_scale, 1 - step_size * l2
    gradient = rows.gradient(state.parameters, here)
    if grid:
        drawn = noise.rounded_normal(size + lanes, noise_std / grid)
        there = torch.cat((state.parameters.reshape(-1), state.lanes)).mul_(keep)
    else:
        drawn = noise.normal(size + lanes)
        there = drawn.mul(noise_std)
        there[:size].add_(state.parameters.reshape(-1), alpha=keep)
        there[size:].add_(state.lanes, alpha=keep)
    there[:size].sub_(gradient.reshape(-1), alpha=step_size / num_slots)
    if push is not None and lanes:
        there[size:].add_(push)
    if grid:
        there.div_(grid).round_().add_(drawn).mul_(grid)
    for used in (gradient, drawn):
        used.zero_()
    parameters = there[:size].view_as(state.parameters)
    try:
        project_onto_ball(parameters, radius)
    except FloatingPointError:
        there.zero_()
        raise
    return State(parameters=parameters, steps_done=state.steps_done + 1, lanes=there[size:])
