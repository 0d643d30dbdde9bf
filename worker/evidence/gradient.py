"""Second gradient, by code other than the engine's, to check that the engine used the rows that are stored."""

import math

import numpy as np
from numpy.typing import NDArray

from lethe.encoding.targets import UNIT
from lethe.proof.losses import Objective

TOLERANCE = 0.05
"""Tolerance as a share of one record's maximum contribution: a missing or extra record is detected unless it hardly
contributes."""
ROUNDING = 2.0**-18
"""Tolerance as a share of the sum of all gradient norms. Products are in single precision (2^-24), and the rounding of
many similar rows does not cancel, so that one of several hundred thousand records can go undetected."""
SCORE_ROUNDING = 2.0**-23
"""Tolerance of a score as a share of the norm of the weights. In a close fit gradients are short, and the rounding of
the scores of similar rows does not cancel."""
_BLOCK_ROWS = 4096


def differs(
    ours: NDArray[np.float64],  # (1, d) or (C, d)
    parameters: NDArray[np.float64],  # (1, d) or (C, d)
    *,
    features: NDArray[np.float32],  # (n, d), rows of norm <= 1
    labels: NDArray[np.int32],  # (n,)
    weights: NDArray[np.int32] | None = None,  # (n,)
    bound: float,
    objective: Objective = Objective.LOGISTIC_REGRESSION,
    loss_width: float | None = None,
    class_weights: tuple[float, ...] | None = None,
) -> bool:
    """Return True if `ours` is not the sum of the records' gradients at `parameters`, recomputed in double precision.
    `bound` limits one record's gradient. Intermediate values are overwritten."""
    theirs, lengths, records = np.zeros_like(parameters), 0.0, 0
    rows = np.empty((min(_BLOCK_ROWS, len(features)), features.shape[1]))
    for start in range(0, len(features), _BLOCK_ROWS):
        block = slice(start, start + _BLOCK_ROWS)
        x = rows[: len(features[block])]
        x[:] = features[block]
        residuals = _residuals(x @ parameters.T, labels[block], objective, loss_width)
        if class_weights is not None:
            residuals *= np.array(class_weights)[labels[block]][:, None]
        if weights is not None:
            residuals *= (weights[block] / UNIT)[:, None]
        theirs += residuals.T @ x
        present = x.any(axis=1)
        lengths, records = lengths + float(np.linalg.norm(residuals, axis=1) @ present), records + int(present.sum())
        residuals.fill(0)
    apart = float(np.linalg.norm(theirs - ours))
    for buffer in (theirs, rows):
        buffer.fill(0)
    moved = SCORE_ROUNDING * float(np.linalg.norm(parameters)) * _curvature(objective, loss_width) * records
    return not apart <= TOLERANCE * bound + ROUNDING * lengths + moved


def _curvature(objective: Objective, loss_width: float | None) -> float:
    """Return the maximum change of a slope with its score; 0 for logistic losses, whose slopes are not small where
    they bend."""
    match objective:
        case Objective.HUBER_REGRESSION | Objective.LEAST_SQUARES | Objective.POISSON_REGRESSION:
            return 1.0
        case Objective.SMOOTHED_HINGE:
            return 1 / (loss_width or math.inf)
        case Objective.LOGISTIC_REGRESSION | Objective.MULTILABEL_LOGISTIC_REGRESSION:
            return 0.0


def _residuals(
    scores: NDArray[np.float64], labels: NDArray[np.int32], objective: Objective, loss_width: float | None
) -> NDArray[np.float64]:
    """Return the slope of each row's loss by its scores  # (b, 1) or (b, C)"""
    if objective is Objective.POISSON_REGRESSION and loss_width is not None:
        return np.asarray(np.exp(np.minimum(scores - loss_width, 0)) - (labels[:, None] / UNIT + 1) / 2)
    if objective.is_regression:
        most = math.inf if loss_width is None else loss_width
        return np.asarray(np.clip(scores - labels[:, None] / UNIT, -most, most))
    if loss_width is not None:
        signs = np.where(labels > 0, 1.0, -1.0)[:, None]
        return np.asarray(-signs * np.clip((1 - signs * scores) / loss_width, 0, 1))
    if objective is Objective.MULTILABEL_LOGISTIC_REGRESSION:
        has = labels[:, None] >> np.arange(scores.shape[1]) & 1
        return np.asarray(0.5 * (1 + np.tanh(scores / 2)) - has)
    if scores.shape[1] == 1:
        return np.asarray(0.5 * (1 + np.tanh(scores / 2)) - labels[:, None])
    grown = np.exp(scores - scores.max(axis=1, keepdims=True))
    chances: NDArray[np.float64] = grown / grown.sum(axis=1, keepdims=True)
    chances[np.arange(len(labels)), labels] -= 1
    return chances
