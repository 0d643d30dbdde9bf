"""One step of the chain: down the gradient, plus noise, onto the ball. The only file that touches pre-noise state."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from worker.langevin.gradient import data_gradient
from worker.langevin.noise import Noise
from worker.langevin.projection import project_onto_ball


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """All that the next step needs from this one."""

    parameters: Tensor  # (1, d) or (C, d) float64
    steps_done: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StepInfo:
    """What a human may know of a step: nothing that depends on the data (a gradient norm would be one more release)."""

    noise_std: float


def projected_noisy_step(
    noise: Noise,
    state: State,
    *,
    features: NDArray[np.float32],  # (n, d)
    labels: NDArray[np.int32],  # (n,)
    num_slots: int,
    l2: float,
    step_size: float,
    noise_scale: float,
    radius: float,
) -> tuple[State, StepInfo]:
    """x <- Proj_R( x - step_size * grad f(x) + N(0, noise_std^2 I) ),  noise_std^2 = 2 * step_size * noise_scale^2,
    f(x) = (1 / num_slots) * sum of the records' losses + (l2 / 2) * ||x||^2.

    Leaves `state` as it was. The sum starts from the noise, so nothing is ever stored that has moved down the gradient
    and is not yet noisy. Raises FloatingPointError, which quotes no number, if the result is not finite.
    """
    here = state.parameters
    noise_std = math.sqrt(2 * step_size) * noise_scale
    downhill = data_gradient(here, features, labels)
    there = (
        noise.normal(here.numel())
        .view_as(here)
        .mul_(noise_std)
        .add_(here, alpha=1 - step_size * l2)
        .sub_(downhill, alpha=step_size / num_slots)
    )
    downhill.zero_()
    try:
        project_onto_ball(there, radius)
    except FloatingPointError:
        there.zero_()
        raise
    return State(parameters=there, steps_done=state.steps_done + 1), StepInfo(noise_std=noise_std)
