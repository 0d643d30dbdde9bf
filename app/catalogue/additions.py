"""Rows added to a dataset: a batch waits beside the dataset until a worker writes it into slots that are null.

The number of slots never changes. A slot is free when nothing says whose its row is: the line in `records` goes when
the row is known to be null, and comes back with the batch, so that somebody who asks to be forgotten meanwhile is
found.
"""

from dataclasses import dataclass

import numpy as np
from sqlalchemy.orm import Session

from app.audit import service as audit
from app.catalogue import datasets, repository
from app.db import actor, now
from app.db.tables import Addition, Dataset, new_id
from app.rows import records, shuffle
from app.rows import repository as rows_repository
from app.rows.batches import Batch
from app.rows.references import References
from app.rows.row_store import RowStore
from app.rows.uploads import Suppressed, Upload, take_in
from lethe.contract.problems import AdditionUnknown, DatasetFull, FieldError, InputInvalid, PreconditionFailed
from lethe.contract.sets import AdditionStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class Staged:
    """A batch that is on disk, encoded, and not yet known to anybody."""

    addition_id: str
    root: str
    subject_refs: References
    num_suppressed: int  # rows that were left out


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """A worker's task with a batch: write it into `slots` (None: that has been done), then destroy it."""

    addition_id: str
    root: str
    slots: tuple[int, ...] | None


def stage(rows: RowStore, dataset: Dataset, upload: Upload, *, num_free: int, suppressed: Suppressed) -> Staged:
    """Read an upload, encoded as the dataset is, into the row store, in a random order, as a batch of its own.

    Raises `DatasetFull` for more than `num_free` rows, `SchemaInvalid`, `RowInvalid`, `DatasetUnusable`,
    `InputInvalid` or `SubjectSuppressed`; then nothing is left on disk.
    """
    addition_id = new_id("add")

    def check(batch: Batch, num_taken: int) -> None:
        if batch.features.shape[1] != dataset.num_features + 1:
            expected = f"expected {dataset.num_features} features, as in the dataset"
            raise InputInvalid("The rows are not of the dataset's shape.", [FieldError("x", expected)])
        _check_room(num_taken, num_free)

    with rows.writing(addition_id, dataset.num_features + 1) as writer:
        taken = take_in(writer, upload, suppressed=suppressed, check=check)
        _check_room(writer.num_slots, num_free)
    return Staged(
        addition_id=addition_id,
        root=writer.root,
        subject_refs=taken.subject_refs,
        num_suppressed=taken.num_suppressed,
    )


def require_open(session: Session, dataset: Dataset) -> None:
    """Raises `DatasetRetired`, and `PreconditionFailed` for a dataset with a model whose batches keep to a second
    moment: rows that came could exceed it, and the model could never be learned again."""
    datasets.require_kept(dataset)
    if found := repository.bounded_models(session, dataset_id=dataset.id):
        raise PreconditionFailed(
            f"Model {found[0].id} states a second_moment, which more rows could exceed: retire it first."
        )


def register(session: Session, *, dataset: Dataset, staged: Staged) -> Addition:
    """Promise free slots, chosen at random, to the rows of a batch, and the rows to the dataset.

    Raises `DatasetFull`, and what `require_open` raises.
    """
    require_open(session, dataset)
    num_records = len(staged.subject_refs)
    is_free = np.ones(dataset.num_slots, dtype=np.bool_)
    is_free[np.fromiter(rows_repository.taken_slots(session, dataset_id=dataset.id), dtype=np.int64)] = False
    free = np.flatnonzero(is_free)
    _check_room(num_records, len(free))
    slots = shuffle.generator().choice(free, num_records, replace=False, shuffle=False)
    addition = Addition(
        id=staged.addition_id,
        tenant_id=actor(session).tenant_id,
        dataset_id=dataset.id,
        num_records=num_records,
        digest=staged.root,
        status=AdditionStatus.PENDING,
        staged=True,
        created_at=now(session),
    )
    session.add(addition)
    records.add(
        session,
        dataset_id=dataset.id,
        subject_refs=staged.subject_refs,
        slots=np.sort(slots).tolist(),  # the rows of the batch are in a random order
        addition_id=addition.id,
    )
    audit.record(session, "dataset.records_added", dataset.id, addition_id=addition.id, num_records=num_records)
    return addition


def count_free_slots(session: Session, dataset: Dataset) -> int:
    """Slots whose rows are known to be null, and are promised to nobody."""
    return dataset.num_slots - rows_repository.count_taken_slots(session, dataset_id=dataset.id)


def get(session: Session, *, dataset_id: str, addition_id: str) -> Addition:
    """Raises `AdditionUnknown`."""
    addition = repository.addition(session, addition_id)
    if addition is None or addition.dataset_id != dataset_id:
        raise AdditionUnknown(f"There is no addition {addition_id!r} to this dataset.")
    return addition


def take(session: Session, *, dataset: Dataset) -> None:
    """Take all batches that wait for a run on `dataset`; its revision grows by one if there are any.

    From here on no chain that began at an earlier revision may go on: the rows may be there."""
    waiting = [one for one in repository.staged_additions(session, dataset_id=dataset.id) if one.revision is None]
    if waiting:
        dataset.revision += 1
    for addition in waiting:
        addition.revision = dataset.revision


def taken(session: Session, *, dataset_id: str) -> list[Taken]:
    """The batches that were taken and are still there. Raises `DatasetDamaged`."""
    return [
        Taken(
            addition_id=addition.id,
            root=addition.digest,
            slots=_slots(session, addition) if _is_applying(addition) else None,
        )
        for addition in repository.staged_additions(session, dataset_id=dataset_id)
        if addition.revision is not None
    ]


def _slots(session: Session, addition: Addition) -> tuple[int, ...]:
    found = rows_repository.records_of_addition(session, addition_id=addition.id)
    return records.verified_slots(session, addition.dataset_id, found)


def confirm(session: Session, *, dataset: Dataset) -> None:
    """Note that every batch that was taken is in its slots."""
    for addition in filter(_is_applying, repository.staged_additions(session, dataset_id=dataset.id)):
        addition.status, addition.applied_at = AdditionStatus.APPLIED, now(session)
        dataset.num_rows += addition.num_records


def confirm_destroyed(session: Session, *, dataset_id: str) -> None:
    """Note that of the batches that are in their slots nothing lies beside the dataset any more."""
    for addition in repository.staged_additions(session, dataset_id=dataset_id):
        if addition.status == AdditionStatus.APPLIED:
            addition.staged = False


def drop(session: Session, *, dataset_id: str) -> None:
    """Give up the batches that wait: their dataset takes none any more."""
    for addition in repository.staged_additions(session, dataset_id=dataset_id):
        addition.staged = False
        if addition.status == AdditionStatus.PENDING:
            addition.status = AdditionStatus.DROPPED


def _is_applying(addition: Addition) -> bool:
    return addition.revision is not None and addition.status == AdditionStatus.PENDING


def _check_room(num_records: int, num_free: int) -> None:
    if num_records > num_free:
        raise DatasetFull(
            f"{num_free} slots of the dataset are free, and their number is fixed: send {num_free} rows at most, or "
            "make another dataset."
        )
