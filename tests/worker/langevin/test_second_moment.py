"""The check of batches against a mechanism's bound on the second moment."""

import numpy as np
import pytest

from app.errors import SecondMomentExceeded
from lethe.proof import calibration
from lethe.proof.mechanism import Mechanism
from worker.langevin import chain
from worker.langevin.noise import SystemNoise
from worker.langevin.second_moment import largest

ROWS, COLUMNS = 300, 4


def made(bound: float | None) -> Mechanism:
    return calibration.mechanism_for(
        calibration.ModelSettings(epsilon=1.0, delta=1e-4, l2=0.05, batch_size=100, second_moment=bound),
        num_slots=ROWS,
        num_classes=2,
    )


def spread() -> np.ndarray:
    """Return rows that point in all directions, of length just below 1."""
    rows = np.random.default_rng(0).normal(size=(ROWS, COLUMNS))
    return np.asarray(0.999 * rows / np.linalg.norm(rows, axis=1, keepdims=True), dtype=np.float32)


def run(bound: float | None, features: np.ndarray, *, first_step: int = 0) -> chain.Ran:
    mechanism = made(bound)
    return chain.run(
        mechanism=mechanism,
        features=features,
        labels=np.zeros(ROWS, dtype=np.int32),
        initial=np.zeros((1, COLUMNS)),
        first_step=first_step,
        steps=mechanism.learn_steps,
        noise=SystemNoise(),
        on_progress=lambda steps_done: None,
    )


@pytest.mark.parametrize("shape", [(7, 3), (3, 7), (5, 5), (1, 1)])
def test_second_moment_is_the_largest_eigenvalue(shape: tuple[int, int]) -> None:
    """A batch's second moment is the square of the batch's largest singular value divided by the number of rows,
    rounded up."""
    rows = np.random.default_rng(1).normal(size=shape).astype(np.float32)
    exact = np.linalg.norm(rows.astype(np.float64), 2) ** 2 / len(rows)
    assert exact <= largest(rows) <= exact * (1 + 1e-8)


def test_a_batch_that_exceeds_the_bound_is_refused() -> None:
    """If one of three batches exceeds the bound on the second moment, the run ends before any of its steps is kept.
    Without a bound, or with a bound that no batch exceeds, the run completes."""
    features = spread()
    worst = max(largest(features[start : start + 100]) for start in (0, 100, 200))
    run(worst, features)
    with pytest.raises(SecondMomentExceeded):
        run(worst * 0.999, features)
    features[200:] = features[200]
    with pytest.raises(SecondMomentExceeded):
        run(worst, features)
    run(None, features)


def test_null_rows_lower_the_second_moment() -> None:
    """If the second moment of the rows is within a bound, it stays within the bound after some rows are nulled. A run
    that continues a chain does not check the bound again."""
    features = spread()
    worst = max(largest(features[start : start + 100]) for start in (0, 100, 200))
    features[::3] = 0
    run(worst, features)
    features[:] = features[1]
    run(worst, features, first_step=5)
