"""Additions: a batch of rows waits beside its dataset until a worker writes it into null slots.

The number of slots is fixed. A slot is free if no row of `records` names it: that row is deleted once the slot is known
to be null, and added again at the registration of a batch, so that a deletion request meanwhile finds the person.
"""

from dataclasses import dataclass

import numpy as np
from sqlalchemy.orm import Session

from app import telemetry
from app.audit import service as audit
from app.catalogue import datasets, repository
from app.db import actor, now
from app.db.tables import Addition, Dataset, Record, new_id
from app.rows import records, uploads
from app.rows import repository as rows_repository
from app.rows.formats import Batch
from app.rows.row_store import RowStore
from app.rows.uploads import References, RowUpload, Suppressed, take_in
from lethe.contract import problems
from lethe.contract.sets import AdditionStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class Staged:
    """Encoded batch on disk that is not registered yet; `num_suppressed` rows of the upload were left out."""

    addition_id: str
    root: str
    subject_refs: References
    num_suppressed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AdditionTask:
    """Task of a worker: write the batch into `slots`, or skip this if None because it is done, then destroy the
    batch."""

    addition_id: str
    root: str
    slots: tuple[int, ...] | None


def stage(rows: RowStore, dataset: Dataset, upload: RowUpload, *, num_free: int, suppressed: Suppressed) -> Staged:
    """Encode an upload as its dataset is encoded, and write it to the row store as a batch in random order.

    Raises `DatasetFull` for more than `num_free` rows, `SchemaInvalid`, `RowInvalid`, `DatasetUnusable`, `InputInvalid`
    or `SubjectSuppressed`, and then leaves nothing on disk.
    """
    addition_id = new_id("add")

    def check(batch: Batch, num_taken: int) -> None:
        if batch.features.shape[1] != dataset.num_features + 1:
            expected = f"expected {dataset.num_features} features, as in the dataset"
            raise problems.InputInvalid(
                "The rows are not of the dataset's shape.", [problems.FieldError("x", expected)]
            )
        _check_room(num_taken, num_free)

    with rows.writing(addition_id, dataset.num_features + 1) as writer:
        result = take_in(writer, upload, suppressed=suppressed, check=check)
        _check_room(writer.num_slots, num_free)
    return Staged(
        addition_id=addition_id,
        root=writer.root,
        subject_refs=result.subject_refs,
        num_suppressed=result.num_suppressed,
    )


def require_open(session: Session, dataset: Dataset) -> None:
    """Check that rows may be added to a dataset. Raises `DatasetRetired`, and `PreconditionFailed` if a model's batches
    bound a second moment, which new rows could exceed; the model could then never be learned again."""
    datasets.require_kept(dataset)
    if bounded := repository.bounded_models(session, dataset_id=dataset.id):
        raise problems.PreconditionFailed(
            f"Model {bounded[0].id} states a second_moment, which more rows could exceed: retire it first."
        )


def register(session: Session, *, dataset: Dataset, staged: Staged) -> Addition:
    """Reserve random free slots for the rows of a batch, and record the batch as an addition to the dataset. Raises
    `DatasetFull`, and the errors of `require_open`."""
    require_open(session, dataset)
    num_records = len(staged.subject_refs)
    is_free = np.ones(dataset.num_slots, dtype=np.bool_)
    is_free[np.fromiter(rows_repository.taken_slots(session, dataset_id=dataset.id), dtype=np.int64)] = False
    free = np.flatnonzero(is_free)
    _check_room(num_records, len(free))
    slots = uploads.generator().choice(free, num_records, replace=False, shuffle=False)
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
        # Sorting discloses nothing because the rows of the batch are in random order.
        slots=np.sort(slots).tolist(),
        addition_id=addition.id,
    )
    audit.record(session, "dataset.records_added", dataset.id, addition_id=addition.id, num_records=num_records)
    return addition


def count_free_slots(session: Session, dataset: Dataset) -> int:
    """Return the number of slots that are known to be null and not reserved."""
    return dataset.num_slots - rows_repository.count_taken_slots(session, dataset_id=dataset.id)


def get(session: Session, *, dataset_id: str, addition_id: str) -> Addition:
    """Return an addition to a dataset. Raises `AdditionUnknown`."""
    addition = session.get(Addition, addition_id)
    if addition is None or addition.dataset_id != dataset_id:
        raise problems.AdditionUnknown(f"There is no addition {addition_id!r} to this dataset.")
    return addition


def take(session: Session, *, dataset: Dataset) -> None:
    """Assign all waiting batches to the next revision of `dataset`; without any, keep the revision. A chain of an
    earlier revision cannot continue afterwards, because the rows may have been written."""
    staged = repository.staged_additions(session, dataset_id=dataset.id)
    waiting = [addition for addition in staged if addition.revision is None]
    if waiting:
        dataset.revision += 1
    for addition in waiting:
        addition.revision = dataset.revision


def taken(session: Session, *, dataset_id: str) -> list[AdditionTask]:
    """Return the tasks for the batches that were assigned a revision and still lie beside the dataset. Raises
    `DatasetDamaged`."""
    return [
        AdditionTask(
            addition_id=addition.id,
            root=addition.digest,
            slots=_slots(session, addition) if _is_applying(addition) else None,
        )
        for addition in repository.staged_additions(session, dataset_id=dataset_id)
        if addition.revision is not None
    ]


def _slots(session: Session, addition: Addition) -> tuple[int, ...]:
    rows = rows_repository.stored_records(session, Record.addition_id == addition.id)
    return records.verified_slots(session, addition.dataset_id, rows)


def confirm(session: Session, *, dataset: Dataset) -> None:
    """Record that the rows of every batch with a revision are in their slots."""
    for addition in filter(_is_applying, repository.staged_additions(session, dataset_id=dataset.id)):
        addition.status, addition.applied_at = AdditionStatus.APPLIED, now(session)
        dataset.num_rows += addition.num_records


def confirm_destroyed(session: Session, *, dataset_id: str) -> None:
    """Record that the staged batches of all applied and dropped additions are destroyed."""
    for addition in repository.staged_additions(session, dataset_id=dataset_id):
        if addition.status != AdditionStatus.PENDING:
            addition.staged = False


def drop(session: Session, *, dataset_id: str) -> None:
    """Drop the waiting batches of a retired dataset."""
    for addition in repository.staged_additions(session, dataset_id=dataset_id):
        addition.staged = False
        if addition.status == AdditionStatus.PENDING:
            addition.status = AdditionStatus.DROPPED


def drop_damaged(session: Session, error: problems.DatasetDamaged) -> bool:
    """Drop the addition whose batch is damaged, with its records, and return True; False if anything else is damaged.
    Until an addition is applied, its rows are in no slot of the rows on record. The next run destroys the batch, and a
    model whose chain began before its revision learns again. Only the run that was to write it may drop it."""
    if not records.is_in_batch(session, error):
        return False
    addition = session.get_one(Addition, error.rows_id)
    addition.status = AdditionStatus.DROPPED
    rows_repository.drop_records_of_addition(session, addition_id=addition.id)
    detail = {"addition_id": addition.id, "num_records": addition.num_records, "kind": error.kind.value}
    tenant_id, action, object_id = addition.tenant_id, "dataset.addition_dropped", addition.dataset_id
    deed = audit.Deed(tenant_id=tenant_id, actor=audit.SERVICE, action=action, object_id=object_id, detail=detail)
    audit.record_all(session, [deed])
    telemetry.logger().error("registry.addition_dropped", dataset_id=addition.dataset_id, **detail)
    return True


def _is_applying(addition: Addition) -> bool:
    return addition.revision is not None and addition.status == AdditionStatus.PENDING


def _check_room(num_records: int, num_free: int) -> None:
    if num_records > num_free:
        raise problems.DatasetFull(
            f"{num_free} slots of the dataset are free, and their number is fixed: send {num_free} rows at most, or "
            "make another dataset."
        )
