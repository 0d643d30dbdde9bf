"""All SQL about tests that were asked for: audits on canaries, and rehearsals."""

from collections.abc import Iterator

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.db.paging import Page, page
from app.db.raw import raw
from app.db.tables import Addition, DeletionRequest, Model, Record, Rehearsal, RequestAlias, Run
from app.deletion.status import OPEN
from app.rows.repository import StoredRecord, stored
from lethe.contract.sets import AdditionStatus, RehearsalStatus, RunKind, RunStatus

_AT_ONCE = 10_000
_OPEN = (RehearsalStatus.WAITING, RehearsalStatus.RUNNING)
_DONE = (RehearsalStatus.COMPLETED, RehearsalStatus.OUTDATED)


def model_to_audit(session: Session, *, dataset_id: str) -> Model | None:
    """The model of a dataset whose audit was asked for first; also one whose runs fail, and wait to be tried again."""
    query = sa.select(Model).where(Model.dataset_id == dataset_id, Model.audit_asked_at.is_not(None))
    return session.scalars(query.order_by(Model.audit_asked_at, Model.id).limit(1)).first()


def count_audits_lost(session: Session, model: Model) -> int:
    """Number of times that the audit of a model has failed, or died with its worker, since it was asked for."""
    lost = sa.and_(
        Run.model_id == model.id, Run.kind == RunKind.AUDIT, Run.status.in_((RunStatus.FAILED, RunStatus.ABANDONED))
    )
    query = sa.select(sa.func.count()).select_from(Run).where(lost, Run.started_at >= model.audit_asked_at)
    return session.scalars(query).one()


def rehearsal(session: Session, rehearsal_id: str) -> Rehearsal | None:
    return session.get(Rehearsal, rehearsal_id)


def rehearsals(session: Session, *, model_id: str, limit: int, cursor: str | None) -> Page[Rehearsal]:
    query = sa.select(Rehearsal).where(Rehearsal.model_id == model_id)
    return page(session, query, Rehearsal.asked_at, Rehearsal.id, limit=limit, cursor=cursor)


def open_rehearsal(session: Session, *, model_id: str) -> Rehearsal | None:
    """The rehearsal of a model that has not ended."""
    query = sa.select(Rehearsal).where(Rehearsal.model_id == model_id, Rehearsal.status.in_(_OPEN))
    return session.scalars(query.limit(1)).first()


def rehearsal_done(session: Session, *, model_id: str, version_id: str) -> Rehearsal | None:
    """The rehearsal of a version of a model that has been made to its end, whether its report is still there or not."""
    query = sa.select(Rehearsal).join(Run, Run.id == Rehearsal.run_id)
    query = query.where(Rehearsal.model_id == model_id, Rehearsal.status.in_(_DONE))
    return session.scalars(query.where(Run.parent_version_id == version_id).limit(1)).first()


def rehearsal_to_make(session: Session, *, dataset_id: str) -> Rehearsal | None:
    """The rehearsal of a dataset's models that was asked for first."""
    query = sa.select(Rehearsal).join(Model, Model.id == Rehearsal.model_id)
    query = query.where(Model.dataset_id == dataset_id, Rehearsal.status == RehearsalStatus.WAITING)
    return session.scalars(query.order_by(Rehearsal.asked_at, Rehearsal.id).limit(1)).first()


def rehearsal_of(session: Session, *, run_id: str) -> Rehearsal | None:
    """The rehearsal that a run makes."""
    query = sa.select(Rehearsal).where(Rehearsal.run_id == run_id, Rehearsal.status == RehearsalStatus.RUNNING)
    return session.scalars(query).one_or_none()


def drop_rehearsals(session: Session, *, model_id: str) -> None:
    session.execute(sa.delete(Rehearsal).where(Rehearsal.model_id == model_id))


def forget_reports(session: Session, *, dataset_id: str) -> None:
    """Drop what was measured on people of a dataset, some of whom have been erased since."""
    measured = sa.select(Model.id).where(
        sa.or_(Model.dataset_id == dataset_id, Model.evaluation_dataset_id == dataset_id)
    )
    completed = sa.and_(Rehearsal.model_id.in_(measured), Rehearsal.status == RehearsalStatus.COMPLETED)
    session.execute(sa.update(Rehearsal).where(completed).values(report=None, status=RehearsalStatus.OUTDATED))


def _did_not_ask(dataset_id: str, tenant_id: str) -> sa.ColumnElement[bool]:
    """A condition on records of a dataset: no request is open of the people whose they are, if they are anybody's, and
    their rows are in their slots."""
    opened = sa.and_(DeletionRequest.tenant_id == tenant_id, DeletionRequest.status.in_(OPEN))
    aliases = sa.select(RequestAlias.subject_ref).join(DeletionRequest, DeletionRequest.id == RequestAlias.request_id)
    asked = sa.union_all(sa.select(DeletionRequest.subject_ref).where(opened), aliases.where(opened))
    applied = sa.and_(Addition.dataset_id == dataset_id, Addition.status == AdditionStatus.APPLIED)
    return sa.and_(
        Record.dataset_id == dataset_id,
        Record.erasure_id.is_(None),
        sa.or_(Record.addition_id.is_(None), Record.addition_id.in_(sa.select(Addition.id).where(applied))),
        sa.or_(Record.subject_ref.is_(None), Record.subject_ref.not_in(asked)),
    )


def count_who_did_not_ask(session: Session, *, dataset_id: str, tenant_id: str) -> tuple[int, int]:
    """Number of people of a dataset of whom no request is open, and of rows without a person."""
    people = sa.func.count(Record.subject_ref.distinct())
    without_a_person = sa.func.count() - sa.func.count(Record.subject_ref)
    query = sa.select(people, without_a_person).where(_did_not_ask(dataset_id, tenant_id))
    found = session.execute(query).one()
    return found[0], found[1]


def records_of(session: Session, *, dataset_id: str, subject_refs: list[str]) -> list[StoredRecord]:
    """The records of these people in a dataset."""
    mine = sa.and_(Record.dataset_id == dataset_id, Record.subject_ref.in_(subject_refs))
    return list(map(StoredRecord._make, session.execute(stored(mine))))


def rows_of_who_did_not_ask(session: Session, *, dataset_id: str, tenant_id: str) -> Iterator[tuple[bytes | None, int]]:
    """The person and the slot of each of those people's rows, and of rows without a person; a person's come one after
    the other, and people in an order of their own."""
    whose = raw(Record.subject_ref)
    query = sa.select(whose, Record.slot).where(_did_not_ask(dataset_id, tenant_id)).order_by(whose, Record.slot)
    for found in session.execute(query.execution_options(yield_per=_AT_ONCE)):
        yield found[0], found[1]
