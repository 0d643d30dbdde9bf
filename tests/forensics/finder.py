"""Search for many patterns in one pass, whatever their number."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping

import numpy as np
from numba import njit
from numpy.typing import NDArray

from tests.forensics import forms

_ANCHOR = 4
_MIXED_BY, _DROPPED = np.uint32(2654435761), np.uint32(13)
"""Factor of the hash of an anchor (Knuth's), and number of its lower bits that the hash does without."""
_AT_ONCE = 4096
"""Number of anchors that one call of the compiled loop returns at most."""


class Finder:
    """Finds each place of each pattern.

    Four bytes of each pattern serve as its anchor. A table keyed by the hash of four bytes tells whether they may be an
    anchor. If so, a look-up in the sorted anchors decides."""

    def __init__(self, patterns: Mapping[str, bytes]) -> None:
        if not patterns:
            raise ValueError("Expected something to look for")
        self.patterns = dict(patterns)
        self.longest = max(map(len, patterns.values()))
        self._anchored: dict[bytes, list[tuple[str, bytes, int]]] = defaultdict(list)
        for name, pattern in patterns.items():
            if len(pattern) < forms.MIN_BYTES:
                raise ValueError(f"Expected a pattern of {forms.MIN_BYTES} bytes or more for {name}")
            at = max(range(len(pattern) - _ANCHOR + 1), key=lambda start: _rarity(pattern[start : start + _ANCHOR]))
            anchor = pattern[at : at + _ANCHOR]
            self._anchored[anchor].append((name, pattern, at))
        anchors = [int.from_bytes(anchor, "little") for anchor in self._anchored]
        self._anchors = np.array(sorted(anchors), dtype=np.uint32)
        self._may_be_anchor = np.zeros(2 ** (32 - int(_DROPPED)), dtype=np.bool_)
        self._may_be_anchor[self._anchors * _MIXED_BY >> _DROPPED] = True

    def found(self, content: bytes) -> Counter[str]:
        """Return the number of occurrences of each pattern in `content`; empty if no pattern occurs."""
        return Counter(name for name, _ in self.places(content))

    def places(self, content: bytes) -> Iterator[tuple[str, int]]:
        for place in self._candidates(content):
            for name, pattern, at in self._anchored[content[place : place + _ANCHOR]]:
                if place >= at and content.startswith(pattern, place - at):
                    yield name, place - at

    def _candidates(self, content: bytes) -> Iterator[int]:
        """Yield the position of each anchor in `content`."""
        read, start = np.frombuffer(content, dtype=np.uint8), 0
        places = np.empty(_AT_ONCE, dtype=np.int64)
        while start + _ANCHOR <= len(content):
            count, start = _find_anchors(read, start, self._may_be_anchor, self._anchors, places)
            yield from places[:count].tolist()


@njit("UniTuple(uint64, 2)(Array(uint8, 1, 'C', readonly=True), uint64, b1[::1], uint32[::1], int64[::1])", cache=True)
def _find_anchors(
    content: NDArray[np.uint8],
    start: int,
    may_be_anchor: NDArray[np.bool_],
    anchors: NDArray[np.uint32],
    places: NDArray[np.int64],
) -> tuple[int, int]:
    """Write the positions of anchors from `start` to the end of the content to `places`, until it is full. Return their
    number and the position at which to continue."""
    count = np.uint64(0)
    begin, end = np.uint64(start), np.uint64(len(content) - 3)
    anchor = np.uint32(0)
    for place in range(begin, begin + np.uint64(3)):
        anchor = anchor >> np.uint32(8) | np.uint32(content[place]) << np.uint32(24)
    for place in range(begin, end):
        anchor = anchor >> np.uint32(8) | np.uint32(content[place + np.uint64(3)]) << np.uint32(24)
        if may_be_anchor[np.uint32(anchor * _MIXED_BY) >> _DROPPED]:
            nearest = np.searchsorted(anchors, anchor)
            if nearest < len(anchors) and anchors[nearest] == anchor:
                places[count] = place
                count += np.uint64(1)
                if count == len(places):
                    return count, place + np.uint64(1)
    return count, end


def _rarity(anchor: bytes) -> int:
    """Return how rare an anchor is. Zeros, repetitions and characters that are frequent in text make an anchor
    common."""
    return 4 * len(set(anchor)) - 3 * anchor.count(0) - sum(byte in b' \n\xff"\\%' for byte in anchor)
