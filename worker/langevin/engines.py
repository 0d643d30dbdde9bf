"""Engines: features that compute the gradients of some runs. If no engine applies, the core uses the CPU."""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, Self, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lethe import sockets
from lethe.proof.mechanism import Mechanism
from worker.evidence import Push
from worker.langevin import evaluate, gradient, losses, step
from worker.langevin.schedule import Schedule


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend:
    """Resources with which a run computes gradients.

    Attributes:
        device: auto, cpu or cuda:i.
        threads: Maximum number of CPU threads; None for all that this process may use.
        network: Content of the network file named by a tangent model's mechanism.
    """

    device: str = "cpu"
    threads: int | None = None
    network: bytes | None = None


CPU = Backend()


class OpenRows(step.Rows, Protocol):
    """Rows of a run, opened for its steps. A context manager that zeroes everything computed from rows on exit."""

    def look(self, slots: Sequence[slice]) -> None:
        """Drop everything copied or computed from rows outside `slots`."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_error: object) -> None: ...


@runtime_checkable
class ResidentRows(OpenRows, Protocol):
    """Rows on a device that takes many steps at a time, using noise generated on the device."""

    def advance(
        self,
        state: step.State,
        *,
        steps: int,
        schedule: Schedule,
        l2: float,
        step_size: float,
        noise_scale: float,
        radius: float,
        on_progress: Callable[[int], None],
        push: Push | None = None,
    ) -> step.State:
        """Return the state after the next `steps` noisy steps of the `schedule`; `state` itself is not changed."""


@runtime_checkable
class SelfCheckedRows(OpenRows, Protocol):
    """Rows whose gradient can be rechecked only by the engine itself, using a second method."""

    def differs(self, ours: Tensor, parameters: Tensor, block: slice, *, bound: float) -> bool:
        """Return True if `ours` is more than `bound` away from the gradient of the rows `block` at `parameters`, or if
        a row's gradient is larger than the mechanism states."""


class Engine(Protocol):
    """Function that opens a run's rows, or returns None if the engine does not support this mechanism on this device. A
    feature lists such functions as `ENGINES` in its module `engines`."""

    def __call__(
        self,
        mechanism: Mechanism,
        features: NDArray[np.float32],  # (n, d)
        labels: NDArray[np.int32],  # (n,)
        weights: NDArray[np.int32] | None,  # (n,)
        backend: Backend,
        slots: Sequence[slice],
        *,
        device: torch.device,
    ) -> OpenRows | None: ...


class Scorer(Protocol):
    """Function that replaces rows with their scores under a tangent model's `parameters`. A feature lists such
    functions as `SCORERS` in its module `engines`."""

    def __call__(
        self,
        mechanism: Mechanism,
        network: bytes,
        parameters: NDArray[np.float64],
        rows: Iterable[evaluate.LabelledRows],
    ) -> Iterable[evaluate.LabelledRows]: ...


def installed() -> tuple[Engine, ...]:
    """Import and return the engines of all features."""
    return sockets.plugs("worker.features", "engines", "ENGINES")


def scorer() -> Scorer:
    """Return the scorer for tangent models. Raises ValueError if no feature provides one."""
    scorers: tuple[Scorer, ...] = sockets.plugs("worker.features", "engines", "SCORERS")
    if not scorers:
        raise ValueError("Expected a feature that computes tangent models")
    return scorers[0]


def open_rows(
    mechanism: Mechanism,
    features: NDArray[np.float32],  # (n, d)
    labels: NDArray[np.int32],  # (n,)
    weights: NDArray[np.int32] | None,  # (n,)
    backend: Backend,
    slots: Sequence[slice],
) -> OpenRows:
    """Open a run's rows with the engine that supports the run's mechanism on the device of `backend`.

    Raises ValueError if the device is unavailable or no installed engine supports the mechanism on it.
    """
    device = choose(backend.device)
    for engine in installed():
        rows = engine(mechanism, features, labels, weights, backend, slots, device=device)
        if rows is not None:
            return rows
    if mechanism.is_tangent or (device.type != "cpu" and backend.device != "auto"):
        raise ValueError(f"Expected an engine that computes this mechanism on {device}: install the feature")
    return gradient.HostRows(
        features,
        labels,
        weights,
        num_classes=mechanism.num_classes,
        loss=losses.Loss.of(mechanism),
        threads=backend.threads,
    )


def choose(device: str) -> torch.device:
    """Return the device named by a setting: auto (the first GPU, or the CPU if there is none), cpu, cuda or cuda:i.

    Raises ValueError if the setting does not name a device, or names an unavailable GPU.
    """
    if device == "auto":
        return torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
    if device == "cpu":
        return torch.device("cpu")
    named = re.fullmatch(r"cuda(?::([0-9]{1,3}))?", device)
    if named is None:
        raise ValueError(f"Expected {device=} to be auto, cpu or cuda:i")
    index, num_devices = int(named[1] or 0), torch.cuda.device_count() if torch.cuda.is_available() else 0
    if index >= num_devices:
        raise ValueError(
            f"Expected {device=} to be one of the {num_devices} GPUs that torch sees: check its driver and that torch "
            "is a CUDA build, or choose auto or cpu"
        )
    return torch.device("cuda", index)
