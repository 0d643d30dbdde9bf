"""The rows of a run as they come into memory: what a step is about to read is there, and was checked once it came."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from app.errors import RunDiffersFromPlan
from lethe.encoding.targets import UNIT
from lethe.encoding.weights import labels_in, weights_in
from worker.langevin.gradient import blocks
from worker.langevin.losses import LOGISTIC, Loss
from worker.langevin.schedule import Schedule


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The rows in memory, disjoint ranges of slots, for the steps up to `until`."""

    until: int
    slots: tuple[slice, ...]


Show = Callable[[int], Window]
"""Brings into memory what the next steps read, after so many others; what was there before may go."""


class Shown:
    """The rows of a run, of which a window is in memory; `labels` and `weights`: of each, where rows have weights.
    `records`: rows that came into it and are not null, a row that
    came again counted again."""

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
        """Without `show` all that the run reads is there. Raises ValueError, naming the condition, for arrays that
        are no rows."""
        if features.ndim != 2 or features.dtype != np.float32:
            raise ValueError("Expected features to be a float32 matrix")
        if stored.shape not in (features.shape[:1], (len(features), 2)) or stored.dtype != np.int32:
            raise ValueError("Expected labels to be int32, one for each row of features, or each with a weight")
        if len(features) != schedule.num_slots or len(features) < 1:
            raise ValueError("Expected one row of features for each of num_slots >= 1 slots")
        self.features, self.labels, self.weights = features, labels_in(stored), weights_in(stored)
        self.records = 0
        self._num_classes, self._loss, self._schedule = num_classes, loss, schedule
        self._show = show or self._all_at_once
        self._window = Window(until=0, slots=())

    def look(self, steps_done: int) -> Window | None:
        """The window in which the next step is, if it is a new one. What is new in it has been checked: ValueError,
        naming the condition, if it is not what the guarantee assumes. Raises `RunDiffersFromPlan` where the window is
        not what the steps read."""
        if steps_done < self._window.until:
            return None
        before, self._window = self._window.slots, self._show(steps_done)
        until, slots = self._window.until, self._window.slots
        read = self._schedule.reads(steps_done, until) if steps_done < until <= self._schedule.steps else ()
        if not read or any(_without(one, slots) for one in read):
            raise RunDiffersFromPlan("What the run reads is not in memory.")
        for one in slots:
            for fresh in _without(one, before):
                self._check(fresh)
        return self._window

    def _all_at_once(self, steps_done: int) -> Window:
        steps = self._schedule.steps
        return Window(until=steps, slots=self._schedule.reads(steps_done, steps))

    def _check(self, slots: slice) -> None:
        features, labels = self.features[slots], self.labels[slots]
        self._loss.require_labels(labels, self._num_classes)
        if self.weights is not None and not 0 <= self.weights[slots].min() <= self.weights[slots].max() <= UNIT:
            raise ValueError("Expected a weight between 0 and 1")
        for block in blocks(len(features)):
            squares = np.einsum("ij,ij->i", features[block], features[block], dtype=np.float64)
            if not (squares <= 1).all():  # so written, NaN is refused too
                raise ValueError("Expected every row of features to be of norm <= 1")
            self.records += int(np.count_nonzero(squares))


def _without(one: slice, others: Sequence[slice]) -> list[slice]:
    """The parts of a range that are in none of the others."""
    left = [one]
    for other in others:
        left = [
            part
            for here in left
            for part in (
                slice(here.start, min(here.stop, other.start)),
                slice(max(here.start, other.stop), here.stop),
            )
            if part.start < part.stop
        ]
    return left
