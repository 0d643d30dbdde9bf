"""Needles: samples of a person's vectors, texts and ids to be searched for in a store's files."""

import base64
import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

KINDS = ("vector", "text", "id")
SAMPLE = 8
"""Number of components in a vector sample."""
MIN_DISTINCT = 4
"""Minimum number of distinct nonzero components in a sample; with fewer, it could match other data or empty space."""
MIN_BYTES = 8
"""Minimum length in bytes of texts and ids; shorter ones could occur by chance."""
_BYTES, _MAX_WHOLE = 32, 48
_SAMPLES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreRecord:
    """Record in a store. `id` is None if it is not stored as text. `vectors` are one-dimensional float arrays, and
    `texts` the record's other texts."""

    id: str | None
    vectors: tuple[np.ndarray[Any, Any], ...] = ()
    texts: tuple[str | bytes, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Needle:
    """Vector, text or id whose `samples` are sought: arrays of float64, or bytes. Any sample found reveals it. A needle
    without samples is not distinctive; `why` is then `too_short` or `too_plain`. `is_held` is True if the store
    returned the needle; the store's files must then contain it before the deletion."""

    kind: str
    samples: tuple[bytes | np.ndarray[Any, Any], ...] = field(repr=False)
    why: str | None = None
    is_held: bool = True

    def to_json(self) -> dict[str, Any]:
        samples = [
            {"bytes": base64.b64encode(sample).decode()} if isinstance(sample, bytes) else {"floats": sample.tolist()}
            for sample in self.samples
        ]
        return {"kind": self.kind, "samples": samples, "why": self.why, "is_held": self.is_held}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> "Needle":
        samples = tuple(
            base64.b64decode(sample["bytes"]) if "bytes" in sample else np.array(sample["floats"], dtype=np.float64)
            for sample in document["samples"]
        )
        return cls(**{**document, "samples": samples})


def needles(records: Iterable[StoreRecord], identifiers: Sequence[str]) -> list[Needle]:
    """Return the distinct needles for a person with these records and identifiers."""
    all_needles = [dataclasses.replace(_of_text("id", identifier), is_held=False) for identifier in identifiers]
    for record in records:
        all_needles += [_of_text("id", record.id)] if record.id is not None else []
        all_needles += [_of_vector(vector) for vector in record.vectors]
        all_needles += [_of_text("text", text) for text in record.texts]
    return list({(needle.kind, needle.why, needle.is_held, _key(needle)): needle for needle in all_needles}.values())


def _key(needle: Needle) -> bytes:
    return b"\0".join(sample if isinstance(sample, bytes) else sample.tobytes() for sample in needle.samples)


def _of_text(kind: str, text: str | bytes) -> Needle:
    """Return a text's needle: samples in UTF-8, the whole text if it is short, otherwise parts spread over it."""
    content = text if isinstance(text, bytes) else text.encode("utf8", "surrogatepass")
    if len(content) < MIN_BYTES:
        return Needle(kind=kind, samples=(), why="too_short")
    width = min(_BYTES, len(content)) if len(content) > _MAX_WHOLE else len(content)
    starts = np.linspace(0, len(content) - width, _SAMPLES).astype(int)
    samples = {content[start : start + width] for start in starts}
    telling = sorted(sample for sample in samples if len(set(sample)) >= MIN_DISTINCT)
    return Needle(kind=kind, samples=tuple(telling), why=None if telling else "too_plain")


def _of_vector(vector: np.ndarray[Any, Any]) -> Needle:
    """Return a vector's needle: samples of 8 components each, spread over it, both unchanged and scaled to length 1."""
    values = np.asarray(vector, dtype=np.float64)
    width = min(SAMPLE, len(values))
    starts = range(0, len(values) - width + 1, width)
    usable = [start for start in starts if _is_telling(values[start : start + width])]
    if not usable:
        return Needle(kind="vector", samples=(), why="too_plain")
    chosen = sorted({usable[place] for place in np.linspace(0, len(usable) - 1, _SAMPLES).astype(int)})
    length = float(np.linalg.norm(values))
    scales = [1.0] if abs(length - 1) < 1e-6 else [1.0, 1 / length]
    return Needle(kind="vector", samples=tuple(values[s : s + width] * scale for scale in scales for s in chosen))


def _is_telling(sample: np.ndarray[Any, Any]) -> bool:
    return bool(np.isfinite(sample).all()) and len(np.unique(sample[sample != 0])) >= MIN_DISTINCT
