import math
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.catalogue.prediction import probabilities
from worker.langevin.evaluate import accuracy

Rows = Callable[..., tuple[Any, Any]]


def test_two_classes_are_the_logistic_function_of_the_score() -> None:
    """For two classes the probability of class 1 is 1 / (1 + exp(-score)) and that of class 0 the rest."""
    features = np.array([[0.6, 0.8], [0.0, 1.0], [0.0, 0.0]], np.float32)
    scores = features.astype(float) @ [2.0, -1.0]
    expected = 1 / (1 + np.exp(-scores))
    actual = probabilities(np.array([[2.0, -1.0]]), features, 2)
    np.testing.assert_allclose(actual, np.column_stack((1 - expected, expected)), rtol=1e-12)


def test_many_classes_are_the_softmax_of_the_scores() -> None:
    """For more classes the probabilities are proportional to the exponentials of the scores."""
    parameters = np.array([[1.0, 0.0], [0.0, 2.0], [-1.0, 1.0]])
    odds = np.exp(parameters @ [0.6, 0.8])
    actual = probabilities(parameters, np.array([[0.6, 0.8]]), 3)
    np.testing.assert_allclose(actual[0], odds / odds.sum(), rtol=1e-12)


@settings(deadline=None)
@given(st.integers(2, 6), st.integers(0, 2**32 - 1), st.floats(0, 1e6))
def test_probabilities_are_probabilities(num_classes: int, seed: int, scale: float) -> None:
    """At any size of the weights each row of probabilities is finite, not negative and sums to 1."""
    generator = np.random.default_rng(seed)
    parameters = scale * generator.standard_normal((1 if num_classes == 2 else num_classes, 3))
    actual = probabilities(parameters, generator.standard_normal((4, 3)), num_classes)
    assert (actual.shape, actual.dtype) == ((4, num_classes), np.float64)
    assert (actual >= 0).all()
    np.testing.assert_allclose(actual.sum(axis=1), 1, rtol=1e-12)


@pytest.mark.parametrize(
    ("parameters", "features", "num_classes"),
    [((2, 3), (4, 3), 2), ((1, 3), (4, 3), 3), ((1, 3), (4, 2), 2), ((1, 3), (3,), 2), ((1, 3), (4, 3), 1)],
)
def test_shapes_that_do_not_fit_are_refused(
    parameters: tuple[int, ...], features: tuple[int, ...], num_classes: int
) -> None:
    """Weights of another model than the number of classes and features says are refused."""
    with pytest.raises(ValueError, match="Expected features"):
        probabilities(np.zeros(parameters), np.zeros(features), num_classes)


def test_accuracy_counts_the_rows_that_are_guessed_right(random_rows: Rows) -> None:
    """Accuracy over several blocks is the share of labels that are the most probable class."""
    features, labels = random_rows(10_000, 4, 3)
    parameters = np.random.default_rng(1).standard_normal((3, 4))
    expected = float(((features.astype(float) @ parameters.T).argmax(axis=1) == labels).mean())
    assert accuracy(parameters, features, labels, 3) == (pytest.approx(expected), 10_000)


def test_accuracy_of_two_classes_follows_the_sign_of_the_score() -> None:
    """For two classes a positive score is a guess of class 1, a negative one of class 0."""
    features, labels = np.array([[1, 0], [-1, 0], [0.5, 0], [-0.5, 0]], np.float32), np.array([1, 0, 0, 0], np.int32)
    assert accuracy(np.array([[3.0, 1.0]]), features, labels, 2) == (0.75, 4)


def test_accuracy_leaves_out_null_rows(random_rows: Rows) -> None:
    """Null rows are neither right nor wrong, whatever their label."""
    features, labels = random_rows(100, 4)
    parameters = np.random.default_rng(1).standard_normal((1, 4))
    share, counted = accuracy(parameters, features[:60], labels[:60], 2)
    features[60:] = 0
    assert accuracy(parameters, features, labels, 2) == (share, counted)
    assert counted == 60


def test_accuracy_on_nobody_is_not_a_number() -> None:
    """When only null rows are left the answer is not-a-number of 0 rows, not 0 % and not 100 %."""
    share, counted = accuracy(np.zeros((1, 3)), np.zeros((5, 3), np.float32), np.zeros(5, np.int32), 2)
    assert math.isnan(share)
    assert counted == 0


def test_predicting_does_not_need_torch() -> None:
    """The gateway's half of this, `app.catalogue.prediction`, is imported without torch."""
    script = "import sys, app.catalogue.prediction; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
