"""What an upload holds goes into the row store row by row, but for the rows of people who asked to be forgotten."""

import io
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from app.errors import SubjectSuppressed
from app.registry import ingest
from app.registry.blocks import RowWriter
from app.registry.encoding import Schema
from app.registry.ingest import Batch

_MOST_NAMED = 20
"""Rows that an error names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Upload:
    """A file of rows, read once. `classes`: what its labels stand for, as was declared; `folder`: where what must be
    unpacked is spooled; `subject_ref` makes references of subject ids; `max_bytes`: of what the file unpacks to, and of
    its rows; `few_rows`: of fewer, nothing is concluded from how many of them are unknown."""

    file: io.RawIOBase
    folder: Path
    kind: ingest.Kind
    schema: Schema | None
    classes: tuple[str, ...]
    subject_ref: Callable[[str], str]
    max_bytes: int = ingest.MAX_BYTES
    few_rows: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Suppressed:
    """Whose rows are not taken in. `among`: those of some people; `skip`: leave their rows out, do not refuse all."""

    among: Callable[[Collection[str]], set[str]]
    skip: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """What was written: whose each row is, how many are of each class; `num_suppressed` were left out."""

    subject_refs: Sequence[str | None]
    class_counts: npt.NDArray[np.int64]
    num_suppressed: int


def take_in(
    writer: RowWriter,
    upload: Upload,
    *,
    suppressed: Suppressed,
    check: Callable[[Batch, int], None] = lambda batch, first_row: None,
) -> Taken:
    """Write the rows of an upload, each batch once `check` has let it pass, whose first row is the n-th from 1; nothing
    may be kept if this raises.

    Raises `SchemaInvalid`, `RowInvalid`, `InputInvalid`, `SubjectSuppressed`, and what `check` raises.
    """
    references: list[str | None] = []
    counts = np.zeros(len(upload.classes), dtype=np.int64)
    num_unknown: npt.NDArray[np.int64] | None = None
    num_read = num_suppressed = 0
    refused: list[int] = []
    for batch in _read(upload):
        check(batch, num_read + 1)
        if batch.num_unknown is not None:
            num_unknown = batch.num_unknown if num_unknown is None else num_unknown + batch.num_unknown
        of_batch = [None if subject is None else upload.subject_ref(subject) for subject in batch.subjects]
        kept = _kept(of_batch, suppressed)
        if not kept.all():
            num_suppressed += int((~kept).sum())
            refused += (np.flatnonzero(~kept)[:_MOST_NAMED] + num_read + 1).tolist()
            of_batch = [reference for reference, keep in zip(of_batch, kept, strict=True) if keep]
            batch = Batch(features=batch.features[kept], labels=batch.labels[kept], subjects=[])
        num_read += len(kept)
        writer.append(batch)
        references += of_batch
        counts += np.bincount(batch.labels, minlength=len(counts))
    if upload.schema is not None and num_unknown is not None and num_read >= upload.few_rows:
        upload.schema.check_known(num_unknown, num_read)
    if refused and not suppressed.skip:
        raise SubjectSuppressed(
            f"{num_suppressed} rows are of people who asked to be forgotten (the first, counted from 1: "
            f"{', '.join(map(str, refused[:_MOST_NAMED]))}). Leave them out, or send suppressed=skip."
        )
    return Taken(subject_refs=references, class_counts=counts, num_suppressed=num_suppressed)


def _read(upload: Upload) -> Iterator[Batch]:
    return ingest.read(
        upload.file,
        kind=upload.kind,
        schema=upload.schema,
        classes=upload.classes,
        folder=upload.folder,
        max_bytes=upload.max_bytes,
    )


def _kept(references: Sequence[str | None], suppressed: Suppressed) -> npt.NDArray[np.bool_]:
    """Which rows are of nobody who is suppressed."""
    out = suppressed.among({reference for reference in references if reference is not None})
    return np.array([reference not in out for reference in references], dtype=np.bool_)
