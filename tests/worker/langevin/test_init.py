import numpy as np
import pytest

from tests.worker.langevin.conftest import mechanism_of
from worker.langevin.init import origin_of


@pytest.mark.parametrize(("num_classes", "rows"), [(2, 1), (3, 3), (10, 10)])
def test_training_starts_at_zero(num_classes: int, rows: int) -> None:
    """Training starts at zero, with a single weight vector if there are two classes, and otherwise with one weight
    vector per class."""
    start = origin_of(mechanism_of(num_classes=num_classes, step_size=0.5), 4)
    np.testing.assert_array_equal(start, np.zeros((rows, 4)))
    assert start.dtype == np.float64
