"""Predictable noise and known data."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from lethe.proof.losses import Objective
from lethe.proof.mechanism import Mechanism


class SilentNoise:
    """No noise, so that only the deterministic part of a step remains."""

    def normal(self, size: int) -> torch.Tensor:
        return torch.zeros(size, dtype=torch.float64)

    def rounded_normal(self, size: int, spread: float) -> torch.Tensor:
        return self.normal(size)


class ReplayableNoise:
    """Noise that gives the same numbers for the same seed; `drawn` references every returned buffer."""

    def __init__(self, seed: int) -> None:
        self._generator = np.random.default_rng(seed)
        self.drawn: list[torch.Tensor] = []

    def normal(self, size: int) -> torch.Tensor:
        self.drawn.append(torch.from_numpy(self._generator.standard_normal(size)))
        return self.drawn[-1]

    def rounded_normal(self, size: int, spread: float) -> torch.Tensor:
        self.drawn.append(torch.from_numpy(np.rint(spread * self._generator.standard_normal(size))))
        return self.drawn[-1]


def mechanism_of(**changed: Any) -> Mechanism:
    """Return the mechanism of a small binary problem with 40 slots and 5 features, with `changed` settings."""
    settings = {"num_slots": 40, "num_classes": 2, "l2": 0.1, "step_size": 2.0, "noise_scale": 0.01, "radius": 10.0}
    others = {"learn_steps": 30, "grid": 2.0**-40, "num_parameters": 5}
    return Mechanism(**{"objective": Objective.LOGISTIC_REGRESSION} | settings | others | changed)


@pytest.fixture
def silent_noise() -> SilentNoise:
    return SilentNoise()


@pytest.fixture
def replayable_noise() -> Callable[[int], ReplayableNoise]:
    return ReplayableNoise


@pytest.fixture
def random_rows() -> Callable[..., tuple[Any, Any]]:
    """Return a function that makes rows just inside the unit sphere, with labels that depend on them."""

    def make(num_rows: int, num_features: int, num_classes: int = 2, seed: int = 0) -> tuple[Any, Any]:
        generator = np.random.default_rng(seed)
        features = generator.standard_normal((num_rows, num_features))
        features /= np.linalg.norm(features, axis=1, keepdims=True)
        truth = generator.standard_normal((num_classes, num_features))
        return (features * (1 - 2**-20)).astype(np.float32), (features @ truth.T).argmax(axis=1).astype(np.int32)

    return make


@pytest.fixture
def settings() -> dict[str, Any]:
    """Return the keyword arguments for a run of three steps on a small binary problem with 40 slots and 5 features."""
    return {
        "mechanism": mechanism_of(),
        "initial": np.zeros((1, 5)),
        "steps": 3,
        "on_progress": lambda steps_done: None,
    }
