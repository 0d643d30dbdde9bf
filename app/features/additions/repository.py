"""SQL queries about the data that added rows must not overlap with."""

from collections.abc import Collection

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.db import bulk
from app.db.tables import Dataset, Model, Record


def datasets_apart_from(session: Session, *, dataset_id: str) -> list[tuple[Dataset, bool]]:
    """Return the datasets that must not share people with a dataset: those on which its models are evaluated (True),
    and those whose models are evaluated on it (False). Retired models are ignored, because their rows may be gone."""
    is_in_use = Model.retired_at.is_(None)
    measured = sa.select(Model.evaluation_dataset_id).where(Model.dataset_id == dataset_id, is_in_use)
    learned = sa.select(Model.dataset_id).where(Model.evaluation_dataset_id == dataset_id, is_in_use)
    is_measured = Dataset.id.in_(measured.where(Model.evaluation_dataset_id.is_not(None)))
    query = sa.select(Dataset, is_measured).where(sa.or_(is_measured, Dataset.id.in_(learned)))
    return [(dataset, is_on) for dataset, is_on in session.execute(query.order_by(Dataset.id))]


def count_subjects_among(session: Session, subject_refs: Collection[str], *, dataset_id: str) -> int:
    """Return how many of the given people have rows in a dataset."""
    count = 0
    for batch in bulk.in_parts(subject_refs):
        in_batch = sa.and_(Record.dataset_id == dataset_id, Record.subject_ref.in_(batch))
        count += session.scalars(sa.select(sa.func.count(sa.distinct(Record.subject_ref))).where(in_batch)).one()
    return count
