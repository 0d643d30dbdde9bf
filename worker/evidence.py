"""Evidence that every run produces about itself, so that the run need not be trusted: lanes, a count of rows, and a
second gradient.

Lanes are extra coordinates of a run that no row touches. Half of them have a canary and all of them have witnesses; the
run's own steps drive them. `lethe/proof/canary_test.py` states their law and what their final positions show. They
contain no data about any person.
"""

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from app.errors import AuditFailed
from lethe.encoding.targets import UNIT
from lethe.proof import canary_test, losses
from lethe.proof.mechanism import Mechanism

TOLERANCE = 0.05
"""Tolerance as a fraction of one record's maximum contribution. A missing or extra record is detected unless it
contributes hardly anything."""
ROUNDING = 2.0**-18
"""Tolerance as a fraction of the sum of all gradient norms. Products are in single precision (2^-24), and rounding
errors of many similar rows do not cancel, so that one of several hundred thousand records can go undetected."""
SCORE_ROUNDING = 2.0**-23
"""Tolerance of a score as a fraction of the weights' norm. When the fit is close, gradients are small, and rounding
errors in the scores of similar rows do not cancel."""
_BLOCK_ROWS = 4096


class Draws(Protocol):
    def normal(self, size: int) -> Tensor: ...  # (size,) float64


@dataclass(frozen=True, slots=True, kw_only=True)
class Push:
    """Displacement of each canary-test lane in a full-size step: by the witnesses in the batch that the step reads and,
    if that batch contains the lane's canary, by the canary while it is present."""

    witnesses: Tensor  # (batches that differ, groups) float64
    groups: Tensor  # (p,) int64
    canaries: Tensor | None  # (p,) float64
    places: Tensor  # (p,) int64

    def of(self, batch: int) -> Tensor:
        """Return each lane's displacement in a full-size step that reads `batch`  # (p,)"""
        push = self.witnesses[batch % len(self.witnesses)].index_select(0, self.groups)
        return push if self.canaries is None else push.add_(torch.where(self.places == batch, self.canaries, 0.0))

    def to(self, device: torch.device) -> "Push":
        return Push(
            witnesses=self.witnesses.to(device),
            groups=self.groups.to(device),
            canaries=self.canaries if self.canaries is None else self.canaries.to(device),
            places=self.places.to(device),
        )


class Lanes:
    """A run's canary-test lanes; the first half have a canary. `start` (lanes,): initial positions, if known."""

    def __init__(self, law: canary_test.Law, plan: canary_test.CanaryPlan, *, start: Tensor | None = None) -> None:
        self._law, self._plan, self._start = law, plan, start
        self._canaries = torch.zeros(plan.lanes, dtype=torch.float64)
        self._canaries[: plan.lanes // 2] = 1
        self._groups = (torch.arange(plan.lanes // 2) % plan.groups).repeat(2)

    def start(self, noise: Draws) -> Tensor:
        """Return the lanes before the run: at the origin, or where the preceding steps left them  # (lanes,)"""
        if self._start is not None:
            return self._start.clone()
        start = self._each(self._law.start) * self._canaries
        if self._plan.steps_before:
            start += self._law.start_variance**0.5 * noise.normal(len(start))
        return start

    @property
    def push(self) -> Push:
        """Return how far a full-size step displaces the lanes, for every batch."""
        return Push(
            witnesses=torch.from_numpy(self._law.witnesses),
            groups=self._groups,
            canaries=None if self._plan.steps_before else self._law.push * self._canaries,
            places=self._each(self._law.place),
        )

    def without_witnesses(self, end: Tensor) -> Tensor:
        """Return the positions that lanes now at `end` would have reached without witnesses  # (lanes,)"""
        return end - torch.from_numpy(self._law.witnessed)[self._groups]

    def observed(self, start: Tensor, end: Tensor) -> canary_test.Observed:
        """Return the statistics of lanes that moved from `start` to `end`  # (lanes,) each"""
        law, mean = self._law, self._each(self._law.mean)
        if not bool(end.isfinite().all()):
            raise AuditFailed("A lane did not end as a finite number.")
        end = self.without_witnesses(end)
        if self._plan.steps_before:
            # Lanes that continue a chain are compared with their start, which does not fade even in long runs.
            foreseen, along = start * law.decay, start
        else:
            foreseen = along = mean * self._canaries
        residuals, means = self._apart((end - foreseen) / law.unforeseen**0.5)
        along, _ = self._apart(along)
        guessed = torch.where(mean >= 0, end, -end) > mean.abs() / 2
        had = self._canaries > 0
        return canary_test.Observed(
            plan=self._plan,
            records=law.records,
            guesses=canary_test.Guesses(
                true_positives=int((guessed & had).sum()),
                members=int(had.sum()),
                false_positives=int((guessed & ~had).sum()),
                nonmembers=int((~had).sum()),
            ),
            squares=float(residuals.square().sum()),
            drift=float(residuals @ along / along.norm()),
            visits=float(means.square().sum()),
        )

    def _apart(self, numbers: Tensor) -> tuple[Tensor, Tensor]:
        """Return each lane's number less its group's mean, and that mean  # (lanes,) each"""
        sums = numbers.new_zeros(2, self._plan.groups)
        sums.index_add_(1, self._groups, torch.stack((numbers, torch.ones_like(numbers))))
        means = (sums[0] / sums[1])[self._groups]
        return numbers - means, means

    @staticmethod
    def _each(of_canaries: NDArray[np.float64]) -> Tensor:
        return torch.from_numpy(of_canaries).repeat(2)


def of(mechanism: Mechanism, plan: canary_test.CanaryPlan) -> Lanes:
    return Lanes(canary_test.law(mechanism, plan), plan)


def differs(
    ours: NDArray[np.float64],  # (1, d) or (C, d)
    parameters: NDArray[np.float64],  # (1, d) or (C, d)
    *,
    features: NDArray[np.float32],  # (n, d), rows of norm <= 1
    labels: NDArray[np.int32],  # (n,)
    weights: NDArray[np.int32] | None = None,  # (n,)
    bound: float,
    objective: losses.Objective = losses.Objective.LOGISTIC_REGRESSION,
    loss_width: float | None = None,
    class_weights: tuple[float, ...] | None = None,
) -> bool:
    """Return True if `ours` differs from the sum of the records' gradients at `parameters`, recomputed in double
    precision. `bound` is the largest gradient expected of one record. Intermediate values are overwritten."""
    theirs, lengths, records = np.zeros_like(parameters), 0.0, 0
    rows = np.empty((min(_BLOCK_ROWS, len(features)), features.shape[1]))
    for start in range(0, len(features), _BLOCK_ROWS):
        block = slice(start, start + _BLOCK_ROWS)
        x = rows[: len(features[block])]
        x[:] = features[block]
        slopes = residuals(x @ parameters.T, labels[block], objective, loss_width)
        if class_weights is not None:
            slopes *= np.array(class_weights)[labels[block]][:, None]
        if weights is not None:
            slopes *= (weights[block] / UNIT)[:, None]
        theirs += slopes.T @ x
        # A null row has a slope but no gradient, and must not widen the tolerance.
        present = x.any(axis=1)
        lengths, records = lengths + float(np.linalg.norm(slopes, axis=1) @ present), records + int(present.sum())
        slopes.fill(0)
    apart = float(np.linalg.norm(theirs - ours))
    for buffer in (theirs, rows):
        buffer.fill(0)
    moved = SCORE_ROUNDING * float(np.linalg.norm(parameters)) * _curvature(objective, loss_width) * records
    return not apart <= TOLERANCE * bound + ROUNDING * lengths + moved


def _curvature(objective: losses.Objective, loss_width: float | None) -> float:
    """Return the maximum rate at which a slope changes with its score; 0 for logistic losses, whose slopes are not
    small where they change quickly."""
    match objective:
        case losses.Objective.HUBER_REGRESSION | losses.Objective.LEAST_SQUARES | losses.Objective.POISSON_REGRESSION:
            return 1.0
        case losses.Objective.SMOOTHED_HINGE:
            return 1 / (loss_width or math.inf)
        case losses.Objective.LOGISTIC_REGRESSION | losses.Objective.MULTILABEL_LOGISTIC_REGRESSION:
            return 0.0


def residuals(
    scores: NDArray[np.float64], labels: NDArray[np.int32], objective: losses.Objective, loss_width: float | None = None
) -> NDArray[np.float64]:
    """Return the slope of each row's loss with respect to its scores  # (b, 1) or (b, C)"""
    if objective is losses.Objective.POISSON_REGRESSION and loss_width is not None:
        return np.asarray(np.exp(np.minimum(scores - loss_width, 0)) - (labels[:, None] / UNIT + 1) / 2)
    if objective.is_regression:
        most = math.inf if loss_width is None else loss_width
        return np.asarray(np.clip(scores - labels[:, None] / UNIT, -most, most))
    if loss_width is not None:
        signs = np.where(labels > 0, 1.0, -1.0)[:, None]
        return np.asarray(-signs * np.clip((1 - signs * scores) / loss_width, 0, 1))
    if objective is losses.Objective.MULTILABEL_LOGISTIC_REGRESSION:
        has = labels[:, None] >> np.arange(scores.shape[1]) & 1
        return np.asarray(0.5 * (1 + np.tanh(scores / 2)) - has)
    if scores.shape[1] == 1:
        return np.asarray(0.5 * (1 + np.tanh(scores / 2)) - labels[:, None])
    grown = np.exp(scores - scores.max(axis=1, keepdims=True))
    chances: NDArray[np.float64] = grown / grown.sum(axis=1, keepdims=True)
    chances[np.arange(len(labels)), labels] -= 1
    return chances
