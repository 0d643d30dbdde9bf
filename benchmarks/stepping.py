"""Seconds of a step of the chain, as benchmarks time it."""

import math
import time
from typing import Any

import numpy as np

from lethe.proof.losses import Objective
from lethe.proof.mechanism import Mechanism, finest_grid
from worker.langevin import chain
from worker.langevin.noise import SystemNoise

L2 = 1e-6 * 11_982
"""As in the papers on MNIST 3 against 8."""
NOISE_SCALE, RADIUS = 0.03, 100.0


def steps(features: Any, labels: Any, classes: int, count: int, initial: Any = None, *, num_batches: int = 1) -> float:
    """Seconds for each of `count` steps of a run, without what a run does before the end of its first pass."""
    shape = (1 if classes == 2 else classes, features.shape[1])
    step_size = 2 / ((0.25 if classes == 2 else 0.5) + 2 * L2)
    noise_std = math.sqrt(2 * step_size) * NOISE_SCALE
    mechanism = Mechanism(
        objective=Objective.LOGISTIC_REGRESSION,
        num_slots=len(labels),
        num_classes=classes,
        l2=L2,
        step_size=step_size,
        noise_scale=NOISE_SCALE,
        radius=RADIUS,
        learn_steps=count,
        grid=finest_grid(noise_std=noise_std, radius=RADIUS),
        num_parameters=math.prod(shape),
        batch_size=len(labels) // num_batches,
    )
    seen: dict[int, float] = {}
    ran = chain.run(
        mechanism=mechanism,
        features=features,
        labels=labels,
        initial=np.zeros(shape) if initial is None else initial,
        steps=count,
        noise=SystemNoise(),
        on_progress=lambda steps_done: seen.update({steps_done: time.perf_counter()}),
    )
    if initial is not None:
        initial[:] = ran.parameters
    first, *_, last = (
        done for done in sorted(seen) if mechanism.num_batches <= done < count
    )  # the last's noise is exact
    return (seen[last] - seen[first]) / (last - first)
