"""The scikit-learn models that a dry run is compared with."""

import numpy as np
import pytest

from lethe.contract.sets import Metric
from lethe.encoding.targets import TargetColumn
from lethe.features.tables.fitting import Learned
from lethe.features.tables.rivals import scikit_learn
from lethe.proof.losses import Objective


@pytest.mark.slow
@pytest.mark.parametrize(
    ("objective", "metric", "name"),
    [
        (Objective.HUBER_REGRESSION, Metric.R_SQUARED, "ridge regression"),
        (Objective.HUBER_REGRESSION, Metric.MEAN_ABSOLUTE_ERROR, "Huber regression"),
        (Objective.POISSON_REGRESSION, Metric.MEAN_ABSOLUTE_ERROR, "Huber regression"),
        (Objective.POISSON_REGRESSION, Metric.MEAN_POISSON_DEVIANCE, "Poisson regression"),
    ],
)
@pytest.mark.parametrize("num_train", [5, 200])
def test_the_best_scikit_learn_model_depends_on_the_metric(
    objective: Objective, metric: Metric, name: str, num_train: int
) -> None:
    """For counts with outliers on one side, the best scikit-learn model is least squares if models are judged by r
    squared, Huber regression if they are judged by the absolute error, and a rate model if they are judged by a
    deviance. Even with only a few rows, a best model is found."""
    random = np.random.default_rng(2)
    x = random.uniform(-1, 1, size=(300, 2))
    counts = np.where(random.uniform(size=300) < 0.25, 40, np.rint(10 + 5 * x[:, 0]))
    labels = TargetColumn(low=0, high=40, counts=True).labels(counts)
    learned = Learned.of(objective, labels, 1, metric=metric, half_range=20.0)
    found = scikit_learn(x, learned, np.arange(num_train), np.arange(200, 300))
    assert found is not None
    if num_train < 10 and metric is not Metric.MEAN_POISSON_DEVIANCE:
        name = "ridge regression"
    assert found[0] == name
    assert np.isfinite(found[1])
