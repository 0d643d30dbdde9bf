"""Metrics of a dry run, compared with those of workers."""

import math

import numpy as np
import pandas as pd
import pytest

from lethe.contract.problems import PreconditionFailed
from lethe.encoding.rows import unit_rows
from lethe.encoding.targets import TargetColumn
from lethe.features.insight import costs
from lethe.features.tables.fitting import FittingProblem, Learned, LinearRows, metrics_of
from lethe.features.tables.previewing import preview
from lethe.proof import calibration
from lethe.proof.losses import Objective, num_weight_rows
from worker.langevin import evaluate

MEASURED = [
    (Objective.LOGISTIC_REGRESSION, 2, None),
    (Objective.LOGISTIC_REGRESSION, 3, None),
    (Objective.MULTILABEL_LOGISTIC_REGRESSION, 3, None),
    (Objective.SMOOTHED_HINGE, 2, None),
    (Objective.HUBER_REGRESSION, 1, TargetColumn(low=10, high=250)),
    (Objective.POISSON_REGRESSION, 1, TargetColumn(low=0, high=40, counts=True)),
]


@pytest.mark.parametrize(("objective", "num_classes", "target"), MEASURED)
def test_metrics_match_the_gateway(objective: Objective, num_classes: int, target: TargetColumn | None) -> None:
    """Each metric of a dry run equals the one that a worker measures on the same rows and weights. The best constant
    prediction is at least as good as predicting a score of 0 for every row. A metric that is not available for the
    objective is refused."""
    random = np.random.default_rng(3)
    several = objective is Objective.MULTILABEL_LOGISTIC_REGRESSION
    mechanism = calibration.mechanism_for(
        calibration.ModelSettings(epsilon=1.0, delta=1e-5), num_slots=300, num_classes=num_classes, objective=objective
    )
    rows = unit_rows(random.normal(size=(300, 4)))
    weights = 2 * random.normal(size=(num_weight_rows(num_classes, objective), 5))
    labels = random.integers(0, 8 if several else num_classes, 300).astype(np.int32)
    if target:
        labels = target.labels(np.rint(random.uniform(target.low, target.high, 300)))
        said = evaluate.of_target(weights, [(rows, labels)], target, mechanism)
    elif several:
        said = evaluate.of_labels(weights, [(rows, labels)])
    else:
        said = evaluate.of_classes(weights, [(rows, labels)], num_classes, is_probable=mechanism.loss_width is None)
    for metric in metrics_of(objective):
        half_range = (target.high - target.low) / 2 if target else 1.0
        learned = Learned.of(objective, labels, num_classes, metric=metric, half_range=half_range)
        scores = rows.astype(np.float64) @ weights.T
        found = learned.share_of_scores(scores, mechanism.loss_width or math.inf)
        assert found == pytest.approx(said[metric], rel=1e-5), metric
        same = learned.share_of_scores(np.zeros_like(scores), mechanism.loss_width or math.inf)
        assert learned.majority() <= same if metric.less_is_better else learned.majority() >= same, metric
    table = pd.DataFrame({"x": [1.0, 2.0], "y": ["a", "b"]})
    schema = {
        "columns": {"x": {"kind": "standard", "center": 0, "scale": 1}, "y": {"role": "label", "values": ["a", "b"]}}
    }
    with pytest.raises(PreconditionFailed, match="not available for"):
        preview(table, schema=schema, metric="r_squared")


def test_plans_count_the_rounding_of_each_parameter() -> None:
    """A plan uses the gateway's own mechanism, in which every step rounds all parameters. A target below the privacy
    loss that this rounding causes therefore cannot be reached."""
    random = np.random.default_rng(5)
    labels = random.integers(0, 3, 200).astype(np.int32)
    learned = Learned.of(Objective.LOGISTIC_REGRESSION, labels, 3)
    rows = LinearRows(unit_rows(random.normal(size=(200, 4))).astype(np.float64), 3)
    problem = FittingProblem(rows, learned, np.arange(150), np.arange(150, 200))
    tiny = calibration.ModelSettings(epsilon=1e-9, delta=1e-9, l2=0.01)
    plan = problem.plan(tiny, random)
    assert plan.request_passes is None
    for num_parameters, is_reached in ((15, False), (None, True)):
        mechanism = calibration.mechanism_for(tiny, num_slots=150, num_classes=3, num_parameters=num_parameters)
        cost = costs.of(mechanism, epsilon=1e-9, delta=1e-9)
        assert (cost.request_passes is not None) is is_reached
        assert plan.noise == cost.noise
