"""Metrics of a model on the rows that are still there."""

import math
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.catalogue.prediction import MOST_RANKED, scores
from lethe.encoding.targets import UNIT, Target, y_of_rates
from lethe.proof.losses import Objective
from lethe.proof.mechanism import Mechanism
from worker.langevin.gradient import blocks

MOST_LOG_ODDS = 16.0
GRID = 2**14
"""Intervals of the public grid, from -`MOST_LOG_ODDS` to `MOST_LOG_ODDS`, on which rows are ranked."""
CALIBRATION_BINS = 15

Rows = tuple[NDArray[np.float32], NDArray[np.int32]]  # (n, d) and (n,); null rows belong to nobody and do not count


def of_classes(
    parameters: NDArray[np.float64], found: Iterable[Rows], num_classes: int, *, is_probable: bool = True
) -> dict[str, Any]:
    """`accuracy`: the share of rows whose most probable class is their label; `evaluated_on`: how many there are.

    `auc` (`Ranking`) of class 1 of two, or of each of more against the others, and their mean. With `is_probable`,
    scores being log-odds: `log_loss`, the mean of -log(probability of the label), in nats; `calibration_error`
    (`Calibration`) of the probability of the class that is guessed.
    """
    right = counted = 0
    lost = 0.0
    ranking = Ranking.of(1 if num_classes == 2 else num_classes)
    calibration = Calibration()
    for features, labels in _present(found):
        logs = _log_probabilities(parameters, features, num_classes)  # (b, C)
        guesses = logs.argmax(axis=1)
        right += int((guesses == labels).sum())
        counted += len(labels)
        lost -= float(np.take_along_axis(logs, labels[:, None], axis=1).sum())
        calibration.add(np.exp(logs.max(axis=1)), guesses == labels)
        if ranking:
            ranked = logs[:, 1:] if num_classes == 2 else logs
            ranking.add(_log_odds(ranked), labels[:, None] == np.arange(num_classes)[-ranked.shape[1] :])
    if not counted:
        return {"evaluated_on": 0}
    probable = {"log_loss": lost / counted, "calibration_error": calibration.error()} if is_probable else {}
    return {"accuracy": right / counted} | (ranking.auc() if ranking else {}) | probable | {"evaluated_on": counted}


def of_labels(parameters: NDArray[np.float64], found: Iterable[Rows]) -> dict[str, Any]:
    """`label_accuracy`: the share of all labels of all rows of which it is said rightly that the row has or has not
    got them; `exact_match`: of rows of which that is said rightly of every label. As `of_classes`, of each label by
    itself: the mean `auc`, and over all of them `log_loss` and `calibration_error` of the probability to have it."""
    right = exact = counted = 0
    lost = 0.0
    ranking, calibration = Ranking.of(len(parameters)), Calibration()
    for features, labels in _present(found):
        has = (labels[:, None] >> np.arange(len(parameters)) & 1).astype(bool)  # (b, C)
        log_odds = scores(parameters, features)
        is_right = (log_odds > 0) == has
        right, exact = right + int(is_right.sum()), exact + int(is_right.all(axis=1).sum())
        counted += len(labels)
        lost += float(np.logaddexp(0, np.where(has, -log_odds, log_odds)).sum())
        calibration.add(0.5 * (1 + np.tanh(log_odds / 2)), has)
        if ranking:
            ranking.add(log_odds, has)
    if not counted:
        return {"evaluated_on": 0}
    shares = {"label_accuracy": right / (counted * len(parameters)), "exact_match": exact / counted}
    probable = {"log_loss": lost / (counted * len(parameters)), "calibration_error": calibration.error()}
    return shares | (ranking.auc() if ranking else {}) | probable | {"evaluated_on": counted}


def of_target(
    parameters: NDArray[np.float64], found: Iterable[Rows], target: Target, mechanism: Mechanism | None = None
) -> dict[str, Any]:
    """`r_squared`: 1 less the squared errors over the squared distances from the mean (none where all are the mean);
    `mean_absolute_error` in the units of the target; of Poisson regression the `mean_poisson_deviance`; `evaluated_on`:
    how many rows there are. `mechanism`: None for one whose scores are the target itself."""
    counted, total, squares, missed, absolute, deviance = 0, 0.0, 0.0, 0.0, 0.0, 0.0
    bend = mechanism.loss_width if mechanism and mechanism.objective is Objective.POISSON_REGRESSION else None
    for features, labels in _present(found):
        values = target.values(labels / UNIT) - target.low  # (b,)
        of_rows = scores(parameters, features)[:, 0]
        said = of_rows if bend is None else y_of_rates(of_rows, bend)
        errors = target.values(said) - target.low - values
        if bend is not None:
            deviance += _deviance(np.rint(values), math.log(target.high) + np.minimum(of_rows - bend, 0))
        counted += len(labels)
        total, squares = total + float(values.sum()), squares + float(values @ values)
        missed, absolute = missed + float(errors @ errors), absolute + float(np.abs(errors).sum())
    apart = squares - total * total / max(counted, 1)
    return (
        ({"r_squared": 1 - missed / apart} if apart > 1e-12 * squares else {})
        | ({"mean_absolute_error": absolute / counted} if counted else {})
        | ({"mean_poisson_deviance": deviance / counted} if counted and bend is not None else {})
        | {"evaluated_on": counted}
    )


def _deviance(counts: NDArray[np.float64], logs: NDArray[np.float64]) -> float:
    """The sum of 2 (y log(y / rate) - y + rate), of rates by their logarithms."""
    own = counts * np.log(np.maximum(counts, 1))
    return float(2 * (own - counts * logs - counts + np.exp(logs)).sum())


class Ranking:
    """Area under the ROC curve of each of several classes, in memory that does not grow with the rows.

    Rows are counted by the interval of a fixed public grid that their log-odds are in. Two rows of one interval count
    as a tie, so an area is off by at most half the share of pairs, one of the class and one not, that share an
    interval, which is measured too: `auc_error`.
    """

    def __init__(self, num_classes: int) -> None:
        self._counts = np.zeros((2, num_classes, GRID), np.int64)  # without the class, and with it

    @classmethod
    def of(cls, num_classes: int) -> "Ranking | None":
        """None for more classes than are ranked."""
        return cls(num_classes) if num_classes <= MOST_RANKED else None

    def add(self, log_odds: NDArray[np.float64], has: NDArray[np.bool_]) -> None:  # (b, C) and (b, C)
        place = (np.clip(log_odds, -MOST_LOG_ODDS, MOST_LOG_ODDS) + MOST_LOG_ODDS) * (GRID / (2 * MOST_LOG_ODDS))
        cells = np.minimum(place.astype(np.int64), GRID - 1)
        for number in range(cells.shape[1]):
            for present in (0, 1):
                mine = cells[has[:, number] == bool(present), number]
                self._counts[present, number] += np.bincount(mine, minlength=GRID)

    def auc(self) -> dict[str, float]:
        """`auc` and `auc_error`, means over the classes that some rows have and some have not; nothing if none is."""
        without, having = self._counts.astype(np.float64)  # (C, GRID) each
        pairs = without.sum(axis=1) * having.sum(axis=1)  # (C,)
        told = pairs > 0
        if not told.any():
            return {}
        below = np.cumsum(without, axis=1) - without
        tied = (having * without).sum(axis=1) / 2
        areas = ((having * below).sum(axis=1) + tied)[told] / pairs[told]
        return {"auc": float(areas.mean()), "auc_error": float((tied[told] / pairs[told]).mean())}


class Calibration:
    """Expected calibration error (Guo et al. 2017): probabilities in `CALIBRATION_BINS` equal bins, and the mean over
    rows of how far the share of a bin that came true is from the mean probability there."""

    def __init__(self) -> None:
        self._sums = np.zeros((3, CALIBRATION_BINS))  # how many, how much was expected, how many came true

    def add(self, chances: NDArray[np.float64], is_true: NDArray[np.bool_]) -> None:  # of equal shape
        chances, is_true = chances.ravel(), is_true.ravel()
        bins = np.minimum((chances * CALIBRATION_BINS).astype(np.int64), CALIBRATION_BINS - 1)
        for row, weights in enumerate((None, chances, is_true)):
            self._sums[row] += np.bincount(bins, weights, CALIBRATION_BINS)

    def error(self) -> float:
        counted, expected, happened = self._sums
        return float(np.abs(happened - expected).sum() / counted.sum())


def _log_probabilities(
    parameters: NDArray[np.float64], features: NDArray[np.floating[Any]], num_classes: int
) -> NDArray[np.float64]:
    """The logarithms of `probabilities`, none of which is too small  # (n, C)"""
    found = scores(parameters, features)
    if num_classes == 2:
        found = np.hstack((np.zeros_like(found), found))
    return np.asarray(found - np.logaddexp.reduce(found, axis=1, keepdims=True))


def _log_odds(logs: NDArray[np.float64]) -> NDArray[np.float64]:
    """log(p / (1 - p)) of log p; infinite where p is 1."""
    with np.errstate(divide="ignore"):
        return logs - np.log(-np.expm1(logs))


def _present(found: Iterable[Rows]) -> Iterator[Rows]:
    for features, labels in found:
        for block in blocks(len(features)):
            present = features[block].any(axis=1)  # (b,)
            yield features[block][present], labels[block][present]
