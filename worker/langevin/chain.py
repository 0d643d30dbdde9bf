"""A run: many steps on the same rows, of which only the last iterate leaves."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from app.errors import AuditFailed
from lethe.proof.audit import Observed
from lethe.proof.mechanism import Mechanism
from worker.audit.gradient import TOLERANCE, differs
from worker.audit.lanes import Lanes
from worker.langevin import gradient, init
from worker.langevin.device import DeviceRows, choose
from worker.langevin.losses import Loss
from worker.langevin.noise import Noise
from worker.langevin.schedule import Schedule
from worker.langevin.second_moment import Kept
from worker.langevin.step import State, no_lanes, projected_noisy_step
from worker.langevin.tangent import TangentRows
from worker.langevin.window import Show, Shown


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """The run as it was counted, not as it was planned."""

    parameters: NDArray[np.float64]  # (1, d) or (C, d)
    mechanism: Mechanism
    first_step: int
    steps: int
    records: int  # rows that are not null, of those that came into memory
    lanes: Tensor | None  # (p,) where they ended
    observed: Observed | None  # what they showed


def run(
    *,
    mechanism: Mechanism,
    features: NDArray[np.float32],  # (n, d), a row for each of its slots
    labels: NDArray[np.int32],  # (n,), or (n, 2) with a weight beside each
    initial: NDArray[np.float64],  # (1, d) for one score, (C, d) for more classes than two
    first_step: int = 0,
    steps: int,
    noise: Noise,
    on_progress: Callable[[int], None],
    device: str = "cpu",
    threads: int | None = None,
    lanes: Lanes | None = None,
    show: Show | None = None,
    network: bytes | None = None,
    checkpoints: Sequence[int] = (),
    on_checkpoint: Callable[[int, NDArray[np.float64]], None] = lambda steps_done, parameters: None,
) -> Ran:
    """Take `steps` noisy steps of the `mechanism` from `initial`. Learning starts at the origin, unlearning at the live
    version. `first_step`: how many steps the chain has taken before, which says what batch is next.

    The last step's noise is exact on the mechanism's grid. On a GPU (`device`: auto, cpu or cuda:i) all steps but
    the last are taken there, with noise of its own.

    `on_progress(steps_done)` is called after every step, on a GPU every few, and stops the run by raising; it is told
    the count only. Iterates are overwritten as soon as the next one exists, the last when it is handed over or the run
    fails. The `lanes` take the same steps, for the run's audit. Of the rows nothing is read but what the steps read;
    with `show` they come into memory as they are needed. A tangent model needs its `network`, the bytes of the file
    that its mechanism names; all its steps are the host's, whatever the device of the network. After so many steps as
    `checkpoints` says, ascending, `on_checkpoint` is given a copy of the iterate, its noise in it. Raises ValueError,
    naming the condition, if the input is not what the guarantee assumes, `SecondMomentExceeded` if a batch exceeds that
    of the mechanism, and `AuditFailed` if the gradient is not that of the rows.
    """
    num_classes, step_size, radius = mechanism.num_classes, mechanism.step_size, mechanism.radius
    loss = Loss.of(mechanism)
    schedule = Schedule.of(mechanism, first_step=first_step, steps=steps)
    features, labels = np.asarray(features), np.asarray(labels)  # a view: slices of a memmap are slow to make
    if (labels.ndim == 2) != (mechanism.weight_bound is not None):
        raise ValueError("Expected weights of rows where the mechanism states their bound, and nowhere else")
    seen = Shown(features, labels, num_classes=num_classes, loss=loss, schedule=schedule, show=show)
    window = seen.look(0)
    assert window is not None
    kept = Kept(mechanism, schedule, features)
    _require_initial(initial, init.shape(mechanism, features.shape[1]), radius)

    with _opened(mechanism, features, seen.labels, seen.weights, device, threads, window.slots, network) as rows:
        settings: dict[str, Any] = {"l2": mechanism.l2, "noise_scale": mechanism.noise_scale, "radius": radius}
        start, push = (lanes.start(noise), lanes.push) if lanes else (no_lanes(), None)
        state = State(parameters=torch.tensor(initial), steps_done=0, lanes=start)
        try:
            while state.steps_done < steps:
                if moved := seen.look(state.steps_done):
                    window = moved
                    rows.look(window.slots)
                kept.require(until=window.until)
                before, step = state, schedule.step(state.steps_done)
                stop = next((one for one in checkpoints if one > before.steps_done), steps)
                there = min(window.until, steps - 1, stop) - before.steps_done  # the last step is the host's
                if isinstance(rows, DeviceRows) and there > 0:
                    state = rows.advance(
                        before,
                        steps=there,
                        schedule=schedule,
                        step_size=step_size,
                        push=push,
                        on_progress=on_progress,
                        **settings,
                    )
                    before.parameters.zero_()
                    if state.steps_done in checkpoints:
                        on_checkpoint(state.steps_done, state.parameters.numpy().copy())
                    continue
                state = projected_noisy_step(
                    noise,
                    before,
                    rows=rows,
                    here=step.rows,
                    num_slots=step.rows.stop - step.rows.start,
                    step_size=step_size * step.share,
                    push=push.of(step.batch) * step.share if push else no_lanes(),
                    grid=mechanism.grid if before.steps_done == steps - 1 else 0.0,
                    **settings,
                )
                before.parameters.zero_()
                on_progress(state.steps_done)
                if state.steps_done in checkpoints:
                    on_checkpoint(state.steps_done, state.parameters.numpy().copy())
            parameters = state.parameters.numpy().copy()
            _require_gradient(rows, parameters, seen, mechanism, schedule.step(steps - 1).rows)
            return Ran(
                mechanism=mechanism,
                parameters=parameters,
                first_step=first_step,
                steps=state.steps_done,
                records=seen.records,
                lanes=state.lanes if lanes else None,
                observed=lanes.observed(start, state.lanes) if lanes else None,
            )
        finally:
            state.parameters.zero_()


def _opened(
    mechanism: Mechanism,
    features: NDArray[np.float32],
    labels: NDArray[np.int32],
    weights: NDArray[np.int32] | None,
    device: str,
    threads: int | None,
    slots: Sequence[slice],
    network: bytes | None,
) -> gradient.HostRows | DeviceRows | TangentRows:
    """The rows where the device can read them fastest."""
    chosen, loss, num_classes = choose(device), Loss.of(mechanism), mechanism.num_classes
    if mechanism.is_tangent:
        return TangentRows(features, labels, weights, mechanism=mechanism, network=network or b"", device=chosen)
    if chosen.type == "cpu":
        return gradient.HostRows(features, labels, weights, num_classes=num_classes, loss=loss, threads=threads)
    return DeviceRows(features, labels, weights, num_classes=num_classes, loss=loss, device=chosen, slots=slots)


def _require_gradient(
    rows: gradient.HostRows | DeviceRows | TangentRows,
    parameters: NDArray[np.float64],
    seen: Shown,
    mechanism: Mechanism,
    here: slice,
) -> None:
    """Raises `AuditFailed` if what the run took for the gradient of its last batch is not that of these rows."""
    at = torch.from_numpy(parameters)
    ours = rows.gradient(at, here)
    bound = min(mechanism.gradient_bound, math.sqrt(2))  # no record of a fit by least squares comes near to theirs
    if isinstance(rows, TangentRows):
        other = rows.differs(ours, at, here, bound=TOLERANCE * bound)
    else:
        other = differs(
            ours.numpy(),
            parameters,
            features=seen.features[here],
            labels=seen.labels[here],
            weights=None if seen.weights is None else seen.weights[here],
            bound=bound,
            objective=mechanism.objective,
            loss_width=mechanism.loss_width,
            class_weights=mechanism.class_weights,
        )
    ours.zero_()
    if other:
        raise AuditFailed("The gradient that ran is not that of the rows.")


def _require_initial(initial: NDArray[np.float64], shape: tuple[int, int], radius: float) -> None:
    if initial.shape != shape or initial.dtype != np.float64:
        raise ValueError(f"Expected initial parameters of shape {shape} in float64")
    if not np.linalg.norm(initial) <= radius * (1 + 1e-12):
        raise ValueError("Expected initial parameters inside the ball")
