"""Engines: features that compute the gradients of some runs. Without an engine the core computes them on the CPU."""

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
from worker.langevin.evaluate import LabelledRows
from worker.langevin.gradient import HostRows
from worker.langevin.losses import Loss
from worker.langevin.schedule import Schedule
from worker.langevin.step import Rows, State


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend:
    """Means by which a run computes gradients.

    Attributes:
        device: auto, cpu or cuda:i.
        threads: Maximum number of CPU threads; None for all of this process.
        network: Content of the network file that the mechanism of a tangent model names.
    """

    device: str = "cpu"
    threads: int | None = None
    network: bytes | None = None


CPU = Backend()


class OpenRows(Rows, Protocol):
    """The rows of a run, open for its steps. A context manager, which zeroes everything computed from rows on exit."""

    def look(self, slots: Sequence[slice]) -> None:
        """Drop everything copied or computed from rows outside `slots`."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_error: object) -> None: ...


@runtime_checkable
class ResidentRows(OpenRows, Protocol):
    """Rows on a device that takes many steps at a time, with noise that it generates."""

    def advance(
        self,
        state: State,
        *,
        steps: int,
        schedule: Schedule,
        l2: float,
        step_size: float,
        noise_scale: float,
        radius: float,
        on_progress: Callable[[int], None],
        push: Push | None = None,
    ) -> State:
        """Return the state after the next `steps` noisy steps of the `schedule`; `state` itself is not changed."""


@runtime_checkable
class SelfCheckedRows(OpenRows, Protocol):
    """Rows whose gradient only the engine can recompute, by a second method."""

    def differs(self, ours: Tensor, parameters: Tensor, block: slice, *, bound: float) -> bool:
        """Return True if `ours` is not the gradient of the rows `block` at `parameters`, up to a distance of `bound`,
        or if the gradient of a row is longer than the mechanism states."""


class Engine(Protocol):
    """Function that opens the rows of a run, or returns None if the engine does not compute this mechanism on this
    device. A feature lists such functions as `ENGINES` of its module `engines`."""

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
    """Function that replaces rows by their scores under the `parameters` of a tangent model. A feature lists such
    functions as `SCORERS` of its module `engines`."""

    def __call__(
        self, mechanism: Mechanism, network: bytes, parameters: NDArray[np.float64], rows: Iterable[LabelledRows]
    ) -> Iterable[LabelledRows]: ...


def installed() -> tuple[Engine, ...]:
    """Import the engines of all features, and return them."""
    return sockets.plugs("worker.features", "engines", "ENGINES")


def scorer() -> Scorer:
    """Return the scorer of tangent models. Raises ValueError if no feature has one."""
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
    """Open the rows of a run with the engine that computes its mechanism on the device of `backend`.

    Raises ValueError if the device is unavailable, or if no installed engine computes the mechanism on it.
    """
    device = choose(backend.device)
    for engine in installed():
        rows = engine(mechanism, features, labels, weights, backend, slots, device=device)
        if rows is not None:
            return rows
    if mechanism.is_tangent or (device.type != "cpu" and backend.device != "auto"):
        raise ValueError(f"Expected an engine that computes this mechanism on {device}: install the feature")
    return HostRows(
        features,
        labels,
        weights,
        num_classes=mechanism.num_classes,
        loss=Loss.of(mechanism),
        threads=backend.threads,
    )


def choose(device: str) -> torch.device:
    """Return the device that a setting names: auto (the first GPU, or else the CPU), cpu, cuda or cuda:i.

    Raises ValueError if it names no device, or a GPU that is unavailable.
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
