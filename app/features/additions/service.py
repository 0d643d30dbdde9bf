"""Additions: a file is encoded and stored next to its dataset, and the batch is registered for null slots."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.audit import service as audit
from app.catalogue import datasets
from app.db import actor, bulk, now, tables
from app.rows import formats, records, row_store, uploads
from lethe.contract import problems, sets
from lethe.features.additions.contract import AdditionUnknown, DatasetFull


def additions(session: Session, *, dataset_id: str, limit: int, cursor: str | None) -> bulk.Page[tables.Addition]:
    query = sa.select(tables.Addition).where(tables.Addition.dataset_id == dataset_id)
    return bulk.page(session, query, tables.Addition.created_at, tables.Addition.id, limit=limit, cursor=cursor)


def bounded_models(session: Session, *, dataset_id: str) -> list[tables.Model]:
    """Return the unretired models of a dataset whose mechanisms bound the second moment of their batches."""
    query = sa.select(tables.Model).where(tables.Model.dataset_id == dataset_id, tables.Model.retired_at.is_(None))
    return [model for model in session.scalars(query) if model.mechanism.get("second_moment") is not None]


def taken_slots(session: Session, *, dataset_id: str) -> Iterator[int]:
    """Yield a dataset's taken slots: those with rows not confirmed to be null, and those reserved for new rows."""
    query = sa.select(tables.Record.slot).where(tables.Record.dataset_id == dataset_id)
    yield from session.scalars(query.execution_options(yield_per=10_000))


def count_taken_slots(session: Session, *, dataset_id: str) -> int:
    return session.scalars(sa.select(sa.func.count()).where(tables.Record.dataset_id == dataset_id)).one()


@dataclass(frozen=True, slots=True, kw_only=True)
class Staged:
    """Encoded batch on disk, not yet registered; `num_suppressed` rows about suppressed people were left out."""

    addition_id: str
    root: str
    subject_refs: uploads.References
    num_suppressed: int


def stage(
    rows: row_store.RowStore,
    dataset: tables.Dataset,
    upload: uploads.RowUpload,
    *,
    num_free: int,
    suppressed: uploads.Suppressed,
) -> Staged:
    """Encode an upload in the same way as its dataset, and write it to the row store as a batch in random order.

    Raises `DatasetFull` for more than `num_free` rows, `SchemaInvalid`, `RowInvalid`, `DatasetUnusable`, `InputInvalid`
    or `SubjectSuppressed`, leaving nothing on disk.
    """
    addition_id = tables.new_id("add")

    def check(batch: formats.Batch, num_taken: int) -> None:
        if batch.features.shape[1] != dataset.num_features + 1:
            expected = f"expected {dataset.num_features} features, as in the dataset"
            raise problems.InputInvalid.other_shape([problems.FieldError("x", expected)])
        _check_room(num_taken, num_free)

    with rows.writing(addition_id, dataset.num_features + 1) as writer:
        result = uploads.take_in(writer, upload, suppressed=suppressed, check=check)
        _check_room(writer.num_slots, num_free)
    return Staged(
        addition_id=addition_id,
        root=writer.root,
        subject_refs=result.subject_refs,
        num_suppressed=result.num_suppressed,
    )


def require_open(session: Session, dataset: tables.Dataset) -> None:
    """Raise `DatasetRetired` for a retired dataset, and `PreconditionFailed` if one of its models bounds its batches'
    second moment: new rows could exceed that bound, and the model could then never be retrained."""
    datasets.require_kept(dataset)
    if bounded := bounded_models(session, dataset_id=dataset.id):
        raise problems.PreconditionFailed.bounded(model_id=bounded[0].id)


def register(session: Session, *, dataset: tables.Dataset, staged: Staged) -> tables.Addition:
    """Reserve random free slots for a batch's rows, and record the batch as an addition to the dataset. Raises
    `DatasetFull`, and the same errors as `require_open`."""
    require_open(session, dataset)
    num_records = len(staged.subject_refs)
    is_free = np.ones(dataset.num_slots, dtype=np.bool_)
    is_free[np.fromiter(taken_slots(session, dataset_id=dataset.id), dtype=np.int64)] = False
    free = np.flatnonzero(is_free)
    _check_room(num_records, len(free))
    slots = uploads.generator().choice(free, num_records, replace=False, shuffle=False)
    addition = tables.Addition(
        id=staged.addition_id,
        tenant_id=actor(session).tenant_id,
        dataset_id=dataset.id,
        num_records=num_records,
        digest=staged.root,
        status=sets.AdditionStatus.PENDING,
        staged=True,
        created_at=now(session),
    )
    session.add(addition)
    records.add(
        session,
        dataset_id=dataset.id,
        subject_refs=staged.subject_refs,
        # Sorting discloses nothing because the rows of the batch are in random order.
        slots=np.sort(slots).tolist(),
        addition_id=addition.id,
    )
    audit.record(session, "dataset.records_added", dataset.id, addition_id=addition.id, num_records=num_records)
    return addition


def count_free_slots(session: Session, dataset: tables.Dataset) -> int:
    """Return the number of slots that are known to be null and not reserved."""
    return dataset.num_slots - count_taken_slots(session, dataset_id=dataset.id)


def get(session: Session, *, dataset_id: str, addition_id: str) -> tables.Addition:
    """Return an addition to a dataset. Raises `AdditionUnknown`."""
    addition = session.get(tables.Addition, addition_id)
    if addition is None or addition.dataset_id != dataset_id:
        raise AdditionUnknown(addition_id=addition_id)
    return addition


def _check_room(num_records: int, num_free: int) -> None:
    if num_records > num_free:
        raise DatasetFull(num_free=num_free)
