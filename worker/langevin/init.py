"""The initial law of a chain, which knows nothing of the data.

Any initial law will do for the guarantee, as long as the two chains that are compared share it. The simplest is a
point: the origin (the Dirac measure at 0) lies in every ball, needs no randomness and is the same for everybody. The
first state that is released is nevertheless random, because a run takes at least one noisy step.
"""

import numpy as np
from numpy.typing import NDArray

from lethe.proof.losses import Objective, num_weight_rows
from lethe.proof.mechanism import Mechanism


def shape(mechanism: Mechanism, num_columns: int) -> tuple[int, int]:
    """The shape of the parameters: (1, `num_columns`) for two classes or a target, (C, `num_columns`) for more, and for
    labels; (1, p) of a tangent model, of all the weights that it moves."""
    if mechanism.is_tangent:
        return 1, mechanism.num_parameters
    return num_weight_rows(mechanism.num_classes, mechanism.objective), num_columns


def origin_of(mechanism: Mechanism, num_columns: int) -> NDArray[np.float64]:
    """Zero parameters, of that shape."""
    return np.zeros(shape(mechanism, num_columns))


def origin(
    *, num_classes: int, num_features: int, objective: Objective = Objective.LOGISTIC_REGRESSION
) -> NDArray[np.float64]:
    """Zero parameters of a linear model  # (1, d) for two classes or a target, (C, d) for more, and for labels."""
    return np.zeros((num_weight_rows(num_classes, objective), num_features))
