"""Bound on the gradient's norm where a solver stopped, independent of the solver and including rounding errors."""

import math

import numpy as np
from numpy.typing import NDArray

from lethe.encoding.targets import UNIT
from lethe.proof.losses import Objective
from worker.evidence import residuals

_BLOCK_ROWS = 512
_EPS = 2.0**-53

Floats = NDArray[np.float64]


def gradient_norm_bound(
    point: Floats,  # (1, d) or (C, d)
    *,
    features: NDArray[np.float32],  # (n, d), rows of norm <= 1
    labels: NDArray[np.int32],  # (n,)
    weights: NDArray[np.int32] | None = None,  # (n,)
    perturbation: Floats,  # (1, d) or (C, d)
    regularisation: tuple[int, float],
    objective: Objective,
    class_weights: tuple[float, ...] | None = None,
) -> float:
    """Return an upper bound on the exact value of |sum of gradients + num_slots l2 point + perturbation|.

    `regularisation` is (num_slots, l2). Each operation's rounding error is bounded by the standard model of floating
    point (Higham, "Accuracy and Stability of Numerical Algorithms", Section 3.1), for any order of summation, and
    added. Sums over blocks are exact (`math.fsum`). The result is NaN if the point is not finite.
    """
    strength = regularisation[0] * regularisation[1]
    totals: list[Floats] = [strength * point, perturbation]
    scores, width = point.shape
    lengths = np.linalg.norm(point, axis=1)
    # A score moves by the rounding of its dot product; a probability by a quarter of that, or half for softmax.
    score_error = (width + 2) * _EPS * float(np.linalg.norm(lengths)) * 1.01
    slope_error = score_error + 16 * math.sqrt(scores) * (scores + 2) * _EPS
    error = 4 * _EPS * strength * float(np.linalg.norm(point))
    for start in range(0, len(features), _BLOCK_ROWS):
        block = slice(start, start + _BLOCK_ROWS)
        x = features[block].astype(np.float64)
        slopes = residuals(np.einsum("ij,kj->ik", x, point), labels[block], objective)
        if class_weights is not None:
            slopes *= np.array(class_weights)[labels[block]][:, None]
        if weights is not None:
            slopes *= (weights[block] / UNIT)[:, None]
        totals.append(slopes.T @ x)
        sizes = np.linalg.norm(slopes, axis=1)
        present = np.linalg.norm(x, axis=1)
        error += 1.01 * (float(present.sum()) * slope_error + (len(x) + 4) * _EPS * float(sizes @ present))
        for used in (x, slopes):
            used.fill(0)
    sums = [math.fsum(values) for values in zip(*(total.ravel().tolist() for total in totals), strict=True)]
    for used in totals[2:]:
        used.fill(0)
    norm = math.sqrt(math.fsum(value * value for value in sums))
    return norm * (1 + 8 * _EPS) + 1.01 * error
