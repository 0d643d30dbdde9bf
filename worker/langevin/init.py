"""The initial law of a chain, which knows nothing of the data.

Any initial law will do for the guarantee, as long as the two chains that are compared share it. The simplest is a
point: the origin (the Dirac measure at 0) lies in every ball, needs no randomness and is the same for everybody. The
first state that is released is nevertheless random, because a run takes at least one noisy step.
"""

import numpy as np
from numpy.typing import NDArray

from lethe.proof.mechanism import Objective, num_weight_rows


def origin(
    *, num_classes: int, num_features: int, objective: Objective = Objective.LOGISTIC_REGRESSION
) -> NDArray[np.float64]:
    """Zero parameters  # (1, d) for two classes or a target, (C, d) for more, and for labels."""
    return np.zeros((num_weight_rows(num_classes, objective), num_features))
