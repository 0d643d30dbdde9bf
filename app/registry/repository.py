"""All SQL about datasets, models and versions."""

import datetime
from collections.abc import Iterable, Sequence
from typing import TypeVar

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.db import bulk
from app.db.paging import Page, page
from app.db.tables import Dataset, Model, Record, Run, Version

T = TypeVar("T")


def dataset(session: Session, dataset_id: str) -> Dataset | None:
    return session.get(Dataset, dataset_id)


def datasets(session: Session, *, limit: int, cursor: str | None) -> Page[Dataset]:
    return page(session, sa.select(Dataset), Dataset.created_at, Dataset.id, limit=limit, cursor=cursor)


def dataset_ids(session: Session) -> set[str]:
    return set(session.scalars(sa.select(Dataset.id)))


def add_records(session: Session, *, dataset_id: str, subject_refs: Sequence[str | None]) -> None:
    rows = ((dataset_id, slot, ref) for slot, ref in enumerate(subject_refs))
    bulk.insert(session, Record, columns=("dataset_id", "slot", "subject_ref"), rows=rows)


def count_subjects(session: Session, *, dataset_id: str) -> int:
    query = sa.select(sa.func.count(sa.distinct(Record.subject_ref))).where(Record.dataset_id == dataset_id)
    return session.scalars(query).one()


def count_records(session: Session, *, dataset_id: str) -> int:
    """Rows that are not null: not yet claimed for erasure."""
    query = sa.select(sa.func.count()).where(Record.dataset_id == dataset_id, Record.erasure_id.is_(None))
    return session.scalars(query).one()


def count_records_of(session: Session, *, dataset_id: str, subject_ref: str) -> int:
    query = sa.select(sa.func.count()).where(
        Record.dataset_id == dataset_id, Record.subject_ref == subject_ref, Record.erasure_id.is_(None)
    )
    return session.scalars(query).one()


def model(session: Session, model_id: str) -> Model | None:
    return session.get(Model, model_id)


def models(session: Session, *, limit: int, cursor: str | None) -> Page[Model]:
    return page(session, sa.select(Model), Model.created_at, Model.id, limit=limit, cursor=cursor)


def models_of(session: Session, *, dataset_ids: Iterable[str]) -> list[Model]:
    query = sa.select(Model).where(Model.dataset_id.in_(list(dataset_ids))).order_by(Model.created_at, Model.id)
    return list(session.scalars(query))


def live_version(session: Session, model: Model) -> Version | None:
    if model.live_version is None:
        return None
    return version(session, model_id=model.id, number=model.live_version)


def version(session: Session, *, model_id: str, number: int) -> Version | None:
    return session.scalars(
        sa.select(Version).where(Version.model_id == model_id, Version.number == number)
    ).one_or_none()


def versions(session: Session, *, model_id: str, limit: int, cursor: str | None) -> Page[Version]:
    query = sa.select(Version).where(Version.model_id == model_id)
    return page(session, query, Version.published_at, Version.id, limit=limit, cursor=cursor)


def forget_metrics(session: Session, *, evaluation_dataset_id: str) -> None:
    """Drop what was measured on people of an evaluation dataset, some of whom have been erased since."""
    measured = sa.select(Model.id).where(Model.evaluation_dataset_id == evaluation_dataset_id)
    session.execute(sa.update(Version).where(Version.model_id.in_(measured)).values(metrics={}))


def retired_version_ids(session: Session) -> list[str]:
    return list(session.scalars(sa.select(Version.id).where(Version.status == "retired")))


def mark_destroyed(session: Session, *, version_id: str, at: datetime.datetime) -> None:
    session.execute(sa.update(Version).where(Version.id == version_id).values(status="destroyed", destroyed_at=at))


def needed_version_ids(session: Session) -> set[str]:
    """Versions whose weights must stay: those in service, and those that a running run may publish."""
    running = set(
        session.scalars(sa.select(Run.version_id).where(Run.status == "running"))
    )  # first: it may publish now
    return running | set(session.scalars(sa.select(Version.id).where(Version.status == "live")))


def running_run(session: Session, *, model_id: str) -> Run | None:
    return session.scalars(sa.select(Run).where(Run.model_id == model_id, Run.status == "running")).one_or_none()
