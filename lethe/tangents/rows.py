"""Tangent models on rows as Lethe encodes them: features and a constant, divided by their norm."""

import numpy as np
import torch
from numpy.typing import NDArray

from lethe.tangents.model import Tangent


def network_inputs(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """The features that records had before they were divided by their norm, of rows (n, d) whose last column is the
    constant; zeros of a null row  # (n, d - 1)"""
    constants = rows[:, -1:]
    return np.divide(rows[:, :-1], constants, out=np.zeros_like(rows[:, :-1]), where=constants > 0)


def scores(tangent: Tangent, parameters: NDArray[np.float64], rows: NDArray[np.float32]) -> NDArray[np.float64]:
    """The scores of rows (n, d) under the `parameters` (1, p)  # (n, 1) or (n, C)

    Raises ValueError for rows of another width.
    """
    if rows.shape[1] != tangent.num_features + 1:
        raise ValueError(f"Expected vectors of {tangent.num_features} finite numbers")
    inputs = torch.from_numpy(network_inputs(rows))
    found: NDArray[np.float64] = (
        tangent.scores(torch.tensor(parameters), inputs, tangent.scales(inputs)).double().numpy()
    )
    return found
