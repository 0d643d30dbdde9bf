"""Many patterns looked for at once: at the speed of one pass, whatever their number."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.forensics import forms

_ANCHOR = 4
_BLOCK = 2**22


class Finder:
    """Finds each place of each pattern.

    Of every pattern four bytes are its anchor; two tables of 65,536 bits say where an anchor may be.
    """

    def __init__(self, patterns: Mapping[str, bytes]) -> None:
        if not patterns:
            raise ValueError("Expected something to look for")
        self.patterns = dict(patterns)
        self.longest = max(map(len, patterns.values()))
        self._anchored: dict[bytes, list[tuple[str, bytes, int]]] = defaultdict(list)
        self._first, self._second = np.zeros(65536, dtype=np.bool_), np.zeros(65536, dtype=np.bool_)
        for name, pattern in patterns.items():
            if len(pattern) < forms.MIN_BYTES:
                raise ValueError(f"Expected a pattern of {forms.MIN_BYTES} bytes or more for {name}")
            at = max(range(len(pattern) - _ANCHOR + 1), key=lambda start: _rarity(pattern[start : start + _ANCHOR]))
            anchor = pattern[at : at + _ANCHOR]
            self._anchored[anchor].append((name, pattern, at))
            self._first[int.from_bytes(anchor[:2], "little")] = True
            self._second[int.from_bytes(anchor[2:], "little")] = True
        anchors = [int.from_bytes(anchor, "little") for anchor in self._anchored]
        self._anchors = np.array(sorted(anchors), dtype=np.uint32)

    def found(self, content: bytes) -> Counter[str]:
        """How often each pattern is in `content`; empty if none is."""
        return Counter(name for name, _ in self.places(content))

    def places(self, content: bytes) -> Iterator[tuple[str, int]]:
        for start in range(0, len(content), _BLOCK):
            for place in self._candidates(content, start):
                for name, pattern, at in self._anchored[content[place : place + _ANCHOR]]:
                    if place >= at and content.startswith(pattern, place - at):
                        yield name, place - at

    def _candidates(self, content: bytes, start: int) -> list[int]:
        """Places of anchors that begin in a block."""
        found: list[NDArray[Any]] = []
        for odd in (0, 1):
            begin = start + odd
            count = min(_BLOCK // 2 + 1, (len(content) - begin) // 2)
            if count < 2:
                continue
            pairs = np.frombuffer(content, dtype="<u2", count=count, offset=begin)
            # The second table is asked at the few places alone that the first one leaves.
            may = np.flatnonzero(self._first[pairs[:-1]])
            may = may[self._second[pairs[may + 1]]]
            if len(may):
                anchors = pairs[may].astype(np.uint32) | pairs[may + 1].astype(np.uint32) << np.uint32(16)
                nearest = np.minimum(np.searchsorted(self._anchors, anchors), len(self._anchors) - 1)
                found.append(begin + 2 * may[self._anchors[nearest] == anchors])
        return [place for places in found for place in places.tolist()]


def _rarity(anchor: bytes) -> int:
    """Zeros, repetitions and what text is full of make an anchor common."""
    return 4 * len(set(anchor)) - 3 * anchor.count(0) - sum(byte in b' \n\xff"\\%' for byte in anchor)
