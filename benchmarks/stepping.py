"""Seconds of a step of the chain, as benchmarks time it."""

import math
import time
from typing import Any

import numpy as np

from lethe.proof.mechanism import finest_grid
from worker.langevin import chain
from worker.langevin.noise import SystemNoise

L2 = 1e-6 * 11_982
"""As in the papers on MNIST 3 against 8."""
CHAIN: dict[str, Any] = {"l2": L2, "noise_scale": 0.03, "radius": 100.0}


def steps(features: Any, labels: Any, classes: int, count: int, initial: Any = None, *, num_batches: int = 1) -> float:
    """Seconds for each of `count` steps of a run, without what a run does before the end of its first pass."""
    shape = (1 if classes == 2 else classes, features.shape[1])
    step_size = 2 / ((0.25 if classes == 2 else 0.5) + 2 * L2)
    noise_std = math.sqrt(2 * step_size) * CHAIN["noise_scale"]
    seen: dict[int, float] = {}
    ran = chain.run(
        features=features,
        labels=labels,
        num_slots=len(labels),
        num_classes=classes,
        step_size=step_size,
        grid=finest_grid(noise_std=noise_std, radius=CHAIN["radius"]),
        initial=np.zeros(shape) if initial is None else initial,
        steps=count,
        noise=SystemNoise(),
        num_batches=num_batches,
        on_progress=lambda steps_done: seen.update({steps_done: time.perf_counter()}),
        **CHAIN,
    )
    if initial is not None:
        initial[:] = ran.parameters
    first, *_, last = (done for done in sorted(seen) if num_batches <= done < count)  # the last's noise is exact
    return (seen[last] - seen[first]) / (last - first)
