"""Numbers of a rehearsal: losses, accuracies, and the attack."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

from lethe.encoding.targets import TargetColumn
from tests.worker.langevin.conftest import mechanism_of
from tests.worker.langevin.test_losses import (
    COUNTS,
    HINGE,
    HUBER,
    LABELS,
    SQUARES,
    classes_of,
    labelled,
    parameters_of,
)
from worker.features.rehearsals.runs import Measure, attack
from worker.langevin import evaluate
from worker.langevin.gradient import HostRows
from worker.langevin.losses import LOGISTIC, Loss


def measure_of(loss: Loss, num_classes: int) -> Measure:
    """Return the `Measure` for a model with this loss."""
    made = replace(
        mechanism_of(), objective=loss.objective, num_classes=num_classes, loss_width=loss.width, step_size=0.5
    )
    return Measure(mechanism=made)


@pytest.mark.parametrize(
    ("loss", "num_classes"),
    [(LOGISTIC, 2), (LOGISTIC, 3), (HUBER, 1), (SQUARES, 1), (HINGE, 2), (LABELS, 3), (COUNTS, 1)],
)
def test_slopes_of_losses_match_the_gradient(loss: Loss, num_classes: int) -> None:
    """For every objective, the derivative of the summed losses equals the gradient used in a training step."""
    features, labels = labelled(loss, 50, 4)
    if loss is LOGISTIC:
        labels = np.arange(50, dtype=np.int32) % num_classes
    at = torch.from_numpy(np.random.default_rng(1).standard_normal((loss.weight_rows(num_classes), 4)))
    measure = measure_of(loss, num_classes)
    many = num_classes if loss is LABELS else 1

    def total(parameters: np.ndarray) -> float:
        return many * float(measure.losses(measure.scores(parameters, features, labels), labels).sum())

    slopes = np.zeros(at.shape)
    for place in np.ndindex(*at.shape):
        moved = np.zeros(at.shape)
        moved[place] = 1e-5
        slopes[place] = (total(at.numpy() + moved) - total(at.numpy() - moved)) / 2e-5
    expected = HostRows(features, labels, num_classes=num_classes, loss=loss).gradient(at)
    np.testing.assert_allclose(slopes, expected.numpy(), atol=2e-4)


def test_metrics_match_those_of_versions() -> None:
    """Accuracy, loss and error agree to two digits with a version's metrics."""
    generator = np.random.default_rng(2)
    features = generator.standard_normal((40, 4)).astype(np.float32)
    for num_classes in (2, 3):
        labels = generator.integers(0, num_classes, 40).astype(np.int32)
        parameters = generator.standard_normal((1 if num_classes == 2 else 3, 4))
        measure = measure_of(LOGISTIC, num_classes)
        found = measure.of(measure.scores(parameters, features, labels), labels)
        expected = evaluate.of_classes(parameters, [(features, labels)], num_classes)
        assert found.rows == 40
        assert (found.accuracy, found.loss) == (
            round(expected["accuracy"], 2),
            float(f"{expected['log_loss']:.2g}"),
        )
    features, labels = labelled(LABELS, 40, 4)
    parameters = parameters_of(LABELS, 4).numpy()
    measure = measure_of(LABELS, classes_of(LABELS))
    found = measure.of(measure.scores(parameters, features, labels), labels)
    said = evaluate.of_labels(parameters, [(features, labels)])
    assert (found.accuracy, found.loss) == (round(said["label_accuracy"], 2), float(f"{said['log_loss']:.2g}"))
    features, labels = labelled(HUBER, 40, 4)
    parameters, target = parameters_of(HUBER, 4).numpy(), TargetColumn(low=0, high=200)
    measure = replace(measure_of(HUBER, 1), target=target)
    found = measure.of(measure.scores(parameters, features, labels), labels)
    said = evaluate.of_target(parameters, [(features, labels)], target)
    assert found.accuracy is None
    assert found.mean_absolute_error == pytest.approx(said["mean_absolute_error"], rel=0.05)
    measure = replace(measure_of(COUNTS, 1), target=TargetColumn(low=0, high=200, counts=True))
    found = measure.of(measure.scores(parameters, features, labels), labels)
    said = evaluate.of_target(parameters, [(features, labels)], target, measure.mechanism)
    assert found.mean_absolute_error == pytest.approx(said["mean_absolute_error"], rel=0.05)


def test_numbers_are_rounded() -> None:
    """In reports, numbers of rows and losses are rounded to two significant digits, and accuracies to whole
    percentages."""
    generator = np.random.default_rng(4)
    features = generator.standard_normal((5678, 4)).astype(np.float32)
    labels = (features[:, 0] > 0.3).astype(np.int32)
    measure = measure_of(LOGISTIC, 2)
    found = measure.of(measure.scores(np.array([[2.0, 0, 0, 0]]), features, labels), labels)
    assert found.rows == 5700
    assert found.accuracy is not None
    assert (f"{found.accuracy:.2f}", f"{found.loss:.2g}") == (str(found.accuracy), str(found.loss))


def test_the_attack_matches_scikit_learn() -> None:
    """The attack's AUC equals the one computed by scikit-learn, with ties counted as one half. Its standard error
    follows Hanley and McNeil."""
    generator = np.random.default_rng(3)
    members, others = generator.normal(0, 1, 60).round(1), generator.normal(0.5, 1, 80).round(1)
    truth = np.repeat([1, 0], [60, 80])
    found = attack(members, others)
    assert found.auc == pytest.approx(roc_auc_score(truth, -np.concatenate((members, others))), abs=0.005)
    assert 0.03 < found.standard_error < 0.06
    coin = attack(np.zeros(10), np.zeros(10))
    assert coin.auc == 0.5
    assert attack(np.zeros(10), np.ones(10)).standard_error == 0
