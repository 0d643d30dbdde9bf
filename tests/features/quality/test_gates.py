"""Gates of quality and their breaches."""

import math
from typing import Any

import pytest

from app.features.quality.gates import Gate, measured, to_stored
from lethe.contract.models import QualityIn
from lethe.contract.problems import PreconditionFailed
from lethe.contract.sets import Metric, OnBreach
from lethe.proof.calibration import ModelSettings, mechanism_for
from lethe.proof.losses import Objective
from lethe.proof.mechanism import Mechanism
from tests.tables import each


def gate(metric: Metric, threshold: float) -> Gate:
    return Gate(metric=metric, threshold=threshold, on_breach=OnBreach.HOLD)


@each(
    ("metric", "value", "is_met"),
    [
        (Metric.AUC, 0.8, True),
        (Metric.AUC, 0.79, False),
        (Metric.LOG_LOSS, 0.8, True),
        (Metric.LOG_LOSS, 0.81, False),
        (Metric.MEAN_ABSOLUTE_ERROR, 0, True),
        (Metric.R_SQUARED, -3.0, False),
    ],
)
def test_a_value_at_the_threshold_meets_the_gate(metric: Metric, value: float, is_met: bool) -> None:
    """A metric meets its gate if it equals the threshold or is better."""
    assert gate(metric, 0.8).is_met({metric: value}) is is_met


@each("metric", list(Metric))
@each("value", [math.nan, math.inf, -math.inf, None, "0.9"])
def test_a_missing_metric_is_a_breach(metric: Metric, value: Any) -> None:
    """A metric that is missing or NaN never meets its gate, whether higher or lower values are better."""
    assert not gate(metric, 0.0).is_met({metric: value})
    assert not gate(metric, 0.0).is_met({})


def mechanism(objective: Objective, num_classes: int) -> Mechanism:
    return mechanism_for(
        ModelSettings(epsilon=1.0, delta=1e-4), num_slots=1000, num_classes=num_classes, objective=objective
    )


@each(
    ("objective", "num_classes", "metric"),
    [
        (Objective.LEAST_SQUARES, 1, Metric.ACCURACY),
        (Objective.SMOOTHED_HINGE, 2, Metric.LOG_LOSS),
        (Objective.LOGISTIC_REGRESSION, 65, Metric.AUC),
        (Objective.MULTILABEL_LOGISTIC_REGRESSION, 3, Metric.ACCURACY),
    ],
)
def test_a_gate_on_an_unmeasured_metric_is_refused(objective: Objective, num_classes: int, metric: Metric) -> None:
    """A gate on a metric that the task does not have, or without evaluation data, is refused with a specific error."""
    of_it = mechanism(objective, num_classes)
    with pytest.raises(PreconditionFailed, match=f"{metric} is not available") as caught:
        to_stored(QualityIn(metric=metric, threshold=0.5), of_it, True)
    assert caught.value.errors[0].path == "quality.metric"
    known = measured(of_it)[0]
    with pytest.raises(PreconditionFailed, match="evaluation_dataset_id"):
        to_stored(QualityIn(metric=known, threshold=0.5), of_it, False)
    assert to_stored(QualityIn(metric=known, threshold=0.5), of_it, True) == {
        "metric": known,
        "threshold": 0.5,
        "on_breach": "publish_degraded",
    }
