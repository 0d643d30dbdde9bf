"""SQL queries about rehearsals."""

import datetime
from collections.abc import Iterator

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.db.bulk import Page, page
from app.db.functions import raw
from app.db.tables import Addition, Dataset, DeletionRequest, Model, Record, RequestAlias, Run
from app.deletion.status import OPEN
from app.features.rehearsals.tables import Rehearsal, RehearsedRows
from app.rows.repository import StoredRecord, stored_records
from lethe.contract.sets import AdditionStatus
from lethe.features.rehearsals.contract import RehearsalStatus

_AT_ONCE = 10_000
_OPEN = (RehearsalStatus.WAITING, RehearsalStatus.RUNNING)
_DONE = (RehearsalStatus.COMPLETED, RehearsalStatus.OUTDATED)


def rehearsals(session: Session, *, model_id: str, limit: int, cursor: str | None) -> Page[Rehearsal]:
    query = sa.select(Rehearsal).where(Rehearsal.model_id == model_id)
    return page(session, query, Rehearsal.asked_at, Rehearsal.id, limit=limit, cursor=cursor)


def open_rehearsal(session: Session, *, dataset_id: str) -> Rehearsal | None:
    """Return a rehearsal of the dataset's models that has not ended; None without one."""
    query = sa.select(Rehearsal).join(Model, Model.id == Rehearsal.model_id)
    return session.scalars(query.where(Model.dataset_id == dataset_id, Rehearsal.status.in_(_OPEN)).limit(1)).first()


def rehearsal_done(session: Session, *, model: Model, version_id: str) -> str | None:
    """Return the id of the completed rehearsal of a version, or of the present rows of its dataset, whatever has become
    of its report; None if neither was rehearsed."""
    query = sa.select(Rehearsal.id).join(Run, Run.id == Rehearsal.run_id)
    query = query.where(Rehearsal.model_id == model.id, Rehearsal.status.in_(_DONE))
    of_version = session.scalars(query.where(Run.parent_version_id == version_id).limit(1)).first()
    return of_version or session.scalars(_rows_rehearsed(model.dataset_id)).one_or_none()


def is_measured(session: Session, *, dataset_id: str) -> bool:
    """Return True if a rehearsal has measured the present rows of a dataset, or runs for one of its models."""
    running = sa.select(Rehearsal.id).join(Model, Model.id == Rehearsal.model_id)
    running = running.where(Model.dataset_id == dataset_id, Rehearsal.status == RehearsalStatus.RUNNING)
    return session.scalars(sa.union_all(_rows_rehearsed(dataset_id), running)).first() is not None


def mark_measured(session: Session, rehearsal: Rehearsal, *, dataset_id: str) -> None:
    """Record that a rehearsal has measured the present rows of a dataset."""
    revision = session.get_one(Dataset, dataset_id).revision
    mark = {"dataset_id": dataset_id, "tenant_id": rehearsal.tenant_id, "rehearsal_id": rehearsal.id}
    session.merge(RehearsedRows(**mark, revision=revision))


def _rows_rehearsed(dataset_id: str) -> sa.Select[str]:
    """Return a query of the id of the rehearsal that has measured the present rows of a dataset."""
    joined = sa.select(RehearsedRows.rehearsal_id).join(Dataset, Dataset.id == RehearsedRows.dataset_id)
    return joined.where(Dataset.id == dataset_id, Dataset.revision == RehearsedRows.revision)


def rehearsal_to_make(session: Session, *, dataset_id: str) -> Rehearsal | None:
    """Return the oldest waiting rehearsal of a dataset's models; None without one."""
    query = sa.select(Rehearsal).join(Model, Model.id == Rehearsal.model_id)
    query = query.where(Model.dataset_id == dataset_id, Rehearsal.status == RehearsalStatus.WAITING)
    return session.scalars(query.order_by(Rehearsal.asked_at, Rehearsal.id).limit(1)).first()


def with_waiting(models: sa.Select[str, str]) -> sa.Select[str, str, datetime.datetime]:
    """Restrict a query to models with a waiting rehearsal, and add the time at which it was requested."""
    joined = models.add_columns(Rehearsal.asked_at).join(Rehearsal, Rehearsal.model_id == Model.id)
    return joined.where(Rehearsal.status == RehearsalStatus.WAITING)


def rehearsal_of(session: Session, *, run_id: str) -> Rehearsal | None:
    """Return the rehearsal that a run carries out; None without one."""
    query = sa.select(Rehearsal).where(Rehearsal.run_id == run_id, Rehearsal.status == RehearsalStatus.RUNNING)
    return session.scalars(query).one_or_none()


def drop_rehearsals(session: Session, *, model_id: str) -> None:
    session.execute(sa.delete(Rehearsal).where(Rehearsal.model_id == model_id))


def forget_reports(session: Session, *, dataset_id: str) -> None:
    """Delete the reports of rehearsals that measured on a dataset, some of whose people have been erased since."""
    measured = sa.select(Model.id).where(
        sa.or_(Model.dataset_id == dataset_id, Model.evaluation_dataset_id == dataset_id)
    )
    completed = sa.and_(Rehearsal.model_id.in_(measured), Rehearsal.status == RehearsalStatus.COMPLETED)
    session.execute(sa.update(Rehearsal).where(completed).values(report=None, status=RehearsalStatus.OUTDATED))


def _has_no_request(dataset_id: str, tenant_id: str) -> sa.ColumnElement[bool]:
    """Return a condition on records of a dataset: the row is in its slot, and no request of its person is open."""
    is_open = sa.and_(DeletionRequest.tenant_id == tenant_id, DeletionRequest.status.in_(OPEN))
    aliases = sa.select(RequestAlias.subject_ref).join(DeletionRequest, DeletionRequest.id == RequestAlias.request_id)
    requested = sa.union_all(sa.select(DeletionRequest.subject_ref).where(is_open), aliases.where(is_open))
    applied = sa.and_(Addition.dataset_id == dataset_id, Addition.status == AdditionStatus.APPLIED)
    return sa.and_(
        Record.dataset_id == dataset_id,
        Record.erasure_id.is_(None),
        sa.or_(Record.addition_id.is_(None), Record.addition_id.in_(sa.select(Addition.id).where(applied))),
        sa.or_(Record.subject_ref.is_(None), Record.subject_ref.not_in(requested)),
    )


def count_without_requests(session: Session, *, dataset_id: str, tenant_id: str) -> tuple[int, int]:
    """Return the number of people of a dataset without an open request, and the number of rows without a person."""
    people = sa.func.count(Record.subject_ref.distinct())
    without_a_person = sa.func.count() - sa.func.count(Record.subject_ref)
    query = sa.select(people, without_a_person).where(_has_no_request(dataset_id, tenant_id))
    num_people, num_unlinked = session.execute(query).one()
    return num_people, num_unlinked


def records_of(session: Session, *, dataset_id: str, subject_refs: list[str]) -> list[StoredRecord]:
    """Return the records of people in a dataset."""
    mine = sa.and_(Record.dataset_id == dataset_id, Record.subject_ref.in_(subject_refs))
    return stored_records(session, mine)


def rows_without_requests(session: Session, *, dataset_id: str, tenant_id: str) -> Iterator[tuple[bytes | None, int]]:
    """Yield person and slot of each row of the people without an open request, and of each row without a person.

    Rows of a person are adjacent.
    """
    person = raw(Record.subject_ref)
    query = sa.select(person, Record.slot).where(_has_no_request(dataset_id, tenant_id)).order_by(person, Record.slot)
    for row in session.execute(query.execution_options(yield_per=_AT_ONCE)):
        yield row[0], row[1]
