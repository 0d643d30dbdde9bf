"""All SQL about runs: which are due, which are dead."""

import datetime

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.db.paging import Page, page
from app.db.tables import Dataset, DeletionRequest, Erasure, Model, RequestModel, Run, Version
from app.deletion.status import Status

_LEARNING_MAY_WAIT = datetime.timedelta(days=30)
_BEFORE_THE_DEADLINE = datetime.timedelta(days=7)
"""However long a model lets requests wait for each other, it runs this long before the first of them is due."""


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
    """Datasets with something to do and nothing running, by the earliest deadline of those who wait on them.

    A model that only has to learn counts as if it were due a month after it was asked for. Rows are erased as soon as
    one model of the dataset runs, or none is there to wait for.
    """
    due: dict[str, datetime.datetime] = {}
    waiting = _waiting_models(session, at=at)
    requested = _requested(session, patient=_patient_datasets(session, waiting))
    for dataset_id, deadline in [*requested, *_behind(session, waiting, at=at), *_to_learn(session, at=at)]:
        due[dataset_id] = min(deadline, due.get(dataset_id, deadline))
    busy = sa.select(Run.dataset_id).where(Run.status == "running")
    put_off = sa.select(Dataset.id).where(Dataset.not_before > at)
    held = set(session.scalars(sa.union(busy, put_off)))
    return sorted(due.keys() - held, key=lambda dataset_id: (due[dataset_id], dataset_id))


def _waiting_models(session: Session, *, at: datetime.datetime) -> set[str]:
    """Models that let requests wait for each other, and whose requests are neither many, nor old, nor due soon."""
    query = (
        sa.select(
            Model.id,
            Model.max_requests,
            Model.max_wait_seconds,
            sa.func.count(),
            sa.func.min(DeletionRequest.created_at),
            sa.func.min(sa.func.coalesce(DeletionRequest.extended_due_at, DeletionRequest.due_at)),
        )
        .join(RequestModel, sa.and_(RequestModel.model_id == Model.id, RequestModel.status == "pending"))
        .join(DeletionRequest, DeletionRequest.id == RequestModel.request_id)
        .where(Model.max_wait_seconds > 0, Model.wanted.is_(None))
        .group_by(Model.id)
    )
    return {
        model_id
        for model_id, most, seconds, count, oldest, deadline in session.execute(query)
        if (most is None or count < most)
        and at < oldest + datetime.timedelta(seconds=seconds)
        and at < deadline - _BEFORE_THE_DEADLINE
    }


def _patient_datasets(session: Session, waiting: set[str]) -> set[str]:
    """Datasets all of whose models that carry or will carry people are `waiting`."""
    if not waiting:
        return set()
    carries = sa.or_(Model.live_version.is_not(None), Model.wanted.is_not(None))
    datasets = sa.select(Model.dataset_id).where(Model.id.in_(waiting))
    impatient = sa.select(Model.dataset_id).where(carries, Model.id.not_in(waiting))
    return set(session.scalars(datasets.except_(impatient)))


def _requested(session: Session, *, patient: set[str]) -> list[tuple[str, datetime.datetime]]:
    """Datasets with rows to erase: asked for and not claimed, or claimed and not known to be null."""
    query = (
        sa.select(Erasure.dataset_id, sa.func.min(DeletionRequest.due_at))
        .join(DeletionRequest, DeletionRequest.id == Erasure.request_id)
        .where(
            Erasure.nulled_at.is_(None),
            sa.or_(
                Erasure.revision.is_not(None),
                sa.and_(
                    DeletionRequest.status.in_((Status.ACCEPTED, Status.RUNNING)),
                    Erasure.dataset_id.not_in(patient),
                ),
            ),
        )
        .group_by(Erasure.dataset_id)
    )
    return [(dataset_id, deadline) for dataset_id, deadline in session.execute(query)]


def _behind(session: Session, waiting: set[str], *, at: datetime.datetime) -> list[tuple[str, datetime.datetime]]:
    """Datasets with a live model that carries people whose rows are null."""
    owed = sa.and_(RequestModel.model_id == Model.id, RequestModel.status.in_(("pending", "running")))
    query = (
        sa.select(Model.dataset_id, sa.func.min(sa.func.coalesce(DeletionRequest.due_at, Dataset.created_at)))
        .join(Dataset, Dataset.id == Model.dataset_id)
        .join(Version, sa.and_(Version.model_id == Model.id, Version.number == Model.live_version))
        .outerjoin(RequestModel, owed)
        .outerjoin(DeletionRequest, DeletionRequest.id == RequestModel.request_id)
        .where(_ready(at), Version.revision < Dataset.revision, Model.id.not_in(waiting))
        .group_by(Model.dataset_id)
    )
    return [(dataset_id, deadline) for dataset_id, deadline in session.execute(query)]


def _to_learn(session: Session, *, at: datetime.datetime) -> list[tuple[str, datetime.datetime]]:
    query = sa.select(Model.dataset_id, Model.created_at).where(_ready(at), Model.wanted.is_not(None))
    return [(dataset_id, asked_at + _LEARNING_MAY_WAIT) for dataset_id, asked_at in session.execute(query)]


def _ready(at: datetime.datetime) -> sa.ColumnElement[bool]:
    return sa.or_(Model.not_before.is_(None), Model.not_before <= at)


def models_due(session: Session, *, dataset: Dataset, at: datetime.datetime) -> list[tuple[Model, Version | None]]:
    """Models of a dataset that must run now, the one that is furthest behind first: none waits for ever."""
    query = (
        sa.select(Model, Version)
        .outerjoin(Version, sa.and_(Version.model_id == Model.id, Version.number == Model.live_version))
        .where(
            Model.dataset_id == dataset.id,
            _ready(at),
            Model.id.not_in(_waiting_models(session, at=at)),
            sa.or_(Model.wanted.is_not(None), Version.revision < dataset.revision),
        )
        .order_by(sa.func.coalesce(Version.revision, -1), Model.created_at, Model.id)
    )
    return [(model, version) for model, version in session.execute(query)]
