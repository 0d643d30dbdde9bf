"""SQL of additions: which slots are taken, and which models bound what is added."""

from collections.abc import Iterator

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.db.bulk import Page, page
from app.db.tables import Addition, Model, Record


def additions(session: Session, *, dataset_id: str, limit: int, cursor: str | None) -> Page[Addition]:
    query = sa.select(Addition).where(Addition.dataset_id == dataset_id)
    return page(session, query, Addition.created_at, Addition.id, limit=limit, cursor=cursor)


def bounded_models(session: Session, *, dataset_id: str) -> list[Model]:
    """Return the models of a dataset that are not retired and whose mechanism bounds a second moment."""
    query = sa.select(Model).where(Model.dataset_id == dataset_id, Model.retired_at.is_(None))
    return [model for model in session.scalars(query) if model.mechanism.get("second_moment") is not None]


def taken_slots(session: Session, *, dataset_id: str) -> Iterator[int]:
    """Yield the slots of a dataset whose rows are not confirmed to be null, or that are reserved for new rows."""
    query = sa.select(Record.slot).where(Record.dataset_id == dataset_id)
    yield from session.scalars(query.execution_options(yield_per=10_000))


def count_taken_slots(session: Session, *, dataset_id: str) -> int:
    return session.scalars(sa.select(sa.func.count()).where(Record.dataset_id == dataset_id)).one()
