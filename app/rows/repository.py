"""SQL queries about the roots of stored rows, and about the records that identify each row's person."""

import datetime
from collections.abc import Iterator
from typing import NamedTuple

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.db import functions, rare, rows
from app.db.tables import Addition, Dataset, Record, Run
from lethe.contract.sets import AdditionStatus, DamageKind, RunStatus


class StoredRecord(NamedTuple):
    """Record as stored in the database, possibly damaged."""

    slot: int
    subject_ref: bytes | None
    check_value: bytes | None


def stored_records(session: Session, *which: sa.ColumnElement[bool], limit: int | None = None) -> list[StoredRecord]:
    """Return the records that meet all conditions in `which`, in slot order, up to `limit` of them."""
    query = (
        sa.select(Record.slot, functions.raw(Record.subject_ref), Record.check_value)
        .where(*which)
        .order_by(Record.slot)
    )
    return list(map(StoredRecord._make, session.execute(query.limit(limit))))


def next_records(session: Session, *, dataset_id: str, after: int | None, limit: int) -> list[StoredRecord]:
    """Return the next `limit` records of a dataset in slot order, beginning after slot `after` or at the first slot."""
    which = [Record.dataset_id == dataset_id] + ([] if after is None else [Record.slot > after])
    return stored_records(session, *which, limit=limit)


def datasets_to_verify(session: Session, *, before: datetime.datetime) -> Iterator[Dataset]:
    """Yield the datasets whose records were not fully verified after `before`, the longest unverified first."""
    is_due = sa.or_(Dataset.records_verified_at.is_(None), Dataset.records_verified_at <= before)
    query = sa.select(Dataset).where(Dataset.retired_at.is_(None), is_due)
    yield from session.scalars(query.order_by(sa.nulls_first(Dataset.records_verified_at), Dataset.id))


def row_roots(session: Session) -> dict[str, str]:
    """Return the recorded roots of all rows still needed, keyed by rows id. Pending batches, whose rows disappear
    soonest, come first; datasets that are not retired follow."""
    batches = sa.select(Addition.id, Addition.digest).where(Addition.staged, Addition.status == AdditionStatus.PENDING)
    datasets = sa.select(Dataset.id, Dataset.digest).where(Dataset.retired_at.is_(None))
    results = (session.execute(batches.order_by(Addition.id)), session.execute(datasets.order_by(Dataset.id)))
    return {rows_id: root for rows in results for rows_id, root in rows}


def destroyed_dataset_ids(session: Session) -> set[str]:
    """Return the ids of retired datasets whose destruction is confirmed."""
    return set(session.scalars(sa.select(Dataset.id).where(Dataset.destroyed_at.is_not(None))))


def root(session: Session, rows_id: str) -> str | None:
    """Return the recorded root of a dataset or a pending batch; None if it is unknown or no longer needed."""
    if dataset := session.get(Dataset, rows_id, populate_existing=True):
        return None if dataset.retired_at else dataset.digest
    addition = session.get(Addition, rows_id, populate_existing=True)
    return addition.digest if addition and addition.status == AdditionStatus.PENDING else None


def sound_datasets(session: Session) -> dict[str, int]:
    """Return the number of slots of each dataset that is neither retired nor known to be damaged."""
    sound = Dataset.retired_at.is_(None), Dataset.damaged_at.is_(None)
    return dict(iter(session.execute(sa.select(Dataset.id, Dataset.num_slots).where(*sound).order_by(Dataset.id))))


def dataset_of_rows(session: Session, rows_id: str) -> Dataset | None:
    """Return the dataset that the rows belong to or, for a batch, the dataset to which it will be added."""
    addition = session.get(Addition, rows_id)
    return session.get(Dataset, addition.dataset_id if addition else rows_id)


_IS_DAMAGED = (Dataset.damaged_at.is_not(None), Dataset.retired_at.is_(None))
_ANY_DAMAGED = rare.Rare(*_IS_DAMAGED)
_DOUBTFUL = sa.select(Dataset.id, Dataset.tenant_id, Dataset.damage).where(*_IS_DAMAGED)


def doubtful(session: Session) -> dict[str, str]:
    """Map each dataset with damaged records to its tenant. Such a dataset may hold a person's rows undetected."""
    return {
        dataset_id: tenant_id
        for dataset_id, tenant_id, damage in (rows(session, _DOUBTFUL, {}) if _ANY_DAMAGED.may_hold(session) else ())
        if damage and damage["kind"] == DamageKind.RECORD
    }


def drop_records(session: Session, *, dataset_id: str) -> None:
    """Delete a dataset's records."""
    session.execute(sa.delete(Record).where(Record.dataset_id == dataset_id))


def drop_records_of_addition(session: Session, *, addition_id: str) -> None:
    """Delete the records of an addition's rows, including records that are claimed for erasure."""
    session.execute(sa.delete(Record).where(Record.addition_id == addition_id))


def count_subjects(session: Session, *, dataset_id: str) -> int:
    query = sa.select(sa.func.count(sa.distinct(Record.subject_ref))).where(Record.dataset_id == dataset_id)
    return session.scalars(query).one()


def count_shared_subjects(session: Session, dataset_id: str, other_dataset_id: str) -> int:
    """Return the number of people with rows in both datasets."""
    theirs = sa.select(Record.subject_ref).where(Record.dataset_id == other_dataset_id, Record.subject_ref.is_not(None))
    mine = sa.select(sa.func.count(sa.distinct(Record.subject_ref))).where(Record.dataset_id == dataset_id)
    return session.scalars(mine.where(Record.subject_ref.in_(theirs))).one()


def count_records(session: Session, *, dataset_id: str) -> int:
    """Return the number of a dataset's rows, including those in pending batches, that are not claimed for erasure."""
    query = sa.select(sa.func.count()).where(Record.dataset_id == dataset_id, Record.erasure_id.is_(None))
    return session.scalars(query).one()


def count_rows(session: Session, *, dataset_id: str) -> int:
    """Return the number of non-null rows, while no run is writing. A batch counts once its rows are in their slots."""
    is_applied = sa.or_(Record.addition_id.is_(None), Addition.status == AdditionStatus.APPLIED)
    query = sa.select(sa.func.count()).select_from(Record).outerjoin(Addition, Addition.id == Record.addition_id)
    return session.scalars(query.where(Record.dataset_id == dataset_id, is_applied)).one()


def count_records_of(session: Session, *, dataset_id: str, subject_ref: str) -> int:
    query = sa.select(sa.func.count()).where(
        Record.dataset_id == dataset_id, Record.subject_ref == subject_ref, Record.erasure_id.is_(None)
    )
    return session.scalars(query).one()


def is_any_run_on(session: Session, *, dataset_id: str) -> bool:
    """Return True if a run may be writing rows of the dataset."""
    running = sa.exists().where(Run.dataset_id == dataset_id, Run.status == RunStatus.RUNNING)
    return bool(session.scalar(sa.select(running)))
