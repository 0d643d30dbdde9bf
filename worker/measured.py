"""Numbers that a rehearsal reports of a set of rows under some weights: means over its rows, rounded, and how well
losses tell learned rows from others.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from app.catalogue.prediction import scores
from lethe.contract.rehearsals import AttackOut, MeasuredOut
from lethe.encoding.targets import UNIT, Target, y_of_scores
from lethe.proof.losses import Objective, num_weight_rows
from lethe.proof.mechanism import Mechanism
from worker.langevin import tangent

Floats = NDArray[np.float64]
_DECIMALS = 2
"""Decimals of a share: whole per cents, as many as a mean over thousands of people supports."""
_DIGITS = 2
"""Significant digits of a loss, an error and a count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """The measure of a model's rows. `network`: of a tangent model; `target`: the range of what a regression says."""

    mechanism: Mechanism
    network: bytes | None = None
    target: Target | None = None

    def scores(self, parameters: Floats, features: NDArray[np.float32], labels: NDArray[np.int32]) -> Floats:
        """The scores of rows that are there  # (n, c)"""
        if self.network is None:
            return scores(parameters, features)
        found = tangent.scored(self.mechanism, self.network, parameters, [(features, labels)])
        [(of_rows, _)] = found
        identity = np.eye(num_weight_rows(self.mechanism.num_classes, self.mechanism.objective))
        return scores(identity, of_rows)

    def of(self, found: Floats, labels: NDArray[np.int32]) -> MeasuredOut:
        """The means over rows of their loss and of what they are right about; `found`: their scores (n, c)."""
        right, missed = self._right(found, labels), None
        if self.target is not None:
            mechanism = self.mechanism
            y = y_of_scores(found[:, 0], objective=mechanism.objective, loss_width=mechanism.loss_width)
            values = self.target.values(y) - self.target.values(labels / UNIT)
            missed = _rounded(float(np.abs(values).mean()))
        return MeasuredOut(
            rows=int(_rounded(len(labels))),
            loss=_rounded(float(self.losses(found, labels).mean())),
            accuracy=None if right is None else round(float(right.mean()), _DECIMALS),
            mean_absolute_error=missed,
        )

    def losses(self, found: Floats, labels: NDArray[np.int32]) -> Floats:
        """The loss of each row, unweighted, as docs/mathematics/losses.md states it; of several labels their mean
        # (n,)"""
        width = self.mechanism.loss_width or 1.0
        match self.mechanism.objective:
            case Objective.LOGISTIC_REGRESSION if found.shape[1] > 1:
                return np.asarray(np.logaddexp.reduce(found, axis=1) - found[np.arange(len(found)), labels])
            case Objective.LOGISTIC_REGRESSION:
                return np.logaddexp(0, (1 - 2 * labels) * found[:, 0])
            case Objective.MULTILABEL_LOGISTIC_REGRESSION:
                return np.asarray(np.logaddexp(0, np.where(_has(found, labels), -found, found)).mean(axis=1))
            case Objective.SMOOTHED_HINGE:
                short = np.maximum(0, 1 - (2 * labels - 1) * found[:, 0])
                return np.where(short <= width, short**2 / (2 * width), short - width / 2)
            case Objective.HUBER_REGRESSION:
                apart = np.abs(found[:, 0] - labels / UNIT)
                return np.where(apart <= width, apart**2 / 2, width * apart - width**2 / 2)
            case Objective.POISSON_REGRESSION:
                beyond = found[:, 0] - width
                rates = np.exp(np.minimum(beyond, 0)) + np.maximum(beyond, 0)
                return np.asarray(rates - (labels / UNIT + 1) / 2 * found[:, 0])
            case Objective.LEAST_SQUARES:
                return np.asarray((found[:, 0] - labels / UNIT) ** 2 / 2)

    def _right(self, found: Floats, labels: NDArray[np.int32]) -> Floats | None:
        """The share of each row's labels that is said rightly  # (n,); None of a target."""
        objective = self.mechanism.objective
        if objective.is_regression:
            return None
        if objective is Objective.MULTILABEL_LOGISTIC_REGRESSION:
            return np.asarray(((found > 0) == _has(found, labels)).mean(axis=1))
        said = found.argmax(axis=1) if found.shape[1] > 1 else found[:, 0] > 0
        return np.asarray(said == labels, np.float64)


def attack(members: Floats, others: Floats) -> AttackOut:
    """Guess that rows of little loss were learned: the area under the ROC curve over all thresholds."""
    ranked = np.sort(others)
    below, above = np.searchsorted(ranked, members, "left"), np.searchsorted(ranked, members, "right")
    auc = 1 - float((below + above).mean()) / (2 * len(others))
    one, other = auc / (2 - auc), 2 * auc**2 / (1 + auc)
    spread = auc * (1 - auc) + (len(members) - 1) * (one - auc**2) + (len(others) - 1) * (other - auc**2)
    error = math.sqrt(max(0.0, spread) / (len(members) * len(others)))
    return AttackOut(auc=round(auc, _DECIMALS), standard_error=_rounded(error))


def _rounded(number: float) -> float:
    return float(f"{number:.{_DIGITS}g}")


def _has(found: Floats, labels: NDArray[np.int32]) -> NDArray[np.bool_]:
    return np.asarray((labels[:, None] >> np.arange(found.shape[1]) & 1).astype(bool))
