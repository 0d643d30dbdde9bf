"""The second moment of each batch's rows, held to the bound that the mechanism states (`second-moment.md`)."""

import numpy as np
from numpy.typing import NDArray

from app.errors import SecondMomentExceeded
from lethe.proof.mechanism import Mechanism
from worker.langevin.schedule import Schedule

_ROUNDING = 1e-9
"""Share by which an eigenvalue is taken to be larger than computed: a thousand times what double precision can miss."""


class Kept:
    """Checks of the batches of a run that learns, each before the first step that reads it.

    A run that goes on checks nothing: since the chain learned, rows of its batches became null, and no others came, so
    no eigenvalue has grown.
    """

    def __init__(self, mechanism: Mechanism, schedule: Schedule, features: NDArray[np.float32]) -> None:
        """`features`: (n, d), a row for each slot, of which those are in memory that the next steps read."""
        self._bound = mechanism.second_moment if schedule.first_step == 0 else None
        self._schedule, self._features, self._num_checked = schedule, features, 0

    def require(self, *, until: int) -> None:
        """Check the batches that the steps before the first `until` read for the first time. Raises
        `SecondMomentExceeded`."""
        if self._bound is None:
            return
        while self._num_checked < min(until, self._schedule.num_batches):
            rows = self._features[self._schedule.rows_of(self._num_checked)]
            if not largest(rows) <= self._bound:
                raise SecondMomentExceeded("A batch exceeds the second moment that the mechanism states.")
            self._num_checked += 1


def largest(rows: NDArray[np.float32]) -> float:
    """The largest eigenvalue of (1/b) sum x x^T over rows (b, d), rounded up; of the smaller of both products, which
    have the same."""
    x = rows.astype(np.float64)
    products = x @ x.T if len(x) < x.shape[1] else x.T @ x
    found = float(np.linalg.eigvalsh(products)[-1]) / len(x)
    x.fill(0)
    products.fill(0)
    return found * (1 + _ROUNDING)
