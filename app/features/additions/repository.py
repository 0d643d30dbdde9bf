"""SQL queries about the data that added rows must not overlap with."""

from collections.abc import Collection

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.db import bulk, tables


def datasets_apart_from(session: Session, *, dataset_id: str) -> list[tuple[tables.Dataset, bool]]:
    """Return the datasets that must not share people with a dataset: those on which its models are evaluated (True),
    and those whose models are evaluated on it (False). Retired models are ignored, because their rows may be gone."""
    is_in_use = tables.Model.retired_at.is_(None)
    measured = sa.select(tables.Model.evaluation_dataset_id).where(tables.Model.dataset_id == dataset_id, is_in_use)
    learned = sa.select(tables.Model.dataset_id).where(tables.Model.evaluation_dataset_id == dataset_id, is_in_use)
    is_measured = tables.Dataset.id.in_(measured.where(tables.Model.evaluation_dataset_id.is_not(None)))
    query = sa.select(tables.Dataset, is_measured).where(sa.or_(is_measured, tables.Dataset.id.in_(learned)))
    return [(dataset, is_on) for dataset, is_on in session.execute(query.order_by(tables.Dataset.id))]


def count_subjects_among(session: Session, subject_refs: Collection[str], *, dataset_id: str) -> int:
    """Return how many of the given people have rows in a dataset."""
    count = 0
    for batch in bulk.in_parts(subject_refs):
        in_batch = sa.and_(tables.Record.dataset_id == dataset_id, tables.Record.subject_ref.in_(batch))
        count += session.scalars(sa.select(sa.func.count(sa.distinct(tables.Record.subject_ref))).where(in_batch)).one()
    return count
