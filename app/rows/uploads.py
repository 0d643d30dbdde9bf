"""Uploads: their rows go into the row store in a random order, but for those of people who asked to be forgotten.

Nothing is sealed before the file was read to its end and every row of it has been let pass.
"""

import io
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from app.rows import batches, ingest
from app.rows.batches import Batch, FeaturesOf
from app.rows.blocks import RowWriter
from app.rows.references import TYPE, References, Refs, packed
from app.rows.shuffle import Rows, Shuffle
from lethe.contract.problems import SubjectSuppressed
from lethe.encoding.rows import Schema
from lethe.encoding.spread import Spread
from lethe.encoding.targets import Target
from lethe.encoding.weights import labels_in

_MOST_NAMED = 20
"""Rows that an error names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Upload:
    """A file of rows, read once. `classes`: what its labels stand for, as was declared, and none of a `target`;
    `folder`: where what must be unpacked is spooled; `subject_refs` makes references of subject ids, one of each;
    `max_bytes`: of what the file unpacks to, and of its rows; `few_rows`: of fewer, nothing is concluded from how many
    of them are unknown; `features_of`: the public network whose features the rows are, if there is one."""

    file: io.RawIOBase
    folder: Path
    kind: batches.Kind
    schema: Schema | None
    classes: tuple[str, ...]
    subject_refs: Callable[[Iterable[str]], list[str]]
    target: Target | None = None
    max_bytes: int = batches.MAX_BYTES
    few_rows: int = 0
    features_of: FeaturesOf | None = None

    @property
    def has_classes(self) -> bool:
        """Each row has one class."""
        return self.target is None and (self.schema is None or self.schema.separator is None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Suppressed:
    """The people whose rows are not taken in. `among`: those of some people; `skip`: leave their rows out, do not
    refuse all."""

    among: Callable[[Collection[str]], set[str]]
    skip: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """The rows that were written: whose the row in each slot is, how many are of each class, where each is of one;
    `num_suppressed` were left out; `spread`: of all that were read."""

    subject_refs: References
    class_counts: npt.NDArray[np.int64]
    num_suppressed: int
    spread: Spread | None


def take_in(
    writer: RowWriter,
    upload: Upload,
    *,
    suppressed: Suppressed,
    check: Callable[[Batch, int], None] = lambda batch, num_taken: None,
) -> Taken:
    """Write the rows of an upload, each into a slot that a uniformly random permutation of all of them gives it; each
    batch once `check` has let it pass, which is told how many rows were taken before it. Nothing may be kept if this
    raises.

    Raises `SchemaInvalid`, `RowInvalid`, `InputInvalid`, `SubjectSuppressed`, and what `check` raises.
    """
    with Shuffle(upload.folder, most_bytes=upload.max_bytes) as shuffle:
        counts, num_suppressed, spread = _let_pass(shuffle, upload, suppressed, check)
        subject_refs = References(upload.folder)
        for rows in shuffle.shuffled():
            writer.write(rows["features"], rows["label"])
            subject_refs.append(rows["subject_ref"])
    return Taken(subject_refs=subject_refs, class_counts=counts, num_suppressed=num_suppressed, spread=spread)


def _let_pass(
    shuffle: Shuffle, upload: Upload, suppressed: Suppressed, check: Callable[[Batch, int], None]
) -> tuple[npt.NDArray[np.int64], int, Spread | None]:
    """Read the file to its end; how many rows of each class go on, how many were left out, and the spread of all."""
    counts = np.zeros(len(upload.classes), dtype=np.int64)
    num_unknown: npt.NDArray[np.int64] | None = None
    spread: Spread | None = None
    num_read = num_suppressed = 0
    refused: list[int] = []
    for batch in _read(upload):
        check(batch, num_read - num_suppressed)
        spread = batch.spread if spread is None else spread.with_rows(batch.spread)
        if batch.num_unknown is not None:
            num_unknown = batch.num_unknown if num_unknown is None else num_unknown + batch.num_unknown
        references = _references(batch.subjects, upload)
        rows = _joined(batch, packed(references))
        kept = _kept(references, suppressed)
        if not kept.all():
            num_suppressed += int((~kept).sum())
            refused += (np.flatnonzero(~kept)[:_MOST_NAMED] + num_read + 1).tolist()
            rows = rows[kept]
        num_read += len(kept)
        shuffle.add(rows)
        if upload.has_classes:
            counts += np.bincount(labels_in(rows["label"]), minlength=len(counts))
    if upload.schema is not None and num_unknown is not None and num_read >= upload.few_rows:
        upload.schema.check_known(num_unknown, num_read)
    if refused and not suppressed.skip:
        raise SubjectSuppressed(
            f"{num_suppressed} rows are of people who asked to be forgotten (the first, counted from 1: "
            f"{', '.join(map(str, refused[:_MOST_NAMED]))}). Leave them out, or send suppressed=skip."
        )
    return counts, num_suppressed, spread


def _references(subjects: Sequence[str | None], upload: Upload) -> list[str | None]:
    made = iter(upload.subject_refs(subject for subject in subjects if subject is not None))
    return [None if subject is None else next(made) for subject in subjects]


def _joined(batch: Batch, references: Refs) -> Rows:
    """Each row with its label, its weight if it has one, and whose it is."""
    of_a_row = [
        ("features", "<f4", batch.features.shape[1:]),
        ("label", "<i4", batch.labels.shape[1:]),
        ("subject_ref", TYPE),
    ]
    rows = np.empty(len(references), dtype=of_a_row)
    rows["features"], rows["label"], rows["subject_ref"] = batch.features, batch.labels, references
    return rows


def _read(upload: Upload) -> Iterator[Batch]:
    read = ingest.read(
        upload.file,
        kind=upload.kind,
        schema=upload.schema,
        classes=upload.classes,
        target=upload.target,
        folder=upload.folder,
        max_bytes=upload.max_bytes,
        counted=upload.features_of is not None,
    )
    if upload.features_of is None:
        return read
    features_of = upload.features_of
    return (batches.through(batch, features_of) for batch in read)


def _kept(references: Sequence[str | None], suppressed: Suppressed) -> npt.NDArray[np.bool_]:
    """Mark the rows of nobody who is suppressed."""
    out = suppressed.among({reference for reference in references if reference is not None})
    return np.array([reference not in out for reference in references], dtype=np.bool_)
