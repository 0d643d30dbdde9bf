"""SQL queries about datasets, models and versions."""

import datetime
from collections.abc import Collection

import sqlalchemy as sa
from sqlalchemy.orm import InstrumentedAttribute, Session

from app.db.bulk import Page, page
from app.db.tables import Addition, Dataset, Model, Run, Version
from lethe.contract.sets import AdditionStatus, RunStatus, VersionStatus

_AT_ONCE = 10_000


def dataset(session: Session, dataset_id: str) -> Dataset | None:
    return session.get(Dataset, dataset_id)


def datasets(session: Session, *, name: str | None = None, limit: int, cursor: str | None) -> Page[Dataset]:
    """Return a page of datasets, newest first. `name` selects datasets whose name contains it, ignoring case."""
    query = sa.select(Dataset) if name is None else sa.select(Dataset).where(_is_in(Dataset.name, name))
    return page(session, query, Dataset.created_at, Dataset.id, limit=limit, cursor=cursor)


def _is_in(column: InstrumentedAttribute[str], text: str) -> sa.ColumnElement[bool]:
    return column.icontains(text, autoescape=True)


def staged_additions(session: Session, *, dataset_id: str) -> list[Addition]:
    """Return the additions whose batches are still stored next to the dataset, oldest first."""
    query = sa.select(Addition).where(Addition.dataset_id == dataset_id, Addition.staged)
    return list(session.scalars(query.order_by(Addition.created_at, Addition.id)))


def waiting_additions(session: Session, *, dataset_id: str) -> list[Addition]:
    """Return the additions whose rows are not in their slots yet, oldest first."""
    staged = staged_additions(session, dataset_id=dataset_id)
    return [addition for addition in staged if addition.status == AdditionStatus.PENDING]


def models(
    session: Session,
    *,
    name: str | None = None,
    dataset_id: str | None = None,
    is_oldest_first: bool = False,
    limit: int,
    cursor: str | None,
) -> Page[Model]:
    """Return a page of models, newest first unless `is_oldest_first`. `name` selects models whose name contains it,
    ignoring case; `dataset_id` selects models trained on that dataset."""
    query = sa.select(Model)
    if name is not None:
        query = query.where(_is_in(Model.name, name))
    if dataset_id is not None:
        query = query.where(Model.dataset_id == dataset_id)
    return page(session, query, Model.created_at, Model.id, limit=limit, cursor=cursor, ascending=is_oldest_first)


def models_in_service(session: Session) -> list[Model]:
    """Return all models that are not retired."""
    return list(session.scalars(sa.select(Model).where(Model.retired_at.is_(None))))


def users_of(session: Session, *, dataset_id: str) -> list[Model]:
    """Return the models that are trained or evaluated on a dataset, except retired models."""
    use = sa.or_(Model.dataset_id == dataset_id, Model.evaluation_dataset_id == dataset_id)
    query = sa.select(Model).where(use, Model.retired_at.is_(None))
    return list(session.scalars(query.order_by(Model.created_at, Model.id)))


def live_version(session: Session, model: Model) -> Version | None:
    if model.live_version is None:
        return None
    return version(session, model_id=model.id, number=model.live_version)


def live_version_with_steps(session: Session, model: Model) -> tuple[Version | None, int]:
    """Return a model's live version, if any, and the number of steps in its chain."""
    query = sa.select(Version, Run.first_step + Run.steps_total).join(Run, Run.id == Version.run_id)
    row = session.execute(query.where(Version.model_id == model.id, Version.number == model.live_version)).one_or_none()
    return (row[0], row[1]) if row else (None, 0)


def degraded_versions(session: Session) -> dict[str, bool]:
    """Map each model in service whose live version misses its quality gate to whether the version is held back."""
    query = sa.select(Version.model_id, Version.held).join(Model, Model.id == Version.model_id)
    live = sa.and_(Model.retired_at.is_(None), Version.number == Model.live_version, Version.degraded)
    return dict(iter(session.execute(query.where(live))))


def version(session: Session, *, model_id: str, number: int) -> Version | None:
    return session.scalars(
        sa.select(Version).where(Version.model_id == model_id, Version.number == number)
    ).one_or_none()


def versions(session: Session, *, model_id: str, limit: int, cursor: str | None) -> Page[Version]:
    query = sa.select(Version).where(Version.model_id == model_id)
    return page(session, query, Version.published_at, Version.id, limit=limit, cursor=cursor)


def forget_metrics(session: Session, *, evaluation_dataset_id: str) -> None:
    """Delete the metrics measured on an evaluation dataset from which people have since been erased."""
    measured = sa.select(Model.id).where(Model.evaluation_dataset_id == evaluation_dataset_id)
    forgotten = sa.update(Version).where(Version.model_id.in_(measured)).values(metrics={})
    session.execute(forgotten, execution_options={"synchronize_session": False})


def mark_destroyed(session: Session, *, version_ids: Collection[str], at: datetime.datetime) -> None:
    retired = sa.and_(Version.id.in_(version_ids), Version.status == VersionStatus.RETIRED)
    destroyed = sa.update(Version).where(retired).values(status=VersionStatus.DESTROYED, destroyed_at=at)
    session.execute(destroyed, execution_options={"synchronize_session": False})


def needed_and_retired(session: Session) -> tuple[set[str], set[str]]:
    """Return the ids of versions whose weights must be retained (live versions, and those that a current run may
    publish), and the ids of superseded versions whose weights may still be stored."""
    kept = sa.select(Version.id, Version.status).where(Version.status.in_((VersionStatus.LIVE, VersionStatus.RETIRED)))
    running = sa.select(Run.version_id, Run.status).where(Run.status == RunStatus.RUNNING)
    found = dict(iter(session.execute(sa.union_all(kept, running))))
    retired = {version_id for version_id, status in found.items() if status == VersionStatus.RETIRED}
    return found.keys() - retired, retired


def running_run(session: Session, *, model_id: str) -> Run | None:
    """Return the model's current run, or None if no run is in progress."""
    running = sa.select(Run).where(Run.model_id == model_id, Run.status == RunStatus.RUNNING)
    return session.scalars(running).one_or_none()


def last_tested_run(session: Session, *, model_id: str) -> Run | None:
    query = sa.select(Run).where(Run.model_id == model_id, Run.audit.is_not(None))
    return session.scalars(query.order_by(Run.started_at.desc(), Run.id.desc()).limit(1)).first()
