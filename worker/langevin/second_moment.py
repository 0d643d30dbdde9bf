"""Check of each batch's second moment against the mechanism's bound (`second-moment.md`)."""

import numpy as np
from numpy.typing import NDArray

from app.errors import SecondMomentExceeded
from lethe.proof.mechanism import Mechanism
from worker.langevin.schedule import Schedule

_ROUNDING = 1e-9
"""Relative margin added to a computed eigenvalue: a thousand times the error of double precision."""


class Kept:
    """Check of the second moment of each batch of a learning run, made before the first step that reads the batch.

    A continuing run checks nothing: since the learning run, rows have only become null and none have been added, so no
    eigenvalue has grown.
    """

    def __init__(self, mechanism: Mechanism, schedule: Schedule, features: NDArray[np.float32]) -> None:
        """Store the `features` (n, d), one row per slot. The rows that the next steps read must be in memory."""
        self._bound = mechanism.second_moment if schedule.first_step == 0 else None
        self._schedule, self._features, self._num_checked = schedule, features, 0

    def require(self, *, until: int) -> None:
        """Check the unchecked batches that the first `until` steps read. Raises `SecondMomentExceeded`."""
        if self._bound is None:
            return
        while self._num_checked < min(until, self._schedule.num_batches):
            rows = self._features[self._schedule.rows_of(self._num_checked)]
            if not largest(rows) <= self._bound:
                raise SecondMomentExceeded("A batch exceeds the second moment that the mechanism states.")
            self._num_checked += 1


def largest(rows: NDArray[np.float32]) -> float:
    """Return the largest eigenvalue of (1/b) sum x x^T over rows (b, d), rounded up. X X^T and X^T X give the same
    value, so the smaller product is used."""
    x = rows.astype(np.float64)
    products = x @ x.T if len(x) < x.shape[1] else x.T @ x
    eigenvalue = float(np.linalg.eigvalsh(products)[-1]) / len(x)
    x.fill(0)
    products.fill(0)
    return eigenvalue * (1 + _ROUNDING)
