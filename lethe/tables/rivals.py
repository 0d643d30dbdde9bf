"""The models that scikit-learn fits to the same features: what there is to be had without forgetting."""

import importlib.util
import warnings
from typing import Any

import numpy as np

from lethe.contract.sets import Metric
from lethe.proof.losses import Objective
from lethe.tables.fitting import Floats, Learned, Places

_FOLDS = 3
_SCORING = {
    Metric.R_SQUARED: "r2",
    Metric.MEAN_ABSOLUTE_ERROR: "neg_mean_absolute_error",
    Metric.MEAN_POISSON_DEVIANCE: "neg_mean_poisson_deviance",
}


def scikit_learn(
    features: Floats, learned: Learned, train: Places, test: Places, factors: Floats | None = None
) -> tuple[str, float] | None:
    """The tuned model that suits what is learned, and its metric on the test rows; None where scikit-learn is not
    installed, or there is nothing to tell apart, and of the log loss.

    Of a target, ridge or Huber regression, of counts Poisson regression too, whichever is better by the metric in
    cross-validation on the train rows, and Poisson regression alone by its deviance, which no line has; of several
    labels, a logistic regression for each; else one. `factors`: of the losses of rows.
    """
    if learned.metric is Metric.LOG_LOSS or importlib.util.find_spec("sklearn") is None:
        return None
    if np.ptp(learned.values[train], axis=0).max() == 0:
        return None
    from sklearn.exceptions import ConvergenceWarning

    held_out = learned.at(test)
    weights = None if factors is None else factors[train]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # a candidate of a search: the others stand
        if learned.objective.is_regression:
            shares = (learned.values[train, 0] + 1) / 2  # of the range, or of the bound of counts
            name, model = _regression(features[train], shares, learned, weights)
            return name, held_out.share(2 * model.predict(features[test])[:, np.newaxis] - 1)
        guessed = [
            _logistic(features[train], learned.values[train, one], features[test], weights)
            for one in range(learned.values.shape[1])
        ]
    name = "logistic regression" if len(guessed) == 1 else "a logistic regression for each label"
    return name, held_out.share(np.stack(guessed, axis=1))


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
    found = {
        name: GridSearchCV(model, {"alpha": alphas}, scoring=_SCORING[learned.metric], cv=_FOLDS)
        for name, (model, alphas) in candidates.items()
    }
    for one in found.values():
        one.fit(features, target, sample_weight=weights)
    return max(found.items(), key=lambda one: float(one[1].best_score_))


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
