"""Parameters from which the chains of experiments start."""

import numpy as np
from numpy.typing import NDArray

from lethe.proof.losses import num_weight_rows


def origin(*, num_classes: int, num_features: int) -> NDArray[np.float64]:
    """Return all-zero parameters  # (1, d) for two classes or a target, (C, d) for more classes."""
    return np.zeros((num_weight_rows(num_classes), num_features))
