"""Uploads: a file's rows are written to the row store in random order, except rows of suppressed people.

No row is sealed until the file has been read to its end and every row has passed the checks. Until then, rows and their
subject references are held in memory or in unnamed, encrypted files.
"""

import io
import os
import secrets
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeAlias

import numpy as np
import numpy.typing as npt

from app.rows import blocks, formats, ingest
from app.turns import Turns
from app.vault import store
from lethe.contract.problems import SubjectSuppressed
from lethe.encoding.rows import Schema, labels_in, weights_in
from lethe.encoding.spread import Spread
from lethe.encoding.targets import TargetColumn

Refs: TypeAlias = npt.NDArray[np.bytes_]  # (b,), empty for no subject

REF_BYTES = 44
"""Maximum length of a reference in bytes, which is the length of the references from `Keys.subject_ref`."""
TYPE = np.dtype(f"S{REF_BYTES}")
_HELD = 4 * 2**20 // REF_BYTES
"""Maximum number of references held in memory."""


def packed(references: Sequence[str | None]) -> Refs:
    """Return references as an array in which empty strings replace None."""
    array = np.array([reference or "" for reference in references], dtype=np.bytes_)
    if array.itemsize > REF_BYTES:
        raise ValueError(f"Expected references of {REF_BYTES} bytes at most, found {array.itemsize}")
    return array.astype(TYPE)


class References:
    """Subject references for consecutive slots starting at 0, appended once and then iterable any number of times.
    Large uploads spool them to an unnamed, encrypted file in `folder`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._held: list[Refs] = []
        self._num_held = self._num_spooled = 0
        self._spool: store.Spool | None = None

    def append(self, references: Refs) -> None:
        self._held.append(references.astype(TYPE))
        self._num_held += len(references)
        if self._num_held > _HELD:
            self._spool = self._spool or store.create(self._folder)
            self._spool.seek(self._num_spooled * REF_BYTES)
            self._spool.write(np.concatenate(self._held).view(np.uint8).data)
            self._num_spooled += self._num_held
            self._held, self._num_held = [], 0

    def __len__(self) -> int:
        return self._num_spooled + self._num_held

    def __iter__(self) -> Iterator[str | None]:
        for array in self._arrays():
            for reference in array.tolist():
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


_MAX_NAMED_ROWS = 20
"""Maximum number of rows named in an error."""


Rows: TypeAlias = npt.NDArray[Any]  # (b,), structured

PART_BYTES = 32 * 2**20
"""Average size of a part, for an upload of the maximum size."""
HELD_BYTES = 64 * 2**20
"""Maximum size in bytes of the rows held in memory as they arrive; beyond it, they are spooled."""
_SEED_BITS, _POOL = 256, 8


def generator() -> np.random.Generator:
    """Return a random generator whose draws are unpredictable."""
    seed = np.random.SeedSequence(secrets.randbits(_SEED_BITS), pool_size=_POOL)
    return np.random.Generator(np.random.PCG64DXSM(seed))


class Shuffle:
    """Uniformly random permutation of a stream of rows, in bounded memory.

    Every row is assigned to a random part, and each part is permuted. `most_bytes` bounds the total size of the rows.
    Memory holds about `held_bytes` of rows while they arrive, then one or two parts. The rest is spooled to `folder`.
    """

    def __init__(
        self, folder: Path, *, most_bytes: int, part_bytes: int = PART_BYTES, held_bytes: int = HELD_BYTES
    ) -> None:
        self._folder = folder
        self._generator = generator()
        self._held: list[list[Rows]] = [[] for _ in range(max(1, -(-most_bytes // part_bytes)))]
        # Offset and length in the file of the pieces of each part.
        self._spooled: list[list[tuple[int, int]]] = [[] for _ in self._held]
        self._held_bytes = self._room = held_bytes
        self._spool: store.Spool | None = None
        self._type: np.dtype[Any] | None = None

    def add(self, rows: Rows) -> None:
        """Add rows; all calls must use the same structured type."""
        self._type = rows.dtype
        part = self._generator.integers(len(self._held), size=len(rows), dtype=np.uint32)
        order = np.argsort(part, kind="stable")
        grouped, ends = rows[order], np.cumsum(np.bincount(part, minlength=len(self._held)))
        for number in np.unique(part).tolist():
            start = int(ends[number - 1]) if number else 0
            self._held[number].append(grouped[start : int(ends[number])])
        self._room -= rows.nbytes
        if self._room < 0:
            self._spool_held()

    def shuffled(self) -> Iterator[Rows]:
        """Yield all rows in random order, one part at a time. This can be called only once."""
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

    def __exit__(self, *_error: object) -> None:
        self.close()

    def _spool_held(self) -> None:
        if self._spool is None:
            self._spool = store.create(self._folder)
        for pieces, spooled in zip(self._held, self._spooled, strict=True):
            if pieces:
                content = np.concatenate(pieces).view(np.uint8)
                spooled.append((self._spool.tell(), content.nbytes))
                self._spool.write(content.data)
                pieces.clear()
        self._room = self._held_bytes

    def _part(self, number: int) -> Rows | None:
        pieces, self._held[number] = self._held[number], []
        if self._spool is None or not self._spooled[number]:
            return np.concatenate(pieces) if pieces else None
        assert self._type is not None
        content = np.empty(sum(length for _, length in self._spooled[number]), np.uint8)
        read = 0
        for place, length in self._spooled[number]:
            self._spool.seek(place)
            if self._spool.readinto(content[read : read + length].data) != length:
                raise EOFError("The file of rows that wait to be shuffled is shorter than what was written to it.")
            read += length
        return np.concatenate([content.view(self._type), *pieces])


_CORES = os.cpu_count() or 1
_TURNS = Turns(max(2, _CORES), of_one=max(1, _CORES // 2))
"""Queue in which this process's uploads share the reading and writing of pieces fairly among tenants."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowUpload:
    """File of rows, read once. `classes` are its labels' declared classes, empty if it has a `target`. Unpacked data
    are spooled in `folder`. The file is read in `tenant_id`'s share of the processor. `subject_refs` maps subject ids
    to references in order. `max_bytes` limits the unpacked size and the size of the encoded rows. With fewer than
    `few_rows` rows, the share of unknown values is not checked. `features_of` is the public network that computes the
    features, if any. `admit` is called with the size in bytes of all rows read so far, and may raise."""

    file: io.RawIOBase
    folder: Path
    kind: formats.Kind
    schema: Schema | None
    classes: tuple[str, ...]
    subject_refs: Callable[[Iterable[str]], list[str]]
    tenant_id: str = ""
    target: TargetColumn | None = None
    max_bytes: int = formats.MAX_BYTES
    few_rows: int = 0
    features_of: formats.FeaturesOf | None = None
    admit: Callable[[int], None] = lambda num_bytes: None

    @property
    def has_classes(self) -> bool:
        """True if each row has exactly one class."""
        return self.target is None and (self.schema is None or self.schema.separator is None)

    def turn(self) -> AbstractContextManager[None]:
        """Wait until the tenant may use the processor. A network runs in its own process and need not wait."""
        return nullcontext() if self.features_of else _TURNS.taken(self.tenant_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Suppressed:
    """Suppressed people, whose rows are refused. `among` returns which of the given people are suppressed; with `skip`,
    their rows are left out and the upload is not refused. `matched` receives the number of their rows before the
    response is sent; without `may_know`, a refusal reveals neither which rows they are nor how many."""

    among: Callable[[Collection[str]], set[str]]
    skip: bool
    may_know: bool = True
    matched: Callable[[int], None] = lambda num_rows: None


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenRows:
    """Result of writing an upload: the subject references by slot, the number of rows of each class if each row has one
    class (excluding rows of weight 0), the number of suppressed rows left out, and the spread of all rows read."""

    subject_refs: References
    class_counts: npt.NDArray[np.int64]
    num_suppressed: int
    spread: Spread | None


def take_in(
    writer: blocks.RowWriter,
    upload: RowUpload,
    *,
    suppressed: Suppressed,
    check: Callable[[formats.Batch, int], None] = lambda batch, num_taken: None,
) -> WrittenRows:
    """Write the rows of an upload in uniformly random order, and return the result. `check` receives each batch and the
    number of rows accepted before it. The written rows must be discarded if this raises.

    Raises `SchemaInvalid`, `RowInvalid`, `InputInvalid`, `SubjectSuppressed`, and the exceptions of `check`.
    """
    with Shuffle(upload.folder, most_bytes=upload.max_bytes) as shuffle:
        counts, num_suppressed, spread = _read_all(shuffle, upload, suppressed, check)
        subject_refs = References(upload.folder)
        for rows in shuffle.shuffled():
            with upload.turn():
                writer.write(rows["features"], rows["label"])
                subject_refs.append(rows["subject_ref"])
    return WrittenRows(subject_refs=subject_refs, class_counts=counts, num_suppressed=num_suppressed, spread=spread)


def _read_all(
    shuffle: Shuffle, upload: RowUpload, suppressed: Suppressed, check: Callable[[formats.Batch, int], None]
) -> tuple[npt.NDArray[np.int64], int, Spread | None]:
    """Read the file to its end into `shuffle`, and return the number of accepted rows of each class, the number of
    suppressed rows, and the spread of all rows."""
    counts = np.zeros(len(upload.classes), dtype=np.int64)
    num_unknown: npt.NDArray[np.int64] | None = None
    spread: Spread | None = None
    num_read = num_suppressed = 0
    suppressed_lines: list[int] = []
    batches = _read(upload)
    try:
        while True:
            with upload.turn():
                batch = next(batches, None)
                if batch is None:
                    break
                check(batch, num_read - num_suppressed)
                spread = batch.spread if spread is None else spread.with_rows(batch.spread)
                if batch.num_unknown is not None:
                    num_unknown = batch.num_unknown if num_unknown is None else num_unknown + batch.num_unknown
                references = _references(batch.subjects, upload)
                rows = _joined(batch, packed(references))
                mask = _accepted(references, suppressed)
                if not mask.all():
                    num_suppressed += int((~mask).sum())
                    suppressed_lines += (np.flatnonzero(~mask)[:_MAX_NAMED_ROWS] + num_read + 1).tolist()
                    rows = rows[mask]
                num_read += len(mask)
                upload.admit(formats.encoded_bytes(num_read, batch.features.shape[1] - 1))
                shuffle.add(rows)
                if upload.has_classes:
                    weights = weights_in(rows["label"])
                    counted = slice(None) if weights is None else weights > 0
                    counts += np.bincount(labels_in(rows["label"])[counted], minlength=len(counts))
    # Report the number even if a later row is refused, because the error may depend on it.
    finally:
        if num_suppressed:
            suppressed.matched(num_suppressed)
    if upload.schema is not None and num_unknown is not None and num_read >= upload.few_rows:
        upload.schema.check_known(num_unknown, num_read)
    if num_suppressed and not suppressed.skip:
        if not suppressed.may_know:
            raise SubjectSuppressed.somebody()
        raise SubjectSuppressed(
            num_suppressed=num_suppressed, lines=", ".join(map(str, suppressed_lines[:_MAX_NAMED_ROWS]))
        )
    return counts, num_suppressed, spread


def _references(subjects: Sequence[str | None], upload: RowUpload) -> list[str | None]:
    references = iter(upload.subject_refs(subject for subject in subjects if subject is not None))
    return [None if subject is None else next(references) for subject in subjects]


def _joined(batch: formats.Batch, references: Refs) -> Rows:
    """Return the rows as a structured array of features, label (with weight, if any) and subject reference."""
    fields = [
        ("features", "<f4", batch.features.shape[1:]),
        ("label", "<i4", batch.labels.shape[1:]),
        ("subject_ref", TYPE),
    ]
    rows = np.empty(len(references), dtype=fields)
    rows["features"], rows["label"], rows["subject_ref"] = batch.features, batch.labels, references
    return rows


def _read(upload: RowUpload) -> Iterator[formats.Batch]:
    batches = ingest.read(
        upload.file,
        kind=upload.kind,
        schema=upload.schema,
        classes=upload.classes,
        target=upload.target,
        folder=upload.folder,
        max_bytes=upload.max_bytes,
        count_rows=upload.features_of is not None,
    )
    if upload.features_of is None:
        return batches
    features_of = upload.features_of
    return (formats.through(batch, features_of) for batch in batches)


def _accepted(references: Sequence[str | None], suppressed: Suppressed) -> npt.NDArray[np.bool_]:
    """Return a mask of the rows whose subject is not suppressed."""
    refused = suppressed.among({reference for reference in references if reference is not None})
    return np.array([reference not in refused for reference in references], dtype=np.bool_)
