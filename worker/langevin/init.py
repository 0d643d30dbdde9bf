"""Initial law of a chain, which does not depend on the data.

The guarantee permits any initial law that the two compared chains share. The simplest is a point: the origin (the Dirac
measure at 0) lies in every ball, needs no randomness and is the same for all models. The first released state is still
random, because a run takes at least one noisy step.
"""

import numpy as np
from numpy.typing import NDArray

from lethe.proof.losses import num_weight_rows
from lethe.proof.mechanism import Mechanism


def shape(mechanism: Mechanism, num_columns: int) -> tuple[int, int]:
    """Return the shape of the parameters: (1, `num_columns`) for two classes or a target, (C, `num_columns`) for C > 2
    classes or for labels, and (1, p) for a tangent model that trains p weights."""
    if mechanism.is_tangent:
        return 1, mechanism.num_parameters
    return num_weight_rows(mechanism.num_classes, mechanism.objective), num_columns


def origin_of(mechanism: Mechanism, num_columns: int) -> NDArray[np.float64]:
    """Return parameters of the mechanism's `shape`, all zero."""
    return np.zeros(shape(mechanism, num_columns))
