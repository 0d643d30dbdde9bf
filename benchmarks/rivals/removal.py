"""Certified removal: Guo, Goldstein, Hannun and van der Maaten, ICML 2020, arXiv 1911.03030.

Learning minimises sum of losses + l2 n/2 |w|^2 + <b, w> with b ~ N(0, s^2 I) drawn once. A removal is one Newton step
on the rows that are left; what it leaves of the gradient is bounded from the data (Corollary 1),
gamma |X| |v| |X v|, adds up, and is (epsilon, delta)-hidden by b while the sum stays below s epsilon / c with
delta = 1.5 exp(-c^2/2) (Theorem 3); beyond it the model is learned again. More than two classes are one against the
rest, with one budget for all of them together.

To its advantage: gamma is the sharp 1/(6 sqrt 3) where the paper has 1/4; the Newton step is solved by conjugate
gradients, whose residual is added to the bound, and so needs no Hessian; s is set just high enough for the requests of
this run, by a look at the data that no guarantee covers.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.rivals.rival import Certified, Claim, Record, Rows, Setting, State, Weights, gaussian

CURVATURE_LIPSCHITZ = 1 / (6 * math.sqrt(3))  # of the second derivative of log(1 + e^-z)
_MARGIN = 1.5
_PILOTS = 5
_LOOSE, _TIGHT = 1e-4, 1e-9  # relative residuals

Matrix = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class RegularisedLoss:
    """The summed losses of the rows that are left, each class against the rest, with a regulariser and a tilt."""

    features: Matrix  # (n, d)
    positive: Matrix  # (n, C) of 0 and 1
    ridge: float  # l2 times the rows left
    tilt: Matrix  # (C, d), b

    def gradient(self, weights: Matrix) -> Matrix:
        error = _sigmoid(self.features @ weights.T) - self.positive
        slope: Matrix = error.T @ self.features + self.ridge * weights + self.tilt
        return slope

    def solve(self, weights: Matrix, right: Matrix, *, relative: float) -> tuple[Matrix, Matrix, int]:
        """v with H v = right, each class for itself, by conjugate gradients; the residual, and passes over the rows."""
        share = _sigmoid(self.features @ weights.T)
        curvature = share * (1 - share)
        found, residual = np.zeros_like(right), right.copy()
        direction, size = residual.copy(), (residual**2).sum(axis=1, keepdims=True)
        enough, passes = relative**2 * size, 1
        while (size > enough).any():
            bent = (curvature * (self.features @ direction.T)).T @ self.features + self.ridge * direction
            along = (direction * bent).sum(axis=1, keepdims=True)
            stride = np.divide(size, along, out=np.zeros_like(size), where=along > 0)
            found += stride * direction
            residual -= stride * bent
            before, size = size, (residual**2).sum(axis=1, keepdims=True)
            direction = residual + np.divide(size, before, out=np.zeros_like(size), where=before > 0) * direction
            passes += 1
        return found, residual, passes

    def minimiser(self) -> tuple[Matrix, int]:
        """By Newton's method from the origin, which the regulariser makes converge here."""
        weights, passes = np.zeros_like(self.tilt), 1
        slope = first = self.gradient(weights)
        while np.linalg.norm(slope) > _TIGHT * np.linalg.norm(first):
            step, _, taken = self.solve(weights, slope, relative=_LOOSE)
            weights, passes = weights - step, passes + taken + 1
            slope = self.gradient(weights)
        return weights, passes


class CertifiedRemoval:
    relearns_as_reference = True
    claim = Claim(
        kind="certified",
        guarantee="removal (epsilon, delta)",
        compared_with="its own learning, with new b, on the data without the record",
        adjacency="record against none",
        adaptive="no: b is drawn once, and cancels between versions",
        secret="the sum of the bounds",
        reference="Guo et al. 2020, Corollary 1 and Theorem 3",
    )

    def __init__(
        self, setting: Setting, rows: Rows, *, name: str = "certified_removal", title: str = "certified removal"
    ) -> None:
        self.name, self.title = name, title
        self._setting, self._features = setting, rows.features.astype(np.float64)
        self._positive = positives(rows)
        self._norm = math.sqrt(float(np.linalg.eigvalsh(self._features.T @ self._features)[-1]))
        self._budget = _MARGIN * setting.requests * self._pilot()
        loss = math.sqrt(2 * math.log(1.5 / setting.delta))
        self.tilt_std = loss * self._budget / setting.epsilon

    @property
    def l2(self) -> float:
        return self._setting.l2

    def learn(self, rows: Rows) -> State:
        tilt = gaussian(self._setting.shape, self.tilt_std)
        np.copyto(self._features, rows.features)
        objective = self._objective(rows, tilt)
        weights, passes = objective.minimiser()
        return State(weights=weights, passes=passes, kept=float(np.linalg.norm(objective.gradient(weights))))

    def forget(self, state: State, rows: Rows, record: Record) -> State:
        """What is kept is how much of the budget is spent. The step needs b no more: it is in the weights."""
        weights, left, passes = self._newton(self._objective(rows), state.weights, record)
        spent: float = state.kept + left
        if spent > self._budget:
            return self.learn(rows)
        return State(weights=weights, passes=passes, kept=spent)

    def certified(self, state: State) -> Certified:
        return Certified(forgotten=self._setting.epsilon, adaptive=None)

    def _newton(self, objective: RegularisedLoss, weights: Weights, record: Record) -> tuple[Weights, float, int]:
        """Onto the rows that are left; what is left of the gradient at most; passes."""
        if not record.features.any():
            return weights, 0.0, 0
        step, residual, passes = objective.solve(weights, self._pull(record, weights), relative=_LOOSE)
        moved = objective.features @ step.T
        bounds = CURVATURE_LIPSCHITZ * self._norm * np.linalg.norm(step, axis=1) * np.linalg.norm(moved, axis=0)
        return weights + step, float(np.linalg.norm(bounds + np.linalg.norm(residual, axis=1))), passes

    def _pull(self, record: Record, weights: Weights) -> Weights:
        """The gradient of what the record and its share of the regulariser contributed."""
        return record_gradient(record, weights) + self.l2 * weights

    def _objective(self, rows: Rows, tilt: Matrix | None = None) -> RegularisedLoss:
        """Over the rows that are left. A null row has no gradient in w, whatever its label."""
        present = rows.features.any(axis=1)
        self._features[~present] = 0
        return self._over(int(present.sum()), tilt)

    def _over(self, count: int, tilt: Matrix | None = None) -> RegularisedLoss:
        tilt = np.zeros(self._setting.shape) if tilt is None else tilt
        return RegularisedLoss(features=self._features, positive=self._positive, ridge=self.l2 * count, tilt=tilt)

    def _pilot(self) -> float:
        """The largest bound of a removal among the rows that the plain fit fits worst."""
        objective = self._over(len(self._features))
        weights, _ = objective.minimiser()
        misfit = np.linalg.norm(_sigmoid(self._features @ weights.T) - self._positive, axis=1)
        worst = np.argsort(misfit * np.linalg.norm(self._features, axis=1))[-_PILOTS:]
        found = []
        for row in worst:
            label = int(self._positive[row, 0]) if self._positive.shape[1] == 1 else int(self._positive[row].argmax())
            record = Record(features=self._features[row].astype(np.float32), label=label)
            found.append(self._newton(objective, weights, record)[1])
        return max(found)


def positives(rows: Rows) -> Matrix:
    """Of each row 1 for its own class and 0 for the others, (n, C); of two classes only the second has a column."""
    wanted = np.arange(1, 2) if rows.num_classes == 2 else np.arange(rows.num_classes)
    return (rows.labels[:, None] == wanted).astype(np.float64)


def record_gradient(record: Record, weights: Weights) -> Weights:
    """The gradient of one record's loss at `weights`."""
    mine = record.features.astype(np.float64)
    wanted = np.array([record.label == 1]) if len(weights) == 1 else np.arange(len(weights)) == record.label
    return np.outer(_sigmoid(weights @ mine) - wanted, mine)


def _sigmoid(scores: Matrix) -> Matrix:
    return 0.5 * (1 + np.tanh(scores / 2))
