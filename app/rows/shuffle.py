"""A uniformly random order for rows that need not fit into memory, drawn without a look at them.

Steps read consecutive slots, so slots that followed the order of a file would let a file that is sorted by label be
learned one label at a time. Each row therefore goes to one of many parts by a draw of its own, and each part, which
fits into memory, is shuffled; the parts follow each other. All draws are of the same law for every row and independent
of what is in it, so no exchange of two rows changes the law of their order: and the only law on the orders that no
exchange changes is the uniform one.

While rows come in, what is more than memory may hold lies in one file that has no name and that nobody else can
decipher (`spool.py`). The draws come from a generator that 256 bits of the operating system seed.
"""

import secrets
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeAlias

import numpy as np
import numpy.typing as npt

from app.vault import spool
from app.vault.spool import Spool

Rows: TypeAlias = npt.NDArray[Any]  # (b,), of a structured type: a row with all that belongs to it

PART_BYTES = 32 * 2**20
"""Average size of a part, where as much comes as may."""
HELD_BYTES = 64 * 2**20
"""Rows that are in memory before any go into the file."""
_SEED_BITS, _POOL = 256, 8


def generator() -> np.random.Generator:
    """One that nobody can tell the draws of."""
    seed = np.random.SeedSequence(secrets.randbits(_SEED_BITS), pool_size=_POOL)
    return np.random.Generator(np.random.PCG64DXSM(seed))


class Shuffle:
    """Takes rows in any order, then gives each of them once, in a uniformly random order.

    `folder`: where the file is, if there has to be one; `most_bytes`: of all rows together. Memory holds `held_bytes`
    of them while they come, and then a part or two, however many there are.
    """

    def __init__(
        self, folder: Path, *, most_bytes: int, part_bytes: int = PART_BYTES, held_bytes: int = HELD_BYTES
    ) -> None:
        self._folder = folder
        self._generator = generator()
        self._held: list[list[Rows]] = [[] for _ in range(max(1, -(-most_bytes // part_bytes)))]
        self._spooled: list[list[tuple[int, int]]] = [[] for _ in self._held]  # place and length of each piece
        self._held_bytes = self._room = held_bytes
        self._spool: Spool | None = None
        self._type: np.dtype[Any] | None = None

    def add(self, rows: Rows) -> None:
        """Rows of one type, the same each time."""
        self._type = rows.dtype
        part = self._generator.integers(len(self._held), size=len(rows), dtype=np.uint32)
        order = np.argsort(part, kind="stable")
        grouped, ends = rows[order], np.cumsum(np.bincount(part, minlength=len(self._held)))
        for number in np.unique(part).tolist():
            start = int(ends[number - 1]) if number else 0
            self._held[number].append(grouped[start : int(ends[number])])
        self._room -= rows.nbytes
        if self._room < 0:
            self._put_away()

    def shuffled(self) -> Iterator[Rows]:
        """All rows, some at a time; once."""
        for number in range(len(self._held)):
            rows = self._part(number)
            if rows is not None:
                yield rows[self._generator.permutation(len(rows))]

    def close(self) -> None:
        self._held = []
        if self._spool is not None:
            self._spool.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.close()

    def _put_away(self) -> None:
        if self._spool is None:
            self._spool = spool.create(self._folder)
        for held, spooled in zip(self._held, self._spooled, strict=True):
            if held:
                content = np.concatenate(held).view(np.uint8)
                spooled.append((self._spool.tell(), content.nbytes))
                self._spool.write(content.data)
                held.clear()
        self._room = self._held_bytes

    def _part(self, number: int) -> Rows | None:
        held, self._held[number] = self._held[number], []
        if self._spool is None or not self._spooled[number]:
            return np.concatenate(held) if held else None
        assert self._type is not None
        content = np.empty(sum(length for _, length in self._spooled[number]), np.uint8)
        read = 0
        for place, length in self._spooled[number]:
            self._spool.seek(place)
            if self._spool.readinto(content[read : read + length].data) != length:
                raise EOFError("The file of rows that wait to be shuffled is shorter than what was written to it.")
            read += length
        return np.concatenate([content.view(self._type), *held])
