"""Predictions of a model about a row: scores and probabilities from weights, in numpy, so that the gateway needs no
torch."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

MOST_RANKED = 64
"""Classes up to which it is measured how well scores rank rows."""


def scores(parameters: NDArray[np.float64], features: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
    """The scores w.x of rows (n, d) under weights (c, d)  # (n, c)"""
    # Not by BLAS, which copies weights into buffers of its own and keeps them: they outlive the version.
    rows = features.astype(np.float64, order="C")
    return np.asarray(np.einsum("nd,cd->nc", rows, parameters))


def label_probabilities(parameters: NDArray[np.float64], features: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
    """The probability of each label for each row, 1 / (1 + exp(-score)), by itself  # (n, C)"""
    return np.asarray(0.5 * (1 + np.tanh(scores(parameters, features) / 2)))


def probabilities(
    parameters: NDArray[np.float64], features: NDArray[np.floating[Any]], num_classes: int
) -> NDArray[np.float64]:
    """Probability of each class for each row  # (n, C), rows sum to 1.

    `parameters` is (1, d) for two classes, the weights of class 1 against class 0, and (C, d) for more; `features` is
    (n, d). Computed in float64 and shifted by the largest score, so that no score is too large.
    """
    weight_rows = 1 if num_classes == 2 else num_classes
    if num_classes < 2 or features.ndim != 2 or parameters.shape != (weight_rows, features.shape[1]):
        raise ValueError(
            f"Expected features (n, d) and parameters ({weight_rows}, d) for {num_classes=} >= 2, "
            f"got {features.shape} and {parameters.shape}"
        )
    chances = scores(parameters, features)  # (n, weight_rows)
    if num_classes == 2:
        chances = np.hstack((np.zeros_like(chances), chances))  # sigmoid(s) is the softmax of (0, s)
    chances -= chances.max(axis=1, keepdims=True)
    np.exp(chances, out=chances)
    chances /= chances.sum(axis=1, keepdims=True)
    return chances
