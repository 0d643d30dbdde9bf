"""Loss of a row, as used by passes over rows: the kind of loss, and the labels it accepts."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lethe.encoding.targets import UNIT
from lethe.proof.losses import Objective, num_weight_rows, require_loss
from lethe.proof.mechanism import Mechanism


@dataclass(frozen=True, slots=True)
class Loss:
    """Loss, its `width` (None if it has no width) and its `class_weights`, one factor per class (None if all are 1)."""

    objective: Objective = Objective.LOGISTIC_REGRESSION
    width: float | None = None
    class_weights: tuple[float, ...] | None = None

    @classmethod
    def of(cls, mechanism: Mechanism) -> "Loss":
        return cls(mechanism.objective, mechanism.loss_width, mechanism.class_weights)

    def weight_rows(self, num_classes: int) -> int:
        """Return the number of weight vectors. Raises ValueError if the loss does not support `num_classes` (1 for a
        target)."""
        require_loss(self.objective, num_classes, self.width)
        return num_weight_rows(num_classes, self.objective)

    def require_labels(self, labels: NDArray[np.int32], num_classes: int) -> None:
        """Raise ValueError if a label is out of range."""
        if self.objective.is_regression:
            if labels.min() < -UNIT or labels.max() > UNIT:
                raise ValueError("Expected a target between -1 and 1")
        elif self.objective is Objective.MULTILABEL_LOGISTIC_REGRESSION:
            if labels.min() < 0 or labels.max() >= 2**num_classes:
                raise ValueError("Expected 0 <= label < 2^num_classes")
        elif labels.min() < 0 or labels.max() >= num_classes:
            raise ValueError("Expected 0 <= label < num_classes")


LOGISTIC = Loss()
