"""Blocks of rows in the clear: how they are written one after the other, and where in memory their parts are."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from app.rows.manifest import BLOCK_ROWS, Child, Shape
from lethe.contract.problems import DatasetUnusable

_SEALING_BYTES = 16 * 2**20
"""Bytes of the blocks that wait to be sealed, unless a single one takes more."""

Features = npt.NDArray[np.float32]  # (rows, columns)
Labels = npt.NDArray[np.int32]  # (rows,), or (rows, 2) with weights: of each its label and its weight


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Some consecutive rows; `first`: the slot of the first of them."""

    number: int
    first: int
    features: Features
    labels: Labels

    def content(self) -> bytes:
        features = self.features.astype("<f4", order="C", casting="no", copy=False).tobytes()
        return features + self.labels.astype("<i4", order="C", casting="no", copy=False).tobytes()

    def copy(self) -> "Block":
        """One that may be changed."""
        return replace(self, features=self.features.copy(), labels=self.labels.copy())

    def without(self, slots: Sequence[int]) -> "Block":
        """This block with the rows in those slots null, in a copy if any of them is here."""
        here = self.positions(slots)
        if not len(here):
            return self
        changed = self.copy()
        changed.features[here], changed.labels[here] = 0, 0
        return changed

    def count(self) -> int:
        """Number of rows that are not null."""
        return int(np.count_nonzero(self.features.any(axis=1)))

    def is_null(self, slots: Sequence[int]) -> bool:
        """Return True if those of the slots that are in this block are null."""
        here = self.positions(slots)
        return not (self.features[here].any() or self.labels[here].any())

    def positions(self, slots: Sequence[int]) -> npt.NDArray[np.int64]:
        chosen = np.asarray(slots, dtype=np.int64)
        return chosen[(chosen >= self.first) & (chosen < self.first + len(self.labels))] - self.first


@dataclass(frozen=True, slots=True, kw_only=True)
class Filling:
    """Rows that wait beside a dataset, and the slots that they go into, the first into the first of them."""

    rows_id: str
    root: str
    slots: tuple[int, ...]  # ascending


class RowWriter:
    """Takes rows, and has each block sealed when it is full, while the next is filled. `root`: once all is
    written."""

    def __init__(self, put: Callable[[Block], "Future[Child]"], num_columns: int | None) -> None:
        self._put = put
        self._blocks: list[Future[Child]] = []
        self._waiting: Block | None = None
        self._rows_waiting = 0
        self._has_weights: bool | None = None
        self.num_columns = num_columns
        self.num_slots = 0
        self.root = ""

    def write(self, features: Features, labels: Labels) -> None:  # (b, columns), (b,) or (b, 2)
        if self.num_columns is None:
            self.num_columns = features.shape[1]
        if features.shape != (len(labels), self.num_columns):
            raise ValueError(f"Expected {features.shape=} == {(len(labels), self.num_columns)}")
        if self._has_weights is None:
            self._has_weights = labels.ndim == 2
        if labels.shape[1:] != ((2,) if self._has_weights else ()):
            raise ValueError(f"Expected {labels.shape=} to have a weight for each row, or for none")
        if features.dtype.str != "<f4" or labels.dtype.str != "<i4":
            raise TypeError(f"Expected {features.dtype.str=} == '<f4' and {labels.dtype.str=} == '<i4'")
        written = 0
        while written < len(labels):
            waiting = self._waiting = self._waiting or self._empty(self.num_columns)
            some = min(BLOCK_ROWS - self._rows_waiting, len(labels) - written)
            place = slice(self._rows_waiting, self._rows_waiting + some)
            waiting.features[place] = features[written : written + some]
            waiting.labels[place] = labels[written : written + some]
            written, self._rows_waiting = written + some, self._rows_waiting + some
            self.num_slots += some
            if self._rows_waiting == BLOCK_ROWS:
                self._flush()

    def finish(self) -> tuple[Shape, list[Child]]:
        """The shape, and what a manifest says of the blocks."""
        self._flush()
        if not self.num_slots or not self.num_columns:
            raise DatasetUnusable("There are no rows.")
        shape = Shape(num_slots=self.num_slots, num_columns=self.num_columns, has_weights=self._has_weights is True)
        return shape, [block.result() for block in self._blocks]

    def _flush(self) -> None:
        if self._waiting is None:
            return
        full, rows = self._waiting, slice(0, self._rows_waiting)
        block = Block(number=full.number, first=full.first, features=full.features[rows], labels=full.labels[rows])
        at_once = max(1, _SEALING_BYTES // (full.features.nbytes + full.labels.nbytes))
        if len(self._blocks) >= at_once:
            self._blocks[-at_once].result()
        self._blocks.append(self._put(block))
        self._waiting, self._rows_waiting = None, 0

    def _empty(self, num_columns: int) -> Block:
        number = len(self._blocks)
        features = np.zeros((BLOCK_ROWS, num_columns), dtype=np.float32)
        labels = np.zeros((BLOCK_ROWS, 2) if self._has_weights else BLOCK_ROWS, dtype=np.int32)
        return Block(number=number, first=number * BLOCK_ROWS, features=features, labels=labels)


def mapped(
    memory: memoryview | bytes, num_slots: int, num_columns: int, has_weights: bool = False
) -> tuple[Features, Labels]:
    """The features and labels in the memory of some rows, and their weights where they have any."""
    features = np.frombuffer(memory, dtype="<f4", count=num_slots * num_columns)
    count = 2 * num_slots if has_weights else num_slots
    labels = np.frombuffer(memory, dtype="<i4", count=count, offset=features.nbytes)
    return features.reshape(num_slots, num_columns), labels.reshape(num_slots, 2) if has_weights else labels
