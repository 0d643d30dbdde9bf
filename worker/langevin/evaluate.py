"""A model's metrics on the rows of an evaluation dataset."""

import math
from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from app.catalogue.prediction import MAX_RANKED_CLASSES, scores
from lethe.encoding.targets import UNIT, TargetColumn, y_of_rates
from lethe.proof.losses import Objective
from lethe.proof.mechanism import Mechanism
from worker.langevin.window import blocks

MAX_LOG_ODDS = 16.0
GRID = 2**14
"""Number of intervals in the public grid from -`MAX_LOG_ODDS` to `MAX_LOG_ODDS` that is used to rank rows."""
CALIBRATION_BINS = 15

LabelledRows: TypeAlias = tuple[NDArray[np.float32], NDArray[np.int32]]
"""Rows (n, d) and their labels (n,). Null rows are not counted."""


def of_classes(
    parameters: NDArray[np.float64], batches: Iterable[LabelledRows], num_classes: int, *, is_probable: bool = True
) -> dict[str, Any]:
    """Return `accuracy`, the share of rows whose most probable class is their label, and `evaluated_on`, the row count.

    `auc` (`Ranking`) is for class 1 if there are two classes, otherwise the mean over all classes, each against the
    rest. If `is_probable`, scores are log-odds, and the result also contains `log_loss`, the mean of -log(probability
    of the label) in nats, and the `calibration_error` (`Calibration`) of the predicted class's probability.
    """
    right = num_rows = 0
    lost = 0.0
    ranking = Ranking.of(1 if num_classes == 2 else num_classes)
    calibration = Calibration()
    for features, labels in _present(batches):
        logs = _log_probabilities(parameters, features, num_classes)  # (b, C)
        guesses = logs.argmax(axis=1)
        right += int((guesses == labels).sum())
        num_rows += len(labels)
        lost -= float(np.take_along_axis(logs, labels[:, None], axis=1).sum())
        calibration.add(np.exp(logs.max(axis=1)), guesses == labels)
        if ranking:
            ranked = logs[:, 1:] if num_classes == 2 else logs
            ranking.add(_log_odds(ranked), labels[:, None] == np.arange(num_classes)[-ranked.shape[1] :])
    if not num_rows:
        return {"evaluated_on": 0}
    probable = {"log_loss": lost / num_rows, "calibration_error": calibration.error()} if is_probable else {}
    return {"accuracy": right / num_rows} | (ranking.auc() if ranking else {}) | probable | {"evaluated_on": num_rows}


def of_labels(parameters: NDArray[np.float64], batches: Iterable[LabelledRows]) -> dict[str, Any]:
    """Return `label_accuracy`, the share of all (row, label) pairs predicted correctly, and `exact_match`, the share of
    rows with every label correct. The other metrics are as in `of_classes`: the mean of the labels' `auc`, and, over
    all labels, the `log_loss` and `calibration_error` of the probability of having the label."""
    right = exact = num_rows = 0
    lost = 0.0
    ranking, calibration = Ranking.of(len(parameters)), Calibration()
    for features, labels in _present(batches):
        has = (labels[:, None] >> np.arange(len(parameters)) & 1).astype(bool)  # (b, C)
        log_odds = scores(parameters, features)
        is_right = (log_odds > 0) == has
        right, exact = right + int(is_right.sum()), exact + int(is_right.all(axis=1).sum())
        num_rows += len(labels)
        lost += float(np.logaddexp(0, np.where(has, -log_odds, log_odds)).sum())
        calibration.add(0.5 * (1 + np.tanh(log_odds / 2)), has)
        if ranking:
            ranking.add(log_odds, has)
    if not num_rows:
        return {"evaluated_on": 0}
    shares = {"label_accuracy": right / (num_rows * len(parameters)), "exact_match": exact / num_rows}
    probable = {"log_loss": lost / (num_rows * len(parameters)), "calibration_error": calibration.error()}
    return shares | (ranking.auc() if ranking else {}) | probable | {"evaluated_on": num_rows}


def of_target(
    parameters: NDArray[np.float64],
    batches: Iterable[LabelledRows],
    target: TargetColumn,
    mechanism: Mechanism | None = None,
) -> dict[str, Any]:
    """Return `r_squared`, 1 minus the ratio of squared errors to squared distances from the mean (omitted if all
    targets are equal); `mean_absolute_error` in the target's units; `mean_poisson_deviance` for Poisson regression; and
    `evaluated_on`, the number of rows. `mechanism` is None if the scores are the target itself."""
    num_rows, total, squares, missed, absolute, deviance = 0, 0.0, 0.0, 0.0, 0.0, 0.0
    bend = mechanism.loss_width if mechanism and mechanism.objective is Objective.POISSON_REGRESSION else None
    for features, labels in _present(batches):
        values = target.values(labels / UNIT) - target.low  # (b,)
        of_rows = scores(parameters, features)[:, 0]
        predictions = of_rows if bend is None else y_of_rates(of_rows, bend)
        errors = target.values(predictions) - target.low - values
        if bend is not None:
            deviance += _deviance(np.rint(values), math.log(target.high) + np.minimum(of_rows - bend, 0))
        num_rows += len(labels)
        total, squares = total + float(values.sum()), squares + float(values @ values)
        missed, absolute = missed + float(errors @ errors), absolute + float(np.abs(errors).sum())
    apart = squares - total * total / max(num_rows, 1)
    return (
        ({"r_squared": 1 - missed / apart} if apart > 1e-12 * squares else {})
        | ({"mean_absolute_error": absolute / num_rows} if num_rows else {})
        | ({"mean_poisson_deviance": deviance / num_rows} if num_rows and bend is not None else {})
        | {"evaluated_on": num_rows}
    )


def _deviance(counts: NDArray[np.float64], logs: NDArray[np.float64]) -> float:
    """Return the sum of 2 (y log(y / rate) - y + rate), given the logarithms of the rates."""
    own = counts * np.log(np.maximum(counts, 1))
    return float(2 * (own - counts * logs - counts + np.exp(logs)).sum())


class Ranking:
    """Area under the ROC curve of each of several classes, in memory that does not grow with the number of rows.

    Rows are counted by the interval of a fixed public grid that contains their log-odds, and two rows in the same
    interval count as tied. `auc_error` bounds the resulting error: it is half the share of tied pairs among all pairs
    of a row in the class and a row outside it.
    """

    def __init__(self, num_classes: int) -> None:
        # Counts of rows without the class, and of rows with it.
        self._counts = np.zeros((2, num_classes, GRID), np.int64)

    @classmethod
    def of(cls, num_classes: int) -> "Ranking | None":
        """Return a ranking of `num_classes` classes, or None above MAX_RANKED_CLASSES."""
        return cls(num_classes) if num_classes <= MAX_RANKED_CLASSES else None

    def add(self, log_odds: NDArray[np.float64], has: NDArray[np.bool_]) -> None:  # (b, C) each
        place = (np.clip(log_odds, -MAX_LOG_ODDS, MAX_LOG_ODDS) + MAX_LOG_ODDS) * (GRID / (2 * MAX_LOG_ODDS))
        cells = np.minimum(place.astype(np.int64), GRID - 1)
        for number in range(cells.shape[1]):
            for present in (0, 1):
                mine = cells[has[:, number] == bool(present), number]
                self._counts[present, number] += np.bincount(mine, minlength=GRID)

    def auc(self) -> dict[str, float]:
        """Return `auc` and `auc_error`, averaged over the classes that some but not all rows have, or an empty dict if
        there is no such class."""
        without, having = self._counts.astype(np.float64)  # (C, GRID) each
        pairs = without.sum(axis=1) * having.sum(axis=1)  # (C,)
        ranked = pairs > 0
        if not ranked.any():
            return {}
        below = np.cumsum(without, axis=1) - without
        tied = (having * without).sum(axis=1) / 2
        areas = ((having * below).sum(axis=1) + tied)[ranked] / pairs[ranked]
        return {"auc": float(areas.mean()), "auc_error": float((tied[ranked] / pairs[ranked]).mean())}


class Calibration:
    """Expected calibration error (Guo et al. 2017): the mean over rows of the difference between the mean probability
    and the observed frequency in the row's bin, with `CALIBRATION_BINS` equal bins of probability."""

    def __init__(self) -> None:
        # Per bin: number of rows, sum of probabilities, number of true events.
        self._sums = np.zeros((3, CALIBRATION_BINS))

    def add(self, chances: NDArray[np.float64], is_true: NDArray[np.bool_]) -> None:  # (n,) or (b, C) each
        chances, is_true = chances.ravel(), is_true.ravel()
        bins = np.minimum((chances * CALIBRATION_BINS).astype(np.int64), CALIBRATION_BINS - 1)
        for row, weights in enumerate((None, chances, is_true)):
            self._sums[row] += np.bincount(bins, weights, CALIBRATION_BINS)

    def error(self) -> float:
        num_rows, expected, happened = self._sums
        return float(np.abs(happened - expected).sum() / num_rows.sum())


def _log_probabilities(
    parameters: NDArray[np.float64], features: NDArray[np.floating[Any]], num_classes: int
) -> NDArray[np.float64]:
    """Return the logarithms of `probabilities`, without underflow  # (n, C)"""
    logits = scores(parameters, features)
    if num_classes == 2:
        logits = np.hstack((np.zeros_like(logits), logits))
    return np.asarray(logits - np.logaddexp.reduce(logits, axis=1, keepdims=True))


def _log_odds(logs: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return log(p / (1 - p)), given log p. The result is infinite if p = 1."""
    with np.errstate(divide="ignore"):
        return logs - np.log(-np.expm1(logs))


def _present(batches: Iterable[LabelledRows]) -> Iterator[LabelledRows]:
    for features, labels in batches:
        for block in blocks(len(features)):
            present = features[block].any(axis=1)  # (b,)
            yield features[block][present], labels[block][present]
