"""Accuracy of a model on the rows that are still there."""

import math

import numpy as np
from numpy.typing import NDArray

from app.catalogue.prediction import probabilities
from worker.langevin.gradient import blocks


def accuracy(
    parameters: NDArray[np.float64],  # (1, d) or (C, d)
    features: NDArray[np.float32],  # (n, d)
    labels: NDArray[np.int32],  # (n,)
    num_classes: int,
) -> tuple[float, int]:
    """The share of rows whose most probable class is their label, and how many rows that is a share of.

    Null rows belong to nobody and do not count. If there are only null rows the answer is (nan, 0).
    """
    right = counted = 0
    for block in blocks(len(features)):
        present = features[block].any(axis=1)  # (b,)
        guesses = probabilities(parameters, features[block], num_classes).argmax(axis=1)  # (b,)
        right += int(((guesses == labels[block]) & present).sum())
        counted += int(present.sum())
    return (right / counted if counted else math.nan), counted
