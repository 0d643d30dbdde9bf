"""Runs of objective perturbation, in a separate process."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from app.errors import RunDiffersFromPlan
from lethe.features.objective.methods import NAME, Perturbed
from worker.evidence import Lanes
from worker.features.objective.solver import minimise
from worker.langevin import chain, step
from worker.langevin.noise import Noise
from worker.langevin.window import Show


def run(
    *,
    mechanism: Perturbed,
    features: NDArray[np.float32],  # (n, d), one row per slot
    labels: NDArray[np.int32],  # (n,), or (n, 2) with weights
    initial: NDArray[np.float64],  # (1, d) or (C, d)
    first_step: int = 0,
    steps: int,
    noise: Noise,
    on_progress: Callable[[int], None],
    lanes: Lanes | None = None,
    show: Show | None = None,
    **others: Any,
) -> chain.Ran:
    """Train a version on the current rows with fresh noise. The arguments are those of `chain.run`.

    No progress is reported before the end, because the number of iterations depends on the rows. Raises
    `RunDiffersFromPlan` if the run should continue an earlier version or report checkpoints, and the errors of
    `solver.minimise`.
    """
    is_anew = first_step == 0 and steps == mechanism.learn_steps and not initial.any()
    checkpoints = others.get("checkpoints")
    if not is_anew or (checkpoints is not None and checkpoints.steps):
        raise RunDiffersFromPlan("A version of this method is learned from scratch, without checkpoints.")
    if show and ((window := show(0)).until, window.slots) != (steps, (slice(0, mechanism.num_slots),)):
        raise RunDiffersFromPlan("What the run reads is not in memory.")
    start, canaries = (lanes.start(noise), lanes.push.canaries) if lanes else (step.no_lanes(), None)
    minimised = minimise(
        mechanism=mechanism,
        features=features,
        labels=labels,
        noise=noise,
        on_progress=lambda iterations: None,
        slopes=(torch.zeros_like(start) if canaries is None else canaries).numpy(),
    )
    on_progress(steps)
    ended = torch.from_numpy(minimised.lanes)
    return chain.Ran(
        mechanism=mechanism,  # type: ignore[arg-type]
        parameters=minimised.parameters,
        first_step=0,
        steps=steps,
        records=minimised.records,
        lanes=ended,
        observed=lanes.observed(start, ended) if lanes else None,
    )


METHODS = ((NAME, run),)
