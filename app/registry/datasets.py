"""Datasets: an upload becomes encoded rows on disk and references in the database; the upload itself is not kept."""

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from sqlalchemy.orm import Session

from app.db import now
from app.db.tables import Dataset, new_id
from app.errors import DatasetUnknown, SubjectUnknown
from app.keys import Keys
from app.registry import ingest, repository
from app.registry.encoding import Schema
from app.registry.rows import RowStore


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoded:
    """An upload that is on disk, encoded, and not yet known to anybody."""

    dataset_id: str
    schema: Schema | None
    classes: list[str]
    num_features: int
    num_slots: int
    digest: str
    subject_refs: Sequence[str | None]


def encode(rows: RowStore, keys: Keys, *, path: Path, kind: ingest.Kind, schema: Schema | None) -> Encoded:
    """Read the upload at `path` row by row into the row store.

    Raises `SchemaInvalid`, `RowInvalid`, `DatasetUnusable` or `InputInvalid`; then nothing is left on disk.
    """
    dataset_id = new_id("ds")
    references: list[str | None] = []
    counts = np.zeros(0, dtype=np.int64)
    with rows.writing(dataset_id) as writer:
        for batch in ingest.read(path, kind=kind, schema=schema):
            writer.append(batch)
            references += [None if subject is None else keys.subject_ref(subject) for subject in batch.subjects]
            seen = np.bincount(batch.labels, minlength=len(counts))
            seen[: len(counts)] += counts
            counts = seen
        classes = list(schema.classes) if schema else [str(label) for label in range(len(counts))]
        ingest.check_learnable(np.pad(counts, (0, len(classes) - len(counts))).tolist(), classes)
    opened = rows.open(dataset_id)
    encoded = Encoded(
        dataset_id=dataset_id,
        schema=schema,
        classes=classes,
        num_features=opened.features.shape[1] - 1,
        num_slots=opened.num_slots,
        digest=rows.digest(dataset_id),
        subject_refs=references,
    )
    rows.release(dataset_id)
    return encoded


def register(session: Session, *, name: str, encoded: Encoded) -> Dataset:
    """Make an encoded upload a dataset: from here on its slots are fixed and their number is public."""
    dataset = Dataset(
        id=encoded.dataset_id,
        name=name,
        schema=encoded.schema.to_json() if encoded.schema else None,
        classes=encoded.classes,
        num_features=encoded.num_features,
        num_slots=encoded.num_slots,
        digest=encoded.digest,
        revision=0,
        created_at=now(session),
    )
    session.add(dataset)
    session.flush()  # the records refer to it
    repository.add_records(session, dataset_id=dataset.id, subject_refs=encoded.subject_refs)
    return dataset


def get(session: Session, dataset_id: str) -> Dataset:
    """Raises `DatasetUnknown`."""
    dataset = repository.dataset(session, dataset_id)
    if dataset is None:
        raise DatasetUnknown(f"There is no dataset {dataset_id!r}; GET /v1/datasets lists them.")
    return dataset


def count_records_of(session: Session, *, dataset_id: str, subject_ref: str) -> int:
    """Rows held about a person, at least 1. Raises `DatasetUnknown`, `SubjectUnknown`."""
    get(session, dataset_id)
    count = repository.count_records_of(session, dataset_id=dataset_id, subject_ref=subject_ref)
    if count == 0:
        raise SubjectUnknown("This dataset holds nothing about this subject.")
    return count


def sweep(session: Session, rows: RowStore, *, unclaimed_for: datetime.timedelta) -> None:
    """Wipe what a crash may have left: half-written uploads, and rows that no dataset has claimed for that long."""
    rows.sweep_temporary()
    for dataset_id in rows.dataset_ids(older_than=unclaimed_for) - repository.dataset_ids(session):
        rows.delete(dataset_id)
