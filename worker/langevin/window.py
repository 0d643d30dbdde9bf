"""Rows of a run: each row is checked when it is loaded, and is in memory before the step that reads it."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from app.errors import RunDiffersFromPlan
from lethe.encoding import rows, targets
from worker.langevin.losses import LOGISTIC, Loss
from worker.langevin.schedule import Schedule

BLOCK_ROWS = 4096
"""Number of rows that a pass processes at a time, small enough for the cache."""


def blocks(num_rows: int) -> Iterator[slice]:
    """Return consecutive slices that cover all rows, each small enough to fit in the cache."""
    return (slice(start, min(start + BLOCK_ROWS, num_rows)) for start in range(0, num_rows, BLOCK_ROWS))


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoints:
    """Checkpoints of a run: after each of the ascending step counts `steps`, `reached(steps_done, parameters)` receives
    a copy of the noisy iterate."""

    steps: Sequence[int]
    reached: Callable[[int, NDArray[np.float64]], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """Rows in memory, as disjoint ranges of slots, until the first `until` steps are done."""

    until: int
    slots: tuple[slice, ...]


Show = Callable[[int], Window]
"""Function that loads the rows of the steps after the given number of steps. Earlier rows may leave memory."""


class Shown:
    """A run's rows, one window of which is in memory, with their `labels` and any `weights`. `records` counts the
    non-null rows loaded; a row that is loaded again is counted again."""

    def __init__(
        self,
        features: NDArray[np.float32],  # (n, d), a row for each slot
        stored: NDArray[np.int32],  # (n,) labels, or (n, 2) with weights
        *,
        num_classes: int,
        loss: Loss = LOGISTIC,
        schedule: Schedule,
        show: Show | None = None,
    ) -> None:
        """Store the rows. Without `show`, all of the run's rows are in memory. Raises ValueError, naming the condition,
        for arrays of the wrong type or shape."""
        if features.ndim != 2 or features.dtype != np.float32:
            raise ValueError("Expected features to be a float32 matrix")
        if stored.shape not in (features.shape[:1], (len(features), 2)) or stored.dtype != np.int32:
            raise ValueError("Expected labels to be int32, one for each row of features, or each with a weight")
        if len(features) != schedule.num_slots or len(features) < 1:
            raise ValueError("Expected one row of features for each of num_slots >= 1 slots")
        self.features, self.labels, self.weights = features, rows.labels_in(stored), rows.weights_in(stored)
        self.records = 0
        self._num_classes, self._loss, self._schedule = num_classes, loss, schedule
        self._show = show or self._all_at_once
        self._window = Window(until=0, slots=())

    def look(self, steps_done: int) -> Window | None:
        """Load and return the window for the next step, or return None if the current window still covers that step.
        Raises ValueError, naming the condition, if a new row violates an assumption of the guarantee, and
        `RunDiffersFromPlan` if the window lacks rows that the steps read."""
        if steps_done < self._window.until:
            return None
        before, self._window = self._window.slots, self._show(steps_done)
        until, slots = self._window.until, self._window.slots
        read = self._schedule.reads(steps_done, until) if steps_done < until <= self._schedule.steps else ()
        if not read or any(_without(part, slots) for part in read):
            raise RunDiffersFromPlan("What the run reads is not in memory.")
        for part in slots:
            for fresh in _without(part, before):
                self._check(fresh)
        return self._window

    def _all_at_once(self, steps_done: int) -> Window:
        steps = self._schedule.steps
        return Window(until=steps, slots=self._schedule.reads(steps_done, steps))

    def _check(self, slots: slice) -> None:
        features, labels = self.features[slots], self.labels[slots]
        self._loss.require_labels(labels, self._num_classes)
        if self.weights is not None and not 0 <= self.weights[slots].min() <= self.weights[slots].max() <= targets.UNIT:
            raise ValueError("Expected a weight between 0 and 1")
        for block in blocks(len(features)):
            squares = np.einsum("ij,ij->i", features[block], features[block], dtype=np.float64)
            # This form of the comparison refuses NaN too.
            if not (squares <= 1).all():
                raise ValueError("Expected every row of features to be of norm <= 1")
            self.records += int(np.count_nonzero(squares))


def _without(slots: slice, others: Sequence[slice]) -> list[slice]:
    """Return the parts of `slots` that do not lie in any of `others`."""
    pieces = [slots]
    for other in others:
        pieces = [
            part
            for piece in pieces
            for part in (
                slice(piece.start, min(piece.stop, other.start)),
                slice(max(piece.start, other.stop), piece.stop),
            )
            if part.start < part.stop
        ]
    return pieces
