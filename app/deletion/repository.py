"""All SQL about deletion requests, their erasures and their models."""

from typing import cast

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.db.paging import Page, page
from app.db.tables import Dataset, DeletionRequest, Erasure, Model, Record, RequestEvent, RequestModel, Run
from app.deletion.status import OPEN, Status


def request(session: Session, request_id: str) -> DeletionRequest | None:
    return session.get(DeletionRequest, request_id)


def requests(
    session: Session,
    *,
    status: str | None,
    subject_ref: str | None,
    model_id: str | None,
    external_id: str | None,
    limit: int,
    cursor: str | None,
) -> Page[DeletionRequest]:
    query = sa.select(DeletionRequest)
    if status is not None:
        query = query.where(DeletionRequest.status == status)
    if subject_ref is not None:
        query = query.where(DeletionRequest.subject_ref == subject_ref)
    if external_id is not None:
        query = query.where(DeletionRequest.external_id == external_id)
    if model_id is not None:
        of_model = sa.select(RequestModel.request_id).where(RequestModel.model_id == model_id)
        query = query.where(DeletionRequest.id.in_(of_model))
    return page(session, query, DeletionRequest.created_at, DeletionRequest.id, limit=limit, cursor=cursor)


def events(session: Session, *, request_id: str) -> list[RequestEvent]:
    query = sa.select(RequestEvent).where(RequestEvent.request_id == request_id).order_by(RequestEvent.id)
    return list(session.scalars(query))


def erasures(session: Session, *, request_id: str) -> list[Erasure]:
    return list(session.scalars(sa.select(Erasure).where(Erasure.request_id == request_id).order_by(Erasure.id)))


def request_models(session: Session, *, request_id: str) -> list[RequestModel]:
    query = sa.select(RequestModel).where(RequestModel.request_id == request_id).order_by(RequestModel.model_id)
    return list(session.scalars(query))


def claimed_elsewhere(session: Session, *, subject_ref: str) -> list[Erasure]:
    """Erasures of the same person, by requests still open, whose rows are already claimed: one per dataset."""
    query = (
        sa.select(Erasure)
        .join(DeletionRequest, DeletionRequest.id == Erasure.request_id)
        .where(DeletionRequest.subject_ref == subject_ref, DeletionRequest.status.in_(OPEN), Erasure.num_records > 0)
        .order_by(Erasure.revision)
    )
    return list({erasure.dataset_id: erasure for erasure in session.scalars(query)}.values())


def dataset_exists(session: Session, dataset_id: str) -> bool:
    return session.get(Dataset, dataset_id) is not None


def datasets_holding(session: Session, *, subject_ref: str) -> list[str]:
    query = (
        sa.select(Record.dataset_id).where(Record.subject_ref == subject_ref, Record.erasure_id.is_(None)).distinct()
    )
    return list(session.scalars(query.order_by(Record.dataset_id)))


def models_of(session: Session, *, dataset_id: str) -> list[Model]:
    """Models that learned from a dataset, or will: not those that failed before they had a version."""
    has_or_may = sa.or_(Model.status != "failed", Model.live_version.is_not(None))
    return list(session.scalars(sa.select(Model).where(Model.dataset_id == dataset_id, has_or_may).order_by(Model.id)))


def pending_erasures(session: Session, *, dataset_id: str, limit: int) -> list[tuple[Erasure, DeletionRequest]]:
    """Erasures of a dataset that nobody has claimed, of accepted requests, for the `limit` people who wait longest.

    All requests of one person are taken together: they share the rows.
    """
    waiting = sa.and_(
        Erasure.dataset_id == dataset_id,
        Erasure.revision.is_(None),
        DeletionRequest.status.in_((Status.ACCEPTED, Status.RUNNING)),
    )
    joined = sa.join(Erasure, DeletionRequest, DeletionRequest.id == Erasure.request_id)
    people = sa.select(DeletionRequest.subject_ref).select_from(joined).where(waiting)
    people = people.group_by(DeletionRequest.subject_ref).order_by(sa.func.min(DeletionRequest.created_at)).limit(limit)
    query = sa.select(Erasure, DeletionRequest).select_from(joined).where(waiting)
    query = query.where(DeletionRequest.subject_ref.in_(people)).order_by(
        DeletionRequest.created_at, DeletionRequest.id
    )
    return [(erasure, found) for erasure, found in session.execute(query)]


def count_waiting(session: Session, *, dataset_id: str) -> int:
    """Rows of a dataset that accepted requests wait to have erased."""
    waiting = (
        sa.select(DeletionRequest.subject_ref)
        .join(Erasure, Erasure.request_id == DeletionRequest.id)
        .where(Erasure.dataset_id == dataset_id, Erasure.revision.is_(None))
        .where(DeletionRequest.status.in_((Status.ACCEPTED, Status.RUNNING)))
    )
    query = sa.select(sa.func.count()).where(Record.dataset_id == dataset_id, Record.subject_ref.in_(waiting))
    return session.scalars(query.where(Record.erasure_id.is_(None))).one()


def claim_records(session: Session, *, erasure: Erasure, subject_ref: str) -> None:
    """Claim the person's rows for this erasure, and count them."""
    mine = sa.and_(Record.dataset_id == erasure.dataset_id, Record.subject_ref == subject_ref)
    claimed = sa.update(Record).where(mine, Record.erasure_id.is_(None)).values(erasure_id=erasure.id)
    erasure.num_claimed = cast("sa.CursorResult[tuple[()]]", session.execute(claimed)).rowcount
    erasure.num_records = session.scalars(sa.select(sa.func.count()).where(mine)).one()


def drop_owed(session: Session, *, erasure: Erasure) -> None:
    """Ask nothing of the models of this erasure's dataset any more."""
    models = sa.select(Model.id).where(Model.dataset_id == erasure.dataset_id)
    mine = sa.and_(RequestModel.request_id == erasure.request_id, RequestModel.model_id.in_(models))
    session.execute(sa.delete(RequestModel).where(mine))


def drop_pending(session: Session, *, model_id: str) -> None:
    """Ask nothing more of a model."""
    pending = sa.and_(RequestModel.model_id == model_id, RequestModel.status == "pending")
    session.execute(sa.delete(RequestModel).where(pending))


def slots_to_null(session: Session, *, dataset_id: str) -> list[int]:
    """Slots that are claimed for erasure and not yet known to be null on disk."""
    erasures = [erasure.id for erasure in unconfirmed_erasures(session, dataset_id=dataset_id)]
    query = sa.select(Record.slot).where(Record.erasure_id.in_(erasures)).order_by(Record.slot)
    return list(session.scalars(query))


def unconfirmed_erasures(session: Session, *, dataset_id: str) -> list[Erasure]:
    query = sa.select(Erasure).where(
        Erasure.dataset_id == dataset_id, Erasure.revision.is_not(None), Erasure.nulled_at.is_(None)
    )
    return list(session.scalars(query))


def drop_records(session: Session, *, erasure_ids: list[str]) -> None:
    """Forget whose the rows were that are null on disk."""
    session.execute(sa.delete(Record).where(Record.erasure_id.in_(erasure_ids)))


def awaiting_model(
    session: Session, *, model_id: str, revision: int
) -> list[tuple[RequestModel, Erasure, DeletionRequest]]:
    """What a model still owes to requests whose rows were erased at or before `revision`."""
    query = (
        sa.select(RequestModel, Erasure, DeletionRequest)
        .join(DeletionRequest, DeletionRequest.id == RequestModel.request_id)
        .join(Model, Model.id == RequestModel.model_id)
        .join(Erasure, sa.and_(Erasure.request_id == RequestModel.request_id, Erasure.dataset_id == Model.dataset_id))
        .where(
            RequestModel.model_id == model_id,
            RequestModel.status.in_(("pending", "running")),
            Erasure.revision <= revision,
        )
        .order_by(DeletionRequest.created_at, DeletionRequest.id)
    )
    return [(owed, erasure, found) for owed, erasure, found in session.execute(query)]


def request_models_of_run(session: Session, *, run_id: str) -> list[RequestModel]:
    query = sa.select(RequestModel).where(RequestModel.run_id == run_id, RequestModel.status == "running")
    return list(session.scalars(query))


def is_running(session: Session, *, request_id: str) -> bool:
    """Whether a run that serves the request is under way."""
    query = sa.select(RequestModel).where(RequestModel.request_id == request_id, RequestModel.status == "running")
    if session.scalars(query.limit(1)).first():
        return True
    erasing = (
        sa.select(Erasure)
        .join(Run, Run.dataset_id == Erasure.dataset_id)
        .where(Erasure.request_id == request_id, Erasure.nulled_at.is_(None), Erasure.revision.is_not(None))
        .where(Run.status == "running")
    )
    return session.scalars(erasing.limit(1)).first() is not None
