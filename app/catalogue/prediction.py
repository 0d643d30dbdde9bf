"""Scores and probabilities of rows, computed from a model's weights."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

MAX_RANKED_CLASSES = 64
"""Maximum number of classes for which ranking metrics are computed."""


def scores(parameters: NDArray[np.float64], features: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
    """Return each row's score w.x under each row of weights  # (c, d), (n, d) -> (n, c)"""
    # BLAS copies weights into buffers that it retains, where they would outlive the version.
    rows = features.astype(np.float64, order="C")
    return np.asarray(np.einsum("nd,cd->nc", rows, parameters))


def probabilities(
    parameters: NDArray[np.float64], features: NDArray[np.floating[Any]], num_classes: int
) -> NDArray[np.float64]:
    """Return the probability of each class for each row: an array (n, C) whose rows sum to 1. `features` is (n, d) and
    `parameters` is (C, d) or, for two classes, (1, d): the weights of class 1 against class 0. Computed in float64
    after subtracting the largest score, which prevents overflow."""
    weight_rows = 1 if num_classes == 2 else num_classes
    if num_classes < 2 or features.ndim != 2 or parameters.shape != (weight_rows, features.shape[1]):
        raise ValueError(
            f"Expected features (n, d) and parameters ({weight_rows}, d) for {num_classes=} >= 2, "
            f"got {features.shape} and {parameters.shape}"
        )
    chances = scores(parameters, features)  # (n, weight_rows)
    if num_classes == 2:
        # sigmoid(s) is the softmax of (0, s).
        chances = np.hstack((np.zeros_like(chances), chances))
    chances -= chances.max(axis=1, keepdims=True)
    np.exp(chances, out=chances)
    chances /= chances.sum(axis=1, keepdims=True)
    return chances
