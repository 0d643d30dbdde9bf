"""A run: many steps on the same rows, of which only the last iterate leaves."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from worker.langevin.gradient import blocks
from worker.langevin.init import num_weight_rows
from worker.langevin.noise import Noise
from worker.langevin.step import State, projected_noisy_step


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """What ran, counted, not what was planned."""

    parameters: NDArray[np.float64]  # (1, d) or (C, d)
    steps: int


def run(
    *,
    features: NDArray[np.float32],  # (num_slots, d)
    labels: NDArray[np.int32],  # (num_slots,)
    num_slots: int,
    num_classes: int,
    l2: float,
    step_size: float,
    noise_scale: float,
    radius: float,
    initial: NDArray[np.float64],  # (1, d) for two classes, (C, d) for more
    steps: int,
    noise: Noise,
    on_progress: Callable[[int], None],
) -> Ran:
    """Take `steps` noisy steps from `initial`. Learning starts at the origin, unlearning at the live version.

    `on_progress(steps_done)` is called after every step and stops the run by raising; it is told the count only.
    Iterates are overwritten as soon as the next one exists, the last when it is handed over or the run fails. Raises
    ValueError, naming the condition, if the input is not what the guarantee assumes.
    """
    _require_public_settings(l2, step_size, noise_scale, radius, steps)
    features, labels = np.asarray(features), np.asarray(labels)  # a view: slices of a memmap are slow to make
    _require_rows(features, labels, num_slots, num_classes)
    _require_initial(initial, (num_weight_rows(num_classes), features.shape[1]), radius)

    state = State(parameters=torch.tensor(initial), steps_done=0)
    try:
        while state.steps_done < steps:
            previous = state
            state, _ = projected_noisy_step(
                noise,
                previous,
                features=features,
                labels=labels,
                num_slots=num_slots,
                l2=l2,
                step_size=step_size,
                noise_scale=noise_scale,
                radius=radius,
            )
            previous.parameters.zero_()
            on_progress(state.steps_done)
        return Ran(parameters=state.parameters.numpy().copy(), steps=state.steps_done)
    finally:
        state.parameters.zero_()


def _require_public_settings(l2: float, step_size: float, noise_scale: float, radius: float, steps: int) -> None:
    if steps < 1:
        raise ValueError(f"Expected {steps=} >= 1")
    if not 0 <= l2 < math.inf:
        raise ValueError(f"Expected 0 <= {l2=} < inf")
    for name, value in {"step_size": step_size, "noise_scale": noise_scale, "radius": radius}.items():
        if not 0 < value < math.inf:
            raise ValueError(f"Expected 0 < {name}={value} < inf")


def _require_rows(features: NDArray[np.float32], labels: NDArray[np.int32], num_slots: int, num_classes: int) -> None:
    if features.ndim != 2 or features.dtype != np.float32:
        raise ValueError("Expected features to be a float32 matrix")
    if labels.shape != features.shape[:1] or labels.dtype != np.int32:
        raise ValueError("Expected labels to be int32, one for each row of features")
    if len(features) != num_slots or num_slots < 1:
        raise ValueError("Expected one row of features for each of num_slots >= 1 slots")
    if labels.min() < 0 or labels.max() >= num_classes:
        raise ValueError("Expected 0 <= label < num_classes")
    for block in blocks(num_slots):
        squares = np.einsum("ij,ij->i", features[block], features[block], dtype=np.float64)
        if not (squares <= 1).all():  # so written, NaN is refused too
            raise ValueError("Expected every row of features to be of norm <= 1")


def _require_initial(initial: NDArray[np.float64], shape: tuple[int, int], radius: float) -> None:
    if initial.shape != shape or initial.dtype != np.float64:
        raise ValueError(f"Expected initial parameters of shape {shape} in float64")
    if not np.linalg.norm(initial) <= radius * (1 + 1e-12):
        raise ValueError("Expected initial parameters inside the ball")
