"""All SQL about runs: which are due, which are dead."""

import datetime

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.db.paging import Page, page
from app.db.tables import Dataset, DeletionRequest, Erasure, Model, Moment, Record, RequestModel, Run, Version
from app.deletion.status import Status

_LAST = datetime.datetime(9999, 1, 1, tzinfo=datetime.UTC)


def run(session: Session, run_id: str) -> Run | None:
    return session.get(Run, run_id)


def runs(session: Session, *, model_id: str | None, limit: int, cursor: str | None) -> Page[Run]:
    query = sa.select(Run)
    if model_id is not None:
        query = query.where(Run.model_id == model_id)
    return page(session, query, Run.started_at, Run.id, limit=limit, cursor=cursor)


def expired_runs(session: Session, *, at: datetime.datetime) -> list[Run]:
    return list(session.scalars(sa.select(Run).where(Run.status == "running", Run.lease_expires_at < at)))


def running_runs_of(session: Session, *, worker: str) -> list[Run]:
    return list(session.scalars(sa.select(Run).where(Run.status == "running", Run.worker == worker)))


def datasets_due(session: Session, *, at: datetime.datetime) -> list[str]:
    """Datasets with something to do and nothing running: those whose models still carry erased people first, then
    those with requests by deadline, then those with models to learn."""
    busy = sa.select(Run.dataset_id).where(Run.status == "running")
    requested = (
        sa.select(Erasure.dataset_id, sa.func.min(DeletionRequest.due_at).label("due"))
        .join(DeletionRequest, DeletionRequest.id == Erasure.request_id)
        .join(Dataset, Dataset.id == Erasure.dataset_id)
        .where(
            sa.or_(Dataset.not_before.is_(None), Dataset.not_before <= at),
            sa.or_(
                sa.and_(Erasure.revision.is_not(None), Erasure.nulled_at.is_(None)),
                sa.and_(Erasure.revision.is_(None), DeletionRequest.status.in_((Status.ACCEPTED, Status.RUNNING))),
            ),
        )
        .group_by(Erasure.dataset_id)
    )
    ready = sa.or_(Model.not_before.is_(None), Model.not_before <= at)
    waited_for = sa.case((Version.revision < Dataset.revision, Dataset.created_at), else_=sa.literal(_LAST, Moment))
    behind = (
        sa.select(Model.dataset_id, sa.func.min(waited_for).label("due"))
        .join(Dataset, Dataset.id == Model.dataset_id)
        .outerjoin(Version, sa.and_(Version.model_id == Model.id, Version.number == Model.live_version))
        .where(ready, sa.or_(Model.wanted.is_not(None), Version.revision < Dataset.revision))
        .group_by(Model.dataset_id)
    )
    due = sa.union_all(requested, behind).subquery()
    query = sa.select(due.c.dataset_id).where(due.c.dataset_id.not_in(busy)).group_by(due.c.dataset_id)
    return list(session.scalars(query.order_by(sa.func.min(due.c.due), due.c.dataset_id)))


def models_due(session: Session, *, dataset: Dataset, at: datetime.datetime) -> list[tuple[Model, Version | None]]:
    """Models of a dataset that must run: first those that people wait for, then those to be learned."""
    query = (
        sa.select(Model, Version)
        .outerjoin(Version, sa.and_(Version.model_id == Model.id, Version.number == Model.live_version))
        .where(
            Model.dataset_id == dataset.id,
            sa.or_(Model.not_before.is_(None), Model.not_before <= at),
            sa.or_(Model.wanted.is_not(None), Version.revision < dataset.revision),
        )
        .order_by(Version.revision.is_(None), Model.attempts, Model.created_at, Model.id)
    )
    return [(model, version) for model, version in session.execute(query)]


def records_erased_since(session: Session, *, dataset_id: str, revision: int) -> int:
    """Rows of a dataset that became null after `revision`."""
    query = (
        sa.select(sa.func.count())
        .select_from(Record)
        .join(Erasure, Erasure.id == Record.erasure_id)
        .where(Record.dataset_id == dataset_id, Erasure.revision > revision)
    )
    return session.scalars(query).one()


def owed_by(session: Session, *, model_id: str) -> list[RequestModel]:
    """All that a model owes to requests, also to those whose rows nobody has claimed."""
    query = sa.select(RequestModel).where(RequestModel.model_id == model_id)
    return list(session.scalars(query.where(RequestModel.status.in_(("pending", "running")))))


def oldest_waiting(session: Session) -> datetime.datetime | None:
    """When the request that waits longest was made."""
    waiting = DeletionRequest.status.in_((Status.ACCEPTED, Status.RUNNING))
    return session.scalars(sa.select(sa.func.min(DeletionRequest.created_at)).where(waiting)).one()
