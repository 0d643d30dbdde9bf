"""Runs of objective perturbation, in a separate process."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.errors import RunDiffersFromPlan
from lethe.features.objective.methods import NAME, Perturbed
from worker.features.objective.solver import minimise
from worker.langevin.chain import Ran
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
    show: Show,
    **others: Any,
) -> Ran:
    """Train a version on the current rows with fresh noise. The arguments are those of `chain.run`.

    No progress is reported before the end, because the number of iterations depends on the rows. Raises
    `RunDiffersFromPlan` if the run should continue an earlier version, has lanes or should report checkpoints, and the
    errors of `solver.minimise`.
    """
    is_anew = first_step == 0 and steps == mechanism.learn_steps and not initial.any()
    checkpoints = others.get("checkpoints")
    if not is_anew or others.get("lanes") is not None or (checkpoints is not None and checkpoints.steps):
        raise RunDiffersFromPlan("A version of this method is learned from scratch, without lanes or checkpoints.")
    window = show(0)
    if (window.until, window.slots) != (steps, (slice(0, mechanism.num_slots),)):
        raise RunDiffersFromPlan("What the run reads is not in memory.")
    minimised = minimise(
        mechanism=mechanism, features=features, labels=labels, noise=noise, on_progress=lambda iterations: None
    )
    on_progress(steps)
    return Ran(
        mechanism=mechanism,  # type: ignore[arg-type]
        parameters=minimised.parameters,
        first_step=0,
        steps=steps,
        records=minimised.records,
        lanes=None,
        observed=None,
    )


METHODS = ((NAME, run),)
