"""The people of an upload, slot by slot, until the database has it: flat in memory, however many there are."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from app.vault import spool
from app.vault.spool import Spool

Refs: TypeAlias = npt.NDArray[np.bytes_]  # (b,), empty for nobody

REF_BYTES = 44
"""The most bytes of a reference: what `Keys.subject_ref` makes has as many."""
TYPE = np.dtype(f"S{REF_BYTES}")
_HELD = 4 * 2**20 // REF_BYTES
"""References that are in memory at once."""


def packed(references: Sequence[str | None]) -> Refs:
    """So many references as one array."""
    made = np.array([reference or "" for reference in references], dtype=np.bytes_)
    if made.itemsize > REF_BYTES:
        raise ValueError(f"Expected references of {REF_BYTES} bytes at most, found {made.itemsize}")
    return made.astype(TYPE)


class References:
    """The references of consecutive slots, from 0 on: added once, then read as often as one likes. Those of a large
    upload lie in a file in `folder` that has no name and that nobody else can decipher."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._held: list[Refs] = []
        self._num_held = self._num_spooled = 0
        self._spool: Spool | None = None

    def append(self, references: Refs) -> None:
        self._held.append(references.astype(TYPE))
        self._num_held += len(references)
        if self._num_held > _HELD:
            self._spool = self._spool or spool.create(self._folder)
            self._spool.seek(self._num_spooled * REF_BYTES)
            self._spool.write(np.concatenate(self._held).view(np.uint8).data)
            self._num_spooled += self._num_held
            self._held, self._num_held = [], 0

    def __len__(self) -> int:
        return self._num_spooled + self._num_held

    def __iter__(self) -> Iterator[str | None]:
        for some in self._arrays():
            for reference in some.tolist():
                yield reference.decode() or None

    def _arrays(self) -> Iterator[Refs]:
        for start in range(0, self._num_spooled, _HELD):
            content = np.empty(min(_HELD, self._num_spooled - start), TYPE)
            assert self._spool is not None
            self._spool.seek(start * REF_BYTES)
            if self._spool.readinto(content.view(np.uint8).data) != content.nbytes:
                raise EOFError("The file of references is shorter than what was written to it.")
            yield content
        yield from self._held
