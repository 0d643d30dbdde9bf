"""A second gradient, by other code than the one that ran: the rows that were used are the rows that are there."""

import numpy as np
from numpy.typing import NDArray

TOLERANCE = 0.05
"""Share of the most that one record may contribute: a missing or an extra one shows unless it hardly contributes at
all."""
ROUNDING = 2.0**-18
"""Share of the sum of all records' gradient lengths: the engine's products are in single precision (2^-24), and where
many rows are alike their rounding does not cancel. So among some hundred thousand records one is no longer missed."""
_BLOCK_ROWS = 4096


def differs(
    ours: NDArray[np.float64],  # (1, d) or (C, d)
    parameters: NDArray[np.float64],  # as `ours`
    *,
    features: NDArray[np.float32],  # (n, d), rows of norm <= 1
    labels: NDArray[np.int32],  # (n,)
    bound: float,
) -> bool:
    """Return True if `ours` is not the sum of the records' logistic gradients at `parameters`, computed here in double
    precision throughout. `bound`: on one record's gradient. What it needed on the way is overwritten."""
    theirs, lengths = np.zeros_like(parameters), 0.0
    rows = np.empty((min(_BLOCK_ROWS, len(features)), features.shape[1]))
    for start in range(0, len(features), _BLOCK_ROWS):
        block = slice(start, start + _BLOCK_ROWS)
        x = rows[: len(features[block])]
        x[:] = features[block]
        residuals = _residuals(x @ parameters.T, labels[block])
        theirs += residuals.T @ x
        lengths += float(np.linalg.norm(residuals, axis=1) @ x.any(axis=1))
        residuals.fill(0)
    apart = float(np.linalg.norm(theirs - ours))
    for used in (theirs, rows):
        used.fill(0)
    return not apart <= TOLERANCE * bound + ROUNDING * lengths


def _residuals(scores: NDArray[np.float64], labels: NDArray[np.int32]) -> NDArray[np.float64]:
    """Probabilities less the one-hot label  # (b, 1) or (b, C)"""
    if scores.shape[1] == 1:
        return np.asarray(0.5 * (1 + np.tanh(scores / 2)) - labels[:, None])
    grown = np.exp(scores - scores.max(axis=1, keepdims=True))
    chances: NDArray[np.float64] = grown / grown.sum(axis=1, keepdims=True)
    chances[np.arange(len(labels)), labels] -= 1
    return chances
