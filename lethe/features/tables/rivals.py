"""scikit-learn models on the same features, which show the accuracy attainable without any guarantee."""

import importlib.util
import warnings
from typing import Any

import numpy as np

from lethe.contract.sets import Metric
from lethe.features.tables.fitting import Floats, Learned, Places
from lethe.proof.losses import Objective

_FOLDS = 3
_SCORING = {
    Metric.R_SQUARED: "r2",
    Metric.MEAN_ABSOLUTE_ERROR: "neg_mean_absolute_error",
    Metric.MEAN_POISSON_DEVIANCE: "neg_mean_poisson_deviance",
}


def scikit_learn(
    features: Floats, learned: Learned, train: Places, test: Places, factors: Floats | None = None
) -> tuple[str, float] | None:
    """Return the name of a tuned model and its metric on the test rows. The result is None for log_loss, and if
    scikit-learn is not installed or all training rows have the same value.

    Targets are fitted by ridge or Huber regression, and counts by Poisson regression as well; cross-validation on the
    training rows selects the best. mean_poisson_deviance needs positive rates, so it uses only Poisson regression.
    Classes are fitted by a single logistic regression, labels by one per label. `factors` multiply the rows' losses.
    """
    if learned.metric is Metric.LOG_LOSS or importlib.util.find_spec("sklearn") is None:
        return None
    if np.ptp(learned.values[train], axis=0).max() == 0:
        return None
    from sklearn.exceptions import ConvergenceWarning

    held_out = learned.at(test)
    weights = None if factors is None else factors[train]
    with warnings.catch_warnings():
        # A candidate that does not converge leaves the others in the search.
        warnings.simplefilter("ignore", ConvergenceWarning)
        if learned.objective.is_regression:
            # Shares of the range, or of the bound of counts.
            shares = (learned.values[train, 0] + 1) / 2
            name, model = _regression(features[train], shares, learned, weights)
            return name, held_out.share(2 * model.predict(features[test])[:, np.newaxis] - 1)
        predicted = [
            _logistic(features[train], classes, features[test], weights) for classes in learned.values[train].T
        ]
    name = "logistic regression" if len(predicted) == 1 else "a logistic regression for each label"
    return name, held_out.share(np.stack(predicted, axis=1))


def _regression(features: Floats, target: Floats, learned: Learned, weights: Floats | None) -> tuple[str, Any]:
    from sklearn.linear_model import HuberRegressor, PoissonRegressor, Ridge
    from sklearn.model_selection import GridSearchCV

    candidates: dict[str, tuple[Any, list[float]]] = {}
    if learned.metric is not Metric.MEAN_POISSON_DEVIANCE:
        candidates["ridge regression"] = Ridge(), [0.01, 0.1, 1, 10, 100]
        candidates["Huber regression"] = HuberRegressor(max_iter=500), [1e-4, 1, 100]
    if learned.objective is Objective.POISSON_REGRESSION:
        candidates["Poisson regression"] = PoissonRegressor(max_iter=500), [1e-6, 1e-4, 1e-3, 1e-2, 0.1]
    if len(target) < 2 * _FOLDS:
        name, (model, _) = next(iter(candidates.items()))
        return name, model.fit(features, target, sample_weight=weights)
    searches = {
        name: GridSearchCV(model, {"alpha": alphas}, scoring=_SCORING[learned.metric], cv=_FOLDS)
        for name, (model, alphas) in candidates.items()
    }
    for search in searches.values():
        search.fit(features, target, sample_weight=weights)
    return max(searches.items(), key=lambda item: float(item[1].best_score_))


def _logistic(features: Floats, classes: Floats, others: Floats, weights: Floats | None) -> Floats:
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GridSearchCV

    counts = np.unique(classes, return_counts=True)[1]
    if len(counts) == 1:
        return np.full(len(others), classes[0])
    model: Any = LogisticRegression(max_iter=2000)
    if counts.min() >= _FOLDS:
        model = GridSearchCV(model, {"C": [0.01, 0.1, 1, 10, 100]}, cv=_FOLDS)
    return np.asarray(model.fit(features, classes, sample_weight=weights).predict(others), dtype=np.float64)
