"""Search of bytes for samples of vectors, texts and ids.

Texts and ids are searched for as they are, in UTF-8; vectors at every offset as little-endian float16, float32 and
float64, within the format's rounding error, because stores normalise and convert them, which changes the last bits.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lethe.features.stores.needles import MIN_BYTES, Needle

CHUNK_BYTES = 8 * 2**20
_TOLERANCES = {"<f2": 2e-3, "<f4": 8e-6, "<f8": 8e-6}
"""Tolerance for each format, relative to a sample's largest component."""
_FILTERS = 3
"""Number of components whose upper 16 bits select candidates from a table before all components are compared."""
_MAX_COMPARED = 2**18


@dataclass(frozen=True, slots=True)
class Hit:
    """Occurrence of a sample: indices of the needle and of its sample, and the byte offset."""

    needle: int
    sample: int
    offset: int


class Searcher:
    """Prepared search for needles in byte streams."""

    def __init__(self, needles: Sequence[Needle]) -> None:
        texts: list[tuple[bytes, int, int]] = []
        floats: dict[int, list[tuple[Any, int, int]]] = {}
        for place, needle in enumerate(needles):
            for number, sample in enumerate(needle.samples):
                if isinstance(sample, bytes):
                    texts.append((sample, place, number))
                else:
                    floats.setdefault(len(sample), []).append((sample, place, number))
        self._vectors = [_Vectors(dtype, group) for group in floats.values() for dtype in _TOLERANCES]
        self._texts = _Texts(texts)
        lengths = [len(sample) for sample, _, _ in texts] + [vector.length for vector in self._vectors]
        self._overlap = max(lengths, default=1) - 1

    def hits(self, chunks: Iterable[bytes]) -> Iterator[Hit]:
        """Yield each occurrence of a sample in a byte stream."""
        before, start = b"", 0
        for chunk in chunks:
            data = before + chunk
            for place, number, offset, length in self._in(data):
                # Matches wholly in the overlap were found with the preceding chunk.
                if offset + length > len(before):
                    yield Hit(place, number, start + offset)
            kept = min(self._overlap, len(data))
            before = data[len(data) - kept :]
            start += len(data) - kept

    def _in(self, data: bytes) -> Iterator[tuple[int, int, int, int]]:
        yield from self._texts.found_in(data)
        for vectors in self._vectors:
            yield from vectors.found_in(data)


class _Texts:
    """Search for byte samples, each at least `MIN_BYTES` long."""

    def __init__(self, samples: Sequence[tuple[bytes, int, int]]) -> None:
        self._by_start: dict[bytes, list[tuple[bytes, int, int]]] = {}
        self._tables = np.zeros((MIN_BYTES // 2, 2**16), dtype=bool)
        for sample, place, number in samples:
            self._by_start.setdefault(sample[:MIN_BYTES], []).append((sample, place, number))
            self._tables[np.arange(len(self._tables)), np.frombuffer(sample, "<u2", len(self._tables))] = True

    def found_in(self, data: bytes) -> Iterator[tuple[int, int, int, int]]:
        for shift in (0, 1):
            count = (len(data) - shift) // 2
            possible = count - len(self._tables) + 1
            if not self._by_start or possible <= 0:
                continue
            pairs = np.frombuffer(data, "<u2", count, shift)
            candidates = np.flatnonzero(self._tables[0][pairs[:possible]])
            for place, table in enumerate(self._tables[1:], start=1):
                candidates = candidates[table[pairs[candidates + place]]]
            for offset in (candidates * 2 + shift).tolist():
                for sample, place, number in self._by_start.get(data[offset : offset + MIN_BYTES], ()):
                    if data.startswith(sample, offset):
                        yield place, number, offset, len(sample)


class _Vectors:
    """Search for vector samples with the same number of components, in one format."""

    def __init__(self, dtype: str, samples: Sequence[tuple[Any, int, int]]) -> None:
        self._dtype = np.dtype(dtype)
        # In the order of the first component, by which candidates are matched.
        ordered = sorted(samples, key=lambda sample: float(sample[0][0]))
        self._samples = np.array([sample for sample, _, _ in ordered], dtype=np.float64)
        self._names = [(place, number) for _, place, number in ordered]
        self._tolerances = _TOLERANCES[dtype] * np.abs(self._samples).max(axis=1)
        self._width = self._samples.shape[1]
        self.length = self._width * self._dtype.itemsize
        self._tables = [self._table(component) for component in range(min(_FILTERS, self._width))]

    def _table(self, component: int) -> np.ndarray[Any, Any]:
        """Return which upper 16 bits this component of a sample can have, in this format and within the tolerance."""
        table = np.zeros(2**16, dtype=bool)
        values = self._samples[:, component]
        for low, high in zip(values - self._tolerances, values + self._tolerances, strict=True):
            if high >= 0:
                table[self._upper(max(low, 0.0)) : self._upper(high) + 1] = True
            if low <= 0:
                table[2**15 + self._upper(max(-high, 0.0)) : 2**15 + self._upper(-low) + 1] = True
        return table

    def _upper(self, magnitude: float) -> int:
        with np.errstate(over="ignore"):
            encoded = np.array([magnitude]).astype(self._dtype)
        return int(encoded.view("<u2")[-1])

    def found_in(self, data: bytes) -> Iterator[tuple[int, int, int, int]]:
        size = self._dtype.itemsize
        for shift in range(size):
            count = (len(data) - shift) // size
            if count < self._width:
                continue
            upper = np.frombuffer(data, "<u2", count * size // 2, shift)[size // 2 - 1 :: size // 2]
            possible = count - self._width + 1
            candidates = np.flatnonzero(self._tables[0][upper[:possible]])
            for component, table in enumerate(self._tables[1:], start=1):
                candidates = candidates[table[upper[candidates + component]]]
            if not len(candidates):
                continue
            numbers = np.frombuffer(data, self._dtype, count, shift)
            for begin in range(0, len(candidates), _MAX_COMPARED):
                yield from self._compared(numbers, candidates[begin : begin + _MAX_COMPARED], shift)

    def _compared(self, numbers: Any, candidates: Any, shift: int) -> Iterator[tuple[int, int, int, int]]:
        first, reach = numbers[candidates].astype(np.float64), self._tolerances.max()
        low = np.searchsorted(self._samples[:, 0], first - reach, side="left")
        count = np.searchsorted(self._samples[:, 0], first + reach, side="right") - low
        which = np.repeat(np.arange(len(candidates)), count)
        sample = np.arange(len(which)) - np.repeat(np.cumsum(count) - count, count) + np.repeat(low, count)
        with np.errstate(invalid="ignore", over="ignore"):
            for component in range(self._width):
                values = numbers[candidates[which] + component].astype(np.float64)
                is_equal = np.abs(values - self._samples[sample, component]) <= self._tolerances[sample]
                which, sample = which[is_equal], sample[is_equal]
        for candidate, place in zip(candidates[which], sample, strict=True):
            yield *self._names[place], int(candidate) * self._dtype.itemsize + shift, self.length
