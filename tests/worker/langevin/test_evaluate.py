import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from sklearn import metrics

from app.catalogue.prediction import probabilities
from lethe.encoding.targets import TargetColumn
from lethe.proof.losses import Objective
from lethe.proof.mechanism import Mechanism
from worker.langevin.evaluate import of_classes, of_labels, of_target

Rows = Callable[..., tuple[Any, Any]]
RANGE = TargetColumn(low=20.0, high=140.0)


def test_two_classes_have_logistic_probabilities() -> None:
    """With two classes, the probability of class 1 is 1 / (1 + exp(-score)), and class 0 has the remaining
    probability."""
    features = np.array([[0.6, 0.8], [0.0, 1.0], [0.0, 0.0]], np.float32)
    scores = features.astype(float) @ [2.0, -1.0]
    expected = 1 / (1 + np.exp(-scores))
    actual = probabilities(np.array([[2.0, -1.0]]), features, 2)
    np.testing.assert_allclose(actual, np.column_stack((1 - expected, expected)), rtol=1e-12)


def test_many_classes_have_softmax_probabilities() -> None:
    """With three classes, the probabilities are proportional to the exponentials of the scores."""
    parameters = np.array([[1.0, 0.0], [0.0, 2.0], [-1.0, 1.0]])
    odds = np.exp(parameters @ [0.6, 0.8])
    actual = probabilities(parameters, np.array([[0.6, 0.8]]), 3)
    np.testing.assert_allclose(actual[0], odds / odds.sum(), rtol=1e-12)


@settings(deadline=None)
@given(st.integers(2, 6), st.integers(0, 2**32 - 1), st.floats(0, 1e6))
def test_probabilities_are_valid(num_classes: int, seed: int, scale: float) -> None:
    """For weights of any size, each row of probabilities is finite and nonnegative and sums to 1."""
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
def test_mismatched_shapes_are_refused(
    parameters: tuple[int, ...], features: tuple[int, ...], num_classes: int
) -> None:
    """Weights are refused if their shape does not match the number of classes and features."""
    with pytest.raises(ValueError, match="Expected features"):
        probabilities(np.zeros(parameters), np.zeros(features), num_classes)


def test_accuracy_is_the_share_of_correct_rows(random_rows: Rows) -> None:
    """The accuracy over several blocks is the share of rows whose label is the most probable class."""
    features, labels = random_rows(10_000, 4, 3)
    parameters = np.random.default_rng(1).standard_normal((3, 4))
    expected = float(((features.astype(float) @ parameters.T).argmax(axis=1) == labels).mean())
    found = of_classes(parameters, [(features[:8192], labels[:8192]), (features[8192:], labels[8192:])], 3)
    assert (found["accuracy"], found["evaluated_on"]) == (pytest.approx(expected), 10_000)


@pytest.mark.parametrize("num_classes", [2, 5])
def test_auc_and_log_loss_match_scikit_learn(random_rows: Rows, num_classes: int) -> None:
    """The area under the curve equals scikit-learn's to within the reported error, which is small. The log loss equals
    scikit-learn's up to rounding, even if a probability underflows."""
    features, labels = random_rows(5000, 4, num_classes)
    parameters = np.random.default_rng(1).standard_normal((1 if num_classes == 2 else num_classes, 4))
    for scale in (1.0, 1000.0):
        found = of_classes(scale * parameters, [(features, labels)], num_classes)
        chances = probabilities(scale * parameters, features, num_classes)
        if scale == 1.0:
            target = chances[:, 1] if num_classes == 2 else chances
            area = metrics.roc_auc_score(labels, target, multi_class="ovr")
            assert found["auc"] == pytest.approx(area, abs=found["auc_error"] + 1e-12)
            assert 0 < found["auc_error"] < 1e-3
            assert found["log_loss"] == pytest.approx(metrics.log_loss(labels, chances), rel=1e-9)
        assert np.isfinite([*found.values()]).all()


def test_tied_rows_count_half() -> None:
    """If all rows have the same score, the area under the curve is 1/2. Its reported error is also 1/2, which covers
    every possible value."""
    features, labels = np.ones((10, 2), np.float32), np.arange(10, dtype=np.int32) % 2
    found = of_classes(np.zeros((1, 2)), [(features, labels)], 2)
    assert (found["auc"], found["auc_error"], found["log_loss"]) == (0.5, 0.5, pytest.approx(np.log(2)))
    assert "auc" not in of_classes(np.zeros((1, 2)), [(features[:1], labels[:1])], 2)  # there is only one class


def test_calibration_error_is_the_mean_deviation() -> None:
    """If predictions of 0.9 are right eight times out of ten and predictions of 0.6 six times out of ten, the
    calibration error is half of 0.1."""
    logits = np.repeat([np.log(9), np.log(1.5)], 10)
    labels = np.array([1] * 8 + [0] * 2 + [1] * 6 + [0] * 4, np.int32)
    features = np.column_stack((logits, np.ones(20))).astype(np.float32)
    found = of_classes(np.array([[1.0, 0.0]]), [(features, labels)], 2)
    assert found["calibration_error"] == pytest.approx(0.05, abs=1e-6)
    assert found.keys() - of_classes(np.array([[1.0, 0.0]]), [(features, labels)], 2, is_probable=False).keys() == {
        "log_loss",
        "calibration_error",
    }


def test_accuracy_of_two_classes_follows_the_sign_of_the_score() -> None:
    """With two classes, a positive score predicts class 1 and a negative score predicts class 0."""
    features, labels = np.array([[1, 0], [-1, 0], [0.5, 0], [-0.5, 0]], np.float32), np.array([1, 0, 0, 0], np.int32)
    found = of_classes(np.array([[3.0, 1.0]]), [(features, labels)], 2)
    assert (found["accuracy"], found["evaluated_on"]) == (0.75, 4)


def test_metrics_leave_out_null_rows(random_rows: Rows) -> None:
    """Null rows count as neither right nor wrong, whatever their labels are."""
    features, labels = random_rows(100, 4)
    parameters, nulled = np.random.default_rng(1).standard_normal((1, 4)), features.copy()
    nulled[60:] = 0
    kept, all_of_them = [(features[:60], labels[:60])], [(nulled, labels)]
    assert of_classes(parameters, all_of_them, 2) == of_classes(parameters, kept, 2)
    assert of_target(parameters, all_of_them, RANGE) == of_target(parameters, kept, RANGE)
    assert of_target(parameters, kept, RANGE)["evaluated_on"] == 60


def test_metrics_of_null_rows_are_empty() -> None:
    """If all rows are null, the metrics state 0 evaluated rows and neither an accuracy nor an error."""
    nobody = [(np.zeros((5, 3), np.float32), np.zeros(5, np.int32))]
    assert of_classes(np.zeros((1, 3)), nobody, 2) == {"evaluated_on": 0}
    assert of_target(np.zeros((1, 3)), nobody, RANGE) == {"evaluated_on": 0}


def test_metrics_of_a_target_match_scikit_learn(random_rows: Rows) -> None:
    """R^2 and the mean absolute error equal scikit-learn's in the units of the target, for predictions clipped to the
    target's range."""
    features, _ = random_rows(5000, 4)
    values = np.random.default_rng(2).uniform(RANGE.low, RANGE.high, 5000)
    parameters = np.array([[1.5, -0.5, 0.2, 0.0]])
    rows = [(features, RANGE.labels(values))]
    half = (RANGE.high - RANGE.low) / 2
    guesses = RANGE.low + half + half * np.clip(features.astype(float) @ parameters[0], -1, 1)
    assert of_target(parameters, rows, RANGE) == {
        "r_squared": pytest.approx(metrics.r2_score(values, guesses), abs=1e-6),
        "mean_absolute_error": pytest.approx(metrics.mean_absolute_error(values, guesses), rel=1e-6),
        "evaluated_on": 5000,
    }


def test_metrics_of_counts_match_scikit_learn(random_rows: Rows) -> None:
    """R^2, the mean absolute error and the mean Poisson deviance equal scikit-learn's for rates in units of the counts.
    No rate exceeds the bound, and a rate near 0 has a finite deviance."""
    features, _ = random_rows(5000, 4)
    counts = np.minimum(np.random.default_rng(2).poisson(3, 5000), 12)
    parameters, target = np.array([[2.5, -0.5, 0.2, 0.0]]), TargetColumn(low=0, high=12, counts=True)
    made = Mechanism(
        objective=Objective.POISSON_REGRESSION,
        num_slots=5000,
        num_classes=1,
        l2=0.1,
        step_size=0.5,
        noise_scale=0.1,
        radius=9.0,
        learn_steps=9,
        loss_width=1.5,
    )
    rates = 12 * np.exp(np.minimum(features.astype(float) @ parameters[0] - 1.5, 0))
    assert (rates == 12).any()
    assert of_target(parameters, [(features, target.labels(counts))], target, made) == {
        "r_squared": pytest.approx(metrics.r2_score(counts, rates), abs=1e-5),
        "mean_absolute_error": pytest.approx(metrics.mean_absolute_error(counts, rates), rel=1e-6),
        "mean_poisson_deviance": pytest.approx(metrics.mean_poisson_deviance(counts, rates), rel=1e-6),
        "evaluated_on": 5000,
    }
    far = of_target(np.array([[1e4, 0.0, 0.0, 0.0]]), [(features, target.labels(counts))], target, made)
    assert 100 < far["mean_poisson_deviance"] < 1e5


def test_metrics_of_labels_count_labels_and_rows() -> None:
    """If five of six labels are right, so that two of three rows are right, the metrics state both shares. A
    null row is not counted."""
    features, labels = np.array([[1, 0], [0, 1], [-1, 0], [0, 0]], np.float32), np.array([1, 2, 2, 3], np.int32)
    parameters = np.array([[2.0, -1.0], [-1.0, -1.0]])  # predicts 01, 00, 10, and no label for the null row
    found = of_labels(parameters, [(features, labels)])
    assert (found["label_accuracy"], found["exact_match"], found["evaluated_on"]) == (5 / 6, 2 / 3, 3)
    has = np.array([[1, 0], [0, 1], [0, 1]])
    chances = 1 / (1 + np.exp(-features[:3].astype(float) @ parameters.T))
    assert found["log_loss"] == pytest.approx(
        np.mean([metrics.log_loss(*one) for one in zip(has.T, chances.T, strict=True)])
    )
    assert found["auc"] == pytest.approx(metrics.roc_auc_score(has, chances), abs=found["auc_error"] + 1e-12)
    assert found["calibration_error"] == pytest.approx(np.abs(has - chances).mean(), abs=0.2)
    assert of_labels(parameters, [(features[3:], labels[3:])]) == {"evaluated_on": 0}


def test_equal_targets_have_no_r_squared(random_rows: Rows) -> None:
    """If all targets are equal, R^2 is omitted because it would divide by zero, and the error is still measured."""
    features, _ = random_rows(50, 4)
    rows = [(features, RANGE.labels(np.full(50, 70.0)))]
    assert of_target(np.zeros((1, 4)), rows, RANGE) == {
        "mean_absolute_error": pytest.approx(10.0, rel=1e-6),
        "evaluated_on": 50,
    }


@pytest.mark.slow
def test_evaluation_does_not_import_torch() -> None:
    """Importing `app.catalogue.evaluation`, the part of the evaluation that the gateway uses, does not import torch."""
    script = "import sys, app.catalogue.evaluation; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
