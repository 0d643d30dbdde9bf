"""Run of a chain: many steps on the same rows, releasing only the last iterate."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from app.errors import AuditFailed
from lethe.proof.canary_test import Observed
from lethe.proof.mechanism import Mechanism
from worker.evidence import TOLERANCE, Lanes, differs
from worker.langevin import engines, init, losses, second_moment
from worker.langevin.noise import Noise
from worker.langevin.schedule import Schedule
from worker.langevin.step import State, no_lanes, projected_noisy_step
from worker.langevin.window import Checkpoints, Show, Shown


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """Result of a run as executed, not as planned. `records` counts the non-null rows loaded into memory; `lanes`
    contains the lanes' final positions and `observed` their statistics."""

    parameters: NDArray[np.float64]  # (1, d) or (C, d)
    mechanism: Mechanism
    first_step: int
    steps: int
    records: int
    lanes: Tensor | None  # (p,)
    observed: Observed | None


def run(
    *,
    mechanism: Mechanism,
    features: NDArray[np.float32],  # (n, d), one row per slot
    labels: NDArray[np.int32],  # (n,), or (n, 2) with weights
    initial: NDArray[np.float64],  # (1, d) for a single score, (C, d) for more than two classes
    first_step: int = 0,
    steps: int,
    noise: Noise,
    on_progress: Callable[[int], None],
    backend: engines.Backend = engines.CPU,
    lanes: Lanes | None = None,
    show: Show | None = None,
    checkpoints: Checkpoints | None = None,
) -> Ran:
    """Take `steps` noisy steps of the `mechanism` from `initial`, which is the origin for learning and the live version
    for unlearning. `first_step` is the number of steps already taken by the chain; it determines the next batch.

    The noise of the last step is exact on the mechanism's grid. On a GPU, all other steps and their noise run there.

    `on_progress(steps_done)` is called after each step (on a GPU, after several) and may raise to stop the run; it
    receives only the count. Each iterate is overwritten once the next exists, the last one when it is returned or the
    run fails. `lanes` take the same steps, to test the run. Only rows used by the steps are read; `show` loads them
    into memory as needed. A tangent model needs the `network` of `backend`; all its steps run on the host.

    Raises ValueError, naming the condition, if the input violates an assumption of the guarantee,
    `SecondMomentExceeded` if a batch exceeds the mechanism's bound, and `AuditFailed` if a gradient fails its audit.
    """
    num_classes, step_size, radius = mechanism.num_classes, mechanism.step_size, mechanism.radius
    loss = losses.Loss.of(mechanism)
    schedule = Schedule.of(mechanism, first_step=first_step, steps=steps)
    # A view, because slices of a memmap are slow to create.
    features, labels = np.asarray(features), np.asarray(labels)
    if (labels.ndim == 2) != (mechanism.weight_bound is not None):
        raise ValueError("Expected weights of rows where the mechanism states their bound, and nowhere else")
    shown_rows = Shown(features, labels, num_classes=num_classes, loss=loss, schedule=schedule, show=show)
    window = shown_rows.look(0)
    assert window is not None
    moments = second_moment.Kept(mechanism, schedule, features)
    shape = init.shape(mechanism, features.shape[1])
    if initial.shape != shape or initial.dtype != np.float64:
        raise ValueError(f"Expected initial parameters of shape {shape} in float64")
    if not np.linalg.norm(initial) <= radius * (1 + 1e-12):
        raise ValueError("Expected initial parameters inside the ball")

    stops = checkpoints.steps if checkpoints else ()

    with engines.open_rows(mechanism, features, shown_rows.labels, shown_rows.weights, backend, window.slots) as rows:
        resident = rows if isinstance(rows, engines.ResidentRows) else None
        settings: dict[str, Any] = {"l2": mechanism.l2, "noise_scale": mechanism.noise_scale, "radius": radius}
        start, push = (lanes.start(noise), lanes.push) if lanes else (no_lanes(), None)
        state = State(parameters=torch.tensor(initial), steps_done=0, lanes=start)
        try:
            while state.steps_done < steps:
                if moved := shown_rows.look(state.steps_done):
                    window = moved
                    rows.look(window.slots)
                moments.require(until=window.until)
                before, step = state, schedule.step(state.steps_done)
                stop = next((count for count in stops if count > before.steps_done), steps)
                # The last step runs on the host.
                resident_steps = min(window.until, steps - 1, stop) - before.steps_done
                if resident is not None and resident_steps > 0:
                    state = resident.advance(
                        before,
                        steps=resident_steps,
                        schedule=schedule,
                        step_size=step_size,
                        push=push,
                        on_progress=on_progress,
                        **settings,
                    )
                else:
                    state = projected_noisy_step(
                        noise,
                        before,
                        rows=rows,
                        block=step.rows,
                        num_slots=step.rows.stop - step.rows.start,
                        step_size=step_size * step.share,
                        push=push.of(step.batch) * step.share if push else no_lanes(),
                        grid=mechanism.grid if before.steps_done == steps - 1 else 0.0,
                        **settings,
                    )
                before.parameters.zero_()
                on_progress(state.steps_done)
                if checkpoints and state.steps_done in stops:
                    checkpoints.reached(state.steps_done, state.parameters.numpy().copy())
            parameters = state.parameters.numpy().copy()
            _require_gradient(rows, parameters, shown_rows, mechanism, schedule.step(steps - 1).rows)
            return Ran(
                mechanism=mechanism,
                parameters=parameters,
                first_step=first_step,
                steps=state.steps_done,
                records=shown_rows.records,
                lanes=state.lanes if lanes else None,
                observed=lanes.observed(start, state.lanes) if lanes else None,
            )
        finally:
            state.parameters.zero_()


def _require_gradient(
    rows: engines.OpenRows, parameters: NDArray[np.float64], shown_rows: Shown, mechanism: Mechanism, block: slice
) -> None:
    """Raise `AuditFailed` if the gradient computed for the run's last batch differs from these rows' gradient."""
    at = torch.from_numpy(parameters)
    ours = rows.gradient(at, block)
    # Least squares has a large bound, far above the gradient of any record of a fit.
    bound = min(mechanism.gradient_bound, math.sqrt(2))
    if isinstance(rows, engines.SelfCheckedRows):
        other = rows.differs(ours, at, block, bound=TOLERANCE * bound)
    else:
        other = differs(
            ours.numpy(),
            parameters,
            features=shown_rows.features[block],
            labels=shown_rows.labels[block],
            weights=None if shown_rows.weights is None else shown_rows.weights[block],
            bound=bound,
            objective=mechanism.objective,
            loss_width=mechanism.loss_width,
            class_weights=mechanism.class_weights,
        )
    ours.zero_()
    if other:
        raise AuditFailed("The gradient that ran is not that of the rows.")
