"""People for the shards and for ours: handwritten digits (scikit-learn's), odd or even; and whom to ask about.

Everything here is fixed by a seed before the first model is learned: who the people are, who leaves in which round,
and whose presence is in question, the person whom models trained on others get wrong most often.
"""

from dataclasses import dataclass

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from sklearn.tree import ExtraTreeClassifier

from benchmarks import data

PEOPLE = 600
ROUNDS = 6
LEAVE_PER_ROUND = 12
_TREES = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class People:
    features: NDArray[np.float32]  # (n, d), norm <= 1, the last column constant
    labels: NDArray[np.int32]  # (n,) 0 even, 1 odd
    target: int
    rounds: tuple[NDArray[np.int64], ...]
    """Who leaves, round after round, whatever is published; never the target."""


def people(seed: int) -> People:
    generator = np.random.default_rng(seed)
    pixels, digits = data.digits()
    chosen = generator.permutation(len(pixels))[:PEOPLE]
    features, labels = _rows(pixels[chosen]), (digits[chosen] % 2).astype(np.int32)
    target = _hardest(features, labels, generator)
    leaving = generator.permutation(np.delete(np.arange(PEOPLE), target))[: ROUNDS * LEAVE_PER_ROUND]
    rounds = tuple(leaving.reshape(ROUNDS, LEAVE_PER_ROUND))
    return People(features=features, labels=labels, target=target, rounds=rounds)


def _rows(pixels: NDArray[np.float64]) -> NDArray[np.float32]:
    unit = pixels / np.linalg.norm(pixels, axis=1, keepdims=True)
    return np.asarray(np.hstack([unit, np.ones((len(unit), 1))]) * (np.sqrt(0.5) * (1 - 1e-6)), np.float32)


def _hardest(features: NDArray[np.float32], labels: NDArray[np.int32], generator: Generator) -> int:
    """Whom most trees that were trained on half of the others get wrong."""
    wrong, asked = np.zeros(len(labels)), np.zeros(len(labels))
    for _ in range(_TREES):
        half = generator.random(len(labels)) < 0.5
        tree = ExtraTreeClassifier(random_state=int(generator.integers(2**31))).fit(features[half], labels[half])
        wrong[~half] += tree.predict(features[~half]) != labels[~half]
        asked += ~half
    return int(np.argmax(wrong / asked))
