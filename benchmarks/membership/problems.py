"""Whose rows are learned: real ones, encoded as the service does, drawn from a seed so that others draw the same."""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks import data
from benchmarks.vectors import encode_vectors
from lethe.encoding.rows import Features, Labels
from lethe.proof import accountant, calibration
from lethe.proof.accountant import Chain, Run
from lethe.proof.mechanism import Mechanism

EPSILON = 1.0
CLASSES = (3, 8)
"""Of digits: the second is labelled 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    features: Features  # (n, d)
    labels: Labels  # (n,), 0 or 1

    def at(self, slots: NDArray[np.int64]) -> "Rows":
        return Rows(features=self.features[slots], labels=self.labels[slots])

    def nulled(self, slots: NDArray[np.int64]) -> "Rows":
        """With null rows in these slots, as the service leaves them."""
        features = self.features.copy()
        features[slots] = 0
        return replace(self, features=features)

    def logits(self, parameters: NDArray[np.float64]) -> NDArray[np.float64]:
        """Of every row's own label, in models with parameters (models, d)  # (models, n)"""
        signs = np.where(self.labels == 1, 1.0, -1.0)
        return parameters @ (self.features * signs[:, None]).astype(np.float64).T


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Rows of two classes, others to test on, and the mechanism that the service chooses for so many rows."""

    name: str
    rows: Rows
    test: Rows
    mechanism: Mechanism

    @property
    def delta(self) -> float:
        return target_delta(self.mechanism.num_slots)

    @property
    def learned(self) -> Chain:
        return accountant.replay(self.mechanism, [Run(steps=self.mechanism.learn_steps)])


def target_delta(num_slots: int) -> float:
    return float(num_slots**-1.1)


def digits(*, seed: int, num_rows: int = 300, l2: float | None = None) -> Problem:
    """Threes against eights of scikit-learn's 8 x 8 digits; the 57 that are not learned are the test."""
    images, labels = data.digits()
    chosen = np.isin(labels, CLASSES)
    learned, rest = _drawn(_two_digits(images[chosen], labels[chosen]), num_rows, seed)
    return _problem("digits 3/8", learned, rest, l2)


def adult(*, seed: int, num_rows: int, l2: float | None = None) -> Problem:
    """So many people of the UCI Adult census, which is in examples/; the test is all of its test file."""
    read = (data.adult(part) for part in ("train", "test"))
    train, test = (Rows(features=features, labels=labels) for features, labels in read)
    learned, _ = _drawn(train, num_rows, seed)
    return _problem("Adult", learned, test, l2)


def mnist(folder: Path, *, seed: int, num_rows: int, l2: float | None = None) -> Problem:
    """So many threes and eights of MNIST; the test is all those of its test set."""
    train, test = (_two_digits(*data.mnist(folder, part, CLASSES)) for part in ("train", "test"))
    learned, _ = _drawn(train, num_rows, seed)
    return _problem("MNIST 3/8", learned, test, l2)


def _two_digits(pixels: data.Pixels, labels: data.Digits) -> Rows:
    return Rows(features=encode_vectors(pixels), labels=(labels == CLASSES[1]).astype(np.int32))


def _drawn(rows: Rows, num_rows: int, seed: int) -> tuple[Rows, Rows]:
    order = np.random.default_rng(seed).permutation(len(rows.labels))
    return rows.at(order[:num_rows]), rows.at(order[num_rows:])


def _problem(name: str, rows: Rows, test: Rows, l2: float | None) -> Problem:
    num_slots, num_features = rows.features.shape
    mechanism = calibration.mechanism_for(
        calibration.ModelSettings(epsilon=EPSILON, delta=target_delta(num_slots), l2=l2),
        num_slots=num_slots,
        num_classes=2,
        num_parameters=num_features,
    )
    return Problem(name=name, rows=rows, test=test, mechanism=mechanism)
