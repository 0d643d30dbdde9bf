import numpy as np
import pytest

from lethe.proof.losses import num_weight_rows
from worker.langevin.init import origin


@pytest.mark.parametrize(("num_classes", "rows"), [(2, 1), (3, 3), (10, 10)])
def test_training_starts_at_zero(num_classes: int, rows: int) -> None:
    """Training starts at zero, with a single weight vector if there are two classes, and otherwise with one weight
    vector per class."""
    start = origin(num_classes=num_classes, num_features=4)
    assert num_weight_rows(num_classes) == rows
    np.testing.assert_array_equal(start, np.zeros((rows, 4)))
    assert start.dtype == np.float64


def test_training_without_classes_is_refused() -> None:
    """Training is refused if there are neither classes nor a numeric target."""
    with pytest.raises(ValueError, match="num_classes=0 >= 1"):
        origin(num_classes=0, num_features=4)
