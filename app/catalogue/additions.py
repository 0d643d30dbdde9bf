"""Additions: a batch of new rows is stored next to its dataset until a worker writes it into null slots.

The number of slots is fixed. A slot is free if no row of `records` names it. A row is deleted once its slot is known to
be null, and added as soon as a batch is registered for it, so that deletion requests find the new people.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from sqlalchemy.orm import Session

from app import db, telemetry
from app.audit import service as audit
from app.catalogue import repository
from app.db.tables import Addition, Dataset, Record
from app.rows import records, repository as rows_repository
from lethe.contract import problems, sets


@dataclass(frozen=True, slots=True, kw_only=True)
class AdditionTask:
    """Worker task: write the batch into `slots` (None if it is already written), then destroy the batch."""

    addition_id: str
    root: str
    slots: tuple[int, ...] | None


def take(session: Session, *, dataset: Dataset) -> list[Addition]:
    """Assign all waiting batches to the next revision of `dataset`; without batches, keep the revision. Chains that
    began earlier cannot continue afterwards, because the rows may have been written. Return all stored batches."""
    staged = repository.staged_additions(session, dataset_id=dataset.id)
    waiting = [addition for addition in staged if addition.revision is None]
    if waiting:
        dataset.revision += 1
    for addition in waiting:
        addition.revision = dataset.revision
    return staged


def tasks(session: Session, staged: Iterable[Addition]) -> Iterator[AdditionTask]:
    """Yield a task for each stored batch that has been assigned a revision. Raises `DatasetDamaged`."""
    return (
        AdditionTask(
            addition_id=addition.id,
            root=addition.digest,
            slots=_slots(session, addition) if _is_applying(addition) else None,
        )
        for addition in staged
        if addition.revision is not None
    )


def _slots(session: Session, addition: Addition) -> tuple[int, ...]:
    rows = rows_repository.stored_records(session, Record.addition_id == addition.id)
    return records.verified_slots(session, addition.dataset_id, rows)


def confirm(session: Session, *, dataset: Dataset) -> None:
    """Record that the rows of every batch that has been assigned a revision are in their slots."""
    for addition in filter(_is_applying, repository.staged_additions(session, dataset_id=dataset.id)):
        addition.status, addition.applied_at = sets.AdditionStatus.APPLIED, db.now(session)
        dataset.num_rows += addition.num_records


def confirm_destroyed(session: Session, *, dataset_id: str) -> None:
    """Record that the staged batches of all applied and dropped additions have been destroyed."""
    for addition in repository.staged_additions(session, dataset_id=dataset_id):
        if addition.status != sets.AdditionStatus.PENDING:
            addition.staged = False


def drop(session: Session, *, dataset_id: str) -> None:
    """Drop the waiting batches of a retired dataset."""
    for addition in repository.staged_additions(session, dataset_id=dataset_id):
        addition.staged = False
        if addition.status == sets.AdditionStatus.PENDING:
            addition.status = sets.AdditionStatus.DROPPED


def drop_damaged(session: Session, error: problems.DatasetDamaged) -> bool:
    """Drop the addition whose batch is damaged, with its records, and return True; False if the damage is elsewhere.
    Until an addition is applied, the rows on record do not include it. The next run destroys the batch, and a model
    whose chain began before this addition's revision is retrained. Only the run that applies the batch may drop it."""
    if not records.is_in_batch(session, error):
        return False
    addition = session.get_one(Addition, error.rows_id)
    addition.status = sets.AdditionStatus.DROPPED
    rows_repository.drop_records_of_addition(session, addition_id=addition.id)
    detail = {"addition_id": addition.id, "num_records": addition.num_records, "kind": error.kind.value}
    tenant_id, action, object_id = addition.tenant_id, "dataset.addition_dropped", addition.dataset_id
    deed = audit.Deed(tenant_id=tenant_id, actor=audit.SERVICE, action=action, object_id=object_id, detail=detail)
    audit.record_all(session, [deed])
    telemetry.logger().error("registry.addition_dropped", dataset_id=addition.dataset_id, **detail)
    return True


def _is_applying(addition: Addition) -> bool:
    return addition.revision is not None and addition.status == sets.AdditionStatus.PENDING
