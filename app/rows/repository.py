"""All SQL about where the rows of datasets are, and whose each of them is."""

import datetime
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.db import bulk, rows
from app.db.raw import raw
from app.db.tables import Addition, Dataset, Record, Run
from lethe.contract.sets import AdditionStatus, DamageKind, RunStatus

_AT_ONCE = 10_000


class StoredRecord(NamedTuple):
    """A record as the database has it, damaged or not."""

    slot: int
    subject_ref: bytes | None
    check_value: bytes | None


def add_records(
    session: Session,
    *,
    dataset_id: str,
    records: Iterable[tuple[int, str | None, bytes]],
    addition_id: str | None,
) -> None:
    """Store slots, whose they are, and check values; by `records.add`."""
    rows = ((dataset_id, *record, addition_id) for record in records)
    columns = ("dataset_id", "slot", "subject_ref", "check_value", "addition_id")
    bulk.insert(session, Record, columns=columns, rows=rows)


def stored_records(session: Session, *, dataset_id: str, after: int | None, limit: int) -> list[StoredRecord]:
    """The next `limit` records of a dataset by their slots: from the first on, or after that slot."""
    query = stored(Record.dataset_id == dataset_id).limit(limit)
    return list(map(StoredRecord._make, session.execute(query if after is None else query.where(Record.slot > after))))


def stored(*which: sa.ColumnElement[bool]) -> sa.Select[int, bytes, bytes | None]:
    """The values of `StoredRecord`, in the order of the slots."""
    return sa.select(Record.slot, raw(Record.subject_ref), Record.check_value).where(*which).order_by(Record.slot)


def set_check_values(session: Session, *, dataset_id: str, values: Mapping[int, bytes]) -> None:
    """Set the check values of the records in these slots."""
    table: Any = Record.__table__
    mine = sa.and_(table.c.dataset_id == dataset_id, table.c.slot == sa.bindparam("of_slot"))
    if values:
        statement = sa.update(table).where(mine).values(check_value=sa.bindparam("value"))
        given = [{"of_slot": slot, "value": value} for slot, value in values.items()]
        session.connection().execute(statement, given)


def datasets_without_checks(session: Session) -> list[str]:
    """Those some of whose records have no check value, as a release before left them."""
    return list(session.scalars(sa.select(Dataset.id).where(~Dataset.records_have_checks).order_by(Dataset.id)))


def datasets_to_verify(session: Session, *, before: datetime.datetime) -> Iterator[Dataset]:
    """Those whose records have not all been verified since, the first of them first."""
    is_due = sa.or_(Dataset.records_verified_at.is_(None), Dataset.records_verified_at <= before)
    query = sa.select(Dataset).where(Dataset.retired_at.is_(None), is_due)
    yield from session.scalars(query.order_by(sa.nulls_first(Dataset.records_verified_at), Dataset.id))


def taken_slots(session: Session, *, dataset_id: str) -> Iterator[int]:
    """Slots whose rows are not known to be null, or are promised to somebody."""
    query = sa.select(Record.slot).where(Record.dataset_id == dataset_id)
    yield from session.scalars(query.execution_options(yield_per=10_000))


def count_taken_slots(session: Session, *, dataset_id: str) -> int:
    return session.scalars(sa.select(sa.func.count()).where(Record.dataset_id == dataset_id)).one()


def records_of_addition(session: Session, *, addition_id: str) -> list[StoredRecord]:
    """The records of an addition, in their order."""
    return list(map(StoredRecord._make, session.execute(stored(Record.addition_id == addition_id))))


def row_roots(session: Session) -> dict[str, str]:
    """The ids under which rows are needed, and the roots that are on record: of batches that are to be added to a
    dataset, which are the first to go, then of datasets; of none that was retired."""
    waiting = sa.select(Addition.id, Addition.digest).where(Addition.staged, Addition.status == AdditionStatus.PENDING)
    kept = sa.select(Dataset.id, Dataset.digest).where(Dataset.retired_at.is_(None))
    found = (session.execute(waiting.order_by(Addition.id)), session.execute(kept.order_by(Dataset.id)))
    return {rows_id: root for rows in found for rows_id, root in rows}


def destroyed_dataset_ids(session: Session) -> set[str]:
    """Datasets that were retired, and of which nothing should be left."""
    return set(session.scalars(sa.select(Dataset.id).where(Dataset.destroyed_at.is_not(None))))


def root(session: Session, rows_id: str) -> str | None:
    """The root that is on record; None for rows that are not, or are needed no more."""
    if dataset := session.get(Dataset, rows_id, populate_existing=True):
        return None if dataset.retired_at else dataset.digest
    addition = session.get(Addition, rows_id, populate_existing=True)
    return addition.digest if addition and addition.status == AdditionStatus.PENDING else None


def sound_datasets(session: Session) -> dict[str, int]:
    """Datasets whose rows are not known to be damaged, and how many slots each has; none that was retired."""
    sound = Dataset.retired_at.is_(None), Dataset.damaged_at.is_(None)
    return dict(iter(session.execute(sa.select(Dataset.id, Dataset.num_slots).where(*sound).order_by(Dataset.id))))


def set_root(session: Session, rows_id: str, root: str) -> None:
    """Record the root of rows that were written anew, and are what they were: they are not damaged any more."""
    dataset = dataset_of_rows(session, rows_id)
    assert dataset is not None
    if dataset.damage and dataset.damage["rows"] == rows_id and dataset.damage["kind"] != DamageKind.RECORD:
        dataset.damaged_at, dataset.damage = None, None
    if dataset.id == rows_id:
        dataset.digest = root
    else:
        session.get_one(Addition, rows_id).digest = root


def dataset_of_rows(session: Session, rows_id: str) -> Dataset | None:
    """The dataset whose these rows are, or are going to be."""
    addition = session.get(Addition, rows_id)
    return session.get(Dataset, addition.dataset_id if addition else rows_id)


_DOUBTFUL = sa.select(Dataset.id, Dataset.tenant_id, Dataset.damage).where(
    Dataset.damaged_at.is_not(None), Dataset.retired_at.is_(None)
)


def doubtful(session: Session) -> dict[str, str]:
    """Datasets whose records are damaged, so that nobody can tell whose rows they hold; and whose they are."""
    return {
        dataset_id: tenant_id
        for dataset_id, tenant_id, found in rows(session, _DOUBTFUL, {})
        if found and found["kind"] == DamageKind.RECORD
    }


def count_damaged(session: Session) -> int:
    damaged = Dataset.damaged_at.is_not(None), Dataset.retired_at.is_(None)
    return session.scalars(sa.select(sa.func.count()).where(*damaged)).one()


def drop_records(session: Session, *, dataset_id: str) -> None:
    """Forget whose rows a dataset held."""
    session.execute(sa.delete(Record).where(Record.dataset_id == dataset_id))


def count_subjects(session: Session, *, dataset_id: str) -> int:
    query = sa.select(sa.func.count(sa.distinct(Record.subject_ref))).where(Record.dataset_id == dataset_id)
    return session.scalars(query).one()


def count_shared_subjects(session: Session, one: str, other: str) -> int:
    """Number of people with rows in both datasets."""
    theirs = sa.select(Record.subject_ref).where(Record.dataset_id == other, Record.subject_ref.is_not(None))
    mine = sa.select(sa.func.count(sa.distinct(Record.subject_ref))).where(Record.dataset_id == one)
    return session.scalars(mine.where(Record.subject_ref.in_(theirs))).one()


def count_subjects_among(session: Session, subject_refs: Collection[str], *, dataset_id: str) -> int:
    """Number of these people with rows in a dataset."""
    refs, count = list(subject_refs), 0
    for first in range(0, len(refs), _AT_ONCE):
        these = Record.subject_ref.in_(refs[first : first + _AT_ONCE])
        query = sa.select(sa.func.count(sa.distinct(Record.subject_ref))).where(these, Record.dataset_id == dataset_id)
        count += session.scalars(query).one()
    return count


def count_records(session: Session, *, dataset_id: str) -> int:
    """Rows that are not null: not yet claimed for erasure."""
    query = sa.select(sa.func.count()).where(Record.dataset_id == dataset_id, Record.erasure_id.is_(None))
    return session.scalars(query).one()


def count_rows(session: Session, *, dataset_id: str) -> int:
    """The rows that are not null, while nobody writes any; those that were added count once they are in their slots."""
    came = sa.or_(Record.addition_id.is_(None), Addition.status == AdditionStatus.APPLIED)
    query = sa.select(sa.func.count()).select_from(Record).outerjoin(Addition, Addition.id == Record.addition_id)
    return session.scalars(query.where(Record.dataset_id == dataset_id, came)).one()


def count_records_of(session: Session, *, dataset_id: str, subject_ref: str) -> int:
    query = sa.select(sa.func.count()).where(
        Record.dataset_id == dataset_id, Record.subject_ref == subject_ref, Record.erasure_id.is_(None)
    )
    return session.scalars(query).one()


def count_unclaimed(session: Session, *, subject_refs: Collection[str]) -> dict[str, int]:
    """Rows of a person that no request has claimed, by the id of their dataset."""
    query = (
        sa.select(Record.dataset_id, sa.func.count())
        .where(Record.subject_ref.in_(subject_refs), Record.erasure_id.is_(None))
        .group_by(Record.dataset_id)
    )
    return {row[0]: row[1] for row in session.execute(query)}


def is_any_run_on(session: Session, *, dataset_id: str) -> bool:
    """Return True if a run may be writing rows of the dataset."""
    running = sa.exists().where(Run.dataset_id == dataset_id, Run.status == RunStatus.RUNNING)
    return bool(session.scalar(sa.select(running)))
