"""Rows in the clear: in memory that processes share, block by block, as far as somebody reads them."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager

from app.errors import DatasetTooLarge
from app.rows.blocks import Block, Features, Labels, mapped
from app.rows.manifest import BLOCK_ROWS, Shape
from app.vault.memory import Memory

Source = Callable[[Collection[int]], Iterable[Block]]
"""Opens the blocks of these numbers, in their order."""


class OpenedRows:
    """Rows of which some blocks are in memory, read-only; all others are zeros there and take none. A null row is zero
    throughout, its label and its weight too.

    `records`: how many of all rows are not null, as their root says. `most_bytes`: of memory. `descriptor`: of the
    memory that holds the features and then the labels, for other processes to map.
    """

    def __init__(self, memory: Memory, shape: Shape, *, records: int, most_bytes: int, blocks: Source) -> None:
        self.shape, self.records, self.most_bytes = shape, records, most_bytes
        self.descriptor = memory.descriptor
        self.features, self.labels = _mapped(memory.view().toreadonly(), shape)
        self._memory, self._written = memory, _mapped(memory.view(), shape)
        self._blocks = blocks
        self._shown: dict[int, int] = {}  # from blocks that are in memory to how many of their rows are not null

    @classmethod
    @contextmanager
    def empty(cls, shape: Shape, *, records: int, most_bytes: int, blocks: Source) -> Iterator["OpenedRows"]:
        """Rows none of which is in memory; all of them are gone from there when the block ends."""
        memory = Memory(shape.num_bytes)
        try:
            rows = cls(memory, shape, records=records, most_bytes=most_bytes, blocks=blocks)
            try:
                yield rows
            finally:
                rows._forget(rows._shown)
        finally:
            memory.close()

    def show(self, numbers: Sequence[range], *, on_opened: Callable[[], None] = lambda: None) -> dict[int, int]:
        """Bring these blocks into memory, and overwrite all others that are there. Returns of each how many of its rows
        are not null. Raises `DatasetTooLarge`.

        `on_opened` is called after each block that had to be opened, and ends this by raising.
        """
        wanted = {number for some in numbers for number in some}
        self._forget(self._shown.keys() - wanted)
        self.require_room(sum(self.shape.rows_in(number) for number in wanted) * self.shape.row_bytes)
        features, labels = self._written
        for block in self._blocks(sorted(wanted - self._shown.keys())):
            self._shown[block.number] = block.count()
            place = slice(block.first, block.first + len(block.labels))
            features[place], labels[place] = block.features, block.labels
            on_opened()
        return {number: self._shown[number] for number in wanted}

    def show_all(self) -> None:
        """Bring all blocks into memory. Raises `DatasetTooLarge`."""
        self.show([range(self.shape.num_blocks)])

    def require_room(self, num_bytes: int) -> None:
        """Raises `DatasetTooLarge`."""
        if num_bytes > self.most_bytes:
            raise DatasetTooLarge(
                f"What one step of a run reads takes {num_bytes} bytes of memory, and a run may use {self.most_bytes}: "
                "set LETHE_ROWS_MEMORY_BYTES to more, on a machine that has it, or give the model a smaller batch_size."
            )

    def _forget(self, numbers: Iterable[int]) -> None:
        num_features = self.shape.num_slots * self.shape.num_columns
        for number in list(numbers):
            first, num_rows = number * BLOCK_ROWS, self.shape.rows_in(number)
            self._memory.forget(4 * first * self.shape.num_columns, 4 * num_rows * self.shape.num_columns)
            each = self.shape.num_labels
            self._memory.forget(4 * (num_features + each * first), 4 * each * num_rows)
            del self._shown[number]


@contextmanager
def held_in_memory(features: Features, labels: Labels) -> Iterator[OpenedRows]:  # (n, columns), (n,) or (n, 2)
    """Rows that come from anywhere, as `RowStore.open` has them."""
    shape = Shape(num_slots=features.shape[0], num_columns=features.shape[1], has_weights=labels.ndim == 2)

    def blocks(numbers: Collection[int]) -> Iterator[Block]:
        for number in numbers:
            first = number * BLOCK_ROWS
            place = slice(first, first + shape.rows_in(number))
            yield Block(number=number, first=first, features=features[place], labels=labels[place])

    records = int(features.any(axis=1).sum())
    with OpenedRows.empty(shape, records=records, most_bytes=shape.num_bytes, blocks=blocks) as rows:
        yield rows


def _mapped(memory: memoryview, shape: Shape) -> tuple[Features, Labels]:
    return mapped(memory, shape.num_slots, shape.num_columns, shape.has_weights)
