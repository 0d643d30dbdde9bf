"""A second gradient, by other code than the one that ran: the rows that were used are the rows that are there."""

import math

import numpy as np
from numpy.typing import NDArray

from lethe.encoding.targets import UNIT
from lethe.proof.losses import Objective

TOLERANCE = 0.05
"""Share of the most that one record may contribute: a missing or an extra one shows unless it hardly contributes at
all."""
ROUNDING = 2.0**-18
"""Share of the sum of all records' gradient lengths: the engine's products are in single precision (2^-24), and where
many rows are alike their rounding does not cancel. So among some hundred thousand records one is no longer missed."""
SCORE_ROUNDING = 2.0**-23
"""The same of a score, as a share of the length of the weights: where a fit is close gradients are short, and where
rows are alike the rounding of their scores does not cancel."""
_BLOCK_ROWS = 4096


def differs(
    ours: NDArray[np.float64],  # (1, d) or (C, d)
    parameters: NDArray[np.float64],  # as `ours`
    *,
    features: NDArray[np.float32],  # (n, d), rows of norm <= 1
    labels: NDArray[np.int32],  # (n,)
    weights: NDArray[np.int32] | None = None,  # (n,), where rows have them
    bound: float,
    objective: Objective = Objective.LOGISTIC_REGRESSION,
    loss_width: float | None = None,
    class_weights: tuple[float, ...] | None = None,
) -> bool:
    """Return True if `ours` is not the sum of the records' gradients at `parameters`, computed here in double
    precision throughout. `bound`: on one record's gradient. What it needed on the way is overwritten."""
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
    for used in (theirs, rows):
        used.fill(0)
    moved = SCORE_ROUNDING * float(np.linalg.norm(parameters)) * _curvature(objective, loss_width) * records
    return not apart <= TOLERANCE * bound + ROUNDING * lengths + moved


def _curvature(objective: Objective, loss_width: float | None) -> float:
    """The most by which a slope changes with its score; of a logistic loss, whose slopes are not small where it bends,
    nothing is added."""
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
    """The slope of each row's loss by its scores  # (b, 1) or (b, C)"""
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
