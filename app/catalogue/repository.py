"""All SQL about datasets, models and versions."""

import datetime
from collections.abc import Collection

import sqlalchemy as sa
from sqlalchemy.orm import InstrumentedAttribute, Session

from app.db.paging import Page, page
from app.db.tables import Addition, Dataset, Export, Model, Run, Version
from lethe.contract.sets import AdditionStatus, RunStatus, VersionStatus

_AT_ONCE = 10_000


def dataset(session: Session, dataset_id: str) -> Dataset | None:
    return session.get(Dataset, dataset_id)


def datasets(session: Session, *, name: str | None = None, limit: int, cursor: str | None) -> Page[Dataset]:
    """Newest first; `name`: those whose name has it, in capitals or not."""
    query = sa.select(Dataset) if name is None else sa.select(Dataset).where(_is_in(Dataset.name, name))
    return page(session, query, Dataset.created_at, Dataset.id, limit=limit, cursor=cursor)


def _is_in(column: InstrumentedAttribute[str], text: str) -> sa.ColumnElement[bool]:
    return column.icontains(text, autoescape=True)


def addition(session: Session, addition_id: str) -> Addition | None:
    return session.get(Addition, addition_id)


def additions(session: Session, *, dataset_id: str, limit: int, cursor: str | None) -> Page[Addition]:
    query = sa.select(Addition).where(Addition.dataset_id == dataset_id)
    return page(session, query, Addition.created_at, Addition.id, limit=limit, cursor=cursor)


def staged_additions(session: Session, *, dataset_id: str) -> list[Addition]:
    """Those whose batches still lie beside the dataset, the first to come first."""
    query = sa.select(Addition).where(Addition.dataset_id == dataset_id, Addition.staged)
    return list(session.scalars(query.order_by(Addition.created_at, Addition.id)))


def waiting_additions(session: Session, *, dataset_id: str) -> list[Addition]:
    """Those whose rows are not in their slots yet."""
    return [one for one in staged_additions(session, dataset_id=dataset_id) if one.status == AdditionStatus.PENDING]


def bounded_models(session: Session, *, dataset_id: str) -> list[Model]:
    """Models of a dataset whose mechanism states a second moment, and that are not retired."""
    query = sa.select(Model).where(Model.dataset_id == dataset_id, Model.retired_at.is_(None))
    return [model for model in session.scalars(query) if model.mechanism.get("second_moment") is not None]


def datasets_apart_from(session: Session, *, dataset_id: str) -> list[Dataset]:
    """Datasets with which a dataset shares nobody: those that its models are measured on, and those that are learned
    from by models that are measured on it. A model that was retired is neither any more, and their rows may be gone."""
    kept = Model.retired_at.is_(None)
    measured = sa.select(Model.evaluation_dataset_id).where(Model.dataset_id == dataset_id, kept)
    learned = sa.select(Model.dataset_id).where(Model.evaluation_dataset_id == dataset_id, kept)
    query = sa.select(Dataset).where(sa.or_(Dataset.id.in_(measured), Dataset.id.in_(learned)))
    return list(session.scalars(query.order_by(Dataset.id)))


def is_measured_on(session: Session, *, dataset_id: str, evaluated_on: str) -> bool:
    """Return True if a model that learns from a dataset is measured on another."""
    both = Model.dataset_id == dataset_id, Model.evaluation_dataset_id == evaluated_on
    query = sa.select(Model.id).where(*both, Model.retired_at.is_(None))
    return session.scalars(query.limit(1)).first() is not None


def model(session: Session, model_id: str) -> Model | None:
    return session.get(Model, model_id)


def models(
    session: Session,
    *,
    name: str | None = None,
    dataset_id: str | None = None,
    is_oldest_first: bool = False,
    limit: int,
    cursor: str | None,
) -> Page[Model]:
    """Newest first, unless `is_oldest_first`; `name`: those whose name has it, in capitals or not; `dataset_id`: those
    that learn from it."""
    query = sa.select(Model)
    if name is not None:
        query = query.where(_is_in(Model.name, name))
    if dataset_id is not None:
        query = query.where(Model.dataset_id == dataset_id)
    return page(session, query, Model.created_at, Model.id, limit=limit, cursor=cursor, ascending=is_oldest_first)


def models_in_service(session: Session) -> list[Model]:
    """All that are not retired."""
    return list(session.scalars(sa.select(Model).where(Model.retired_at.is_(None))))


def users_of(session: Session, *, dataset_id: str) -> list[Model]:
    """Models that learn from a dataset, or are measured on it."""
    use = sa.or_(Model.dataset_id == dataset_id, Model.evaluation_dataset_id == dataset_id)
    query = sa.select(Model).where(use, Model.retired_at.is_(None))
    return list(session.scalars(query.order_by(Model.created_at, Model.id)))


def live_version(session: Session, model: Model) -> Version | None:
    if model.live_version is None:
        return None
    return version(session, model_id=model.id, number=model.live_version)


def degraded_versions(session: Session) -> dict[str, bool]:
    """By the id of each model in service whose live version misses its quality gate: whether that is held back."""
    query = sa.select(Version.model_id, Version.held).join(Model, Model.id == Version.model_id)
    live = sa.and_(Model.retired_at.is_(None), Version.number == Model.live_version, Version.degraded)
    return dict(iter(session.execute(query.where(live))))


def version(session: Session, *, model_id: str, number: int) -> Version | None:
    return session.scalars(
        sa.select(Version).where(Version.model_id == model_id, Version.number == number)
    ).one_or_none()


def version_named(session: Session, *, model_id: str, number: int | None, weights_sha256: str | None) -> Version | None:
    """The version of a model with this number, this digest, or both."""
    query = sa.select(Version).where(Version.model_id == model_id)
    if number is not None:
        query = query.where(Version.number == number)
    if weights_sha256 is not None:
        query = query.where(Version.weights_sha256 == weights_sha256)
    return session.scalars(query.order_by(Version.number.desc()).limit(1)).first()


def versions(session: Session, *, model_id: str, limit: int, cursor: str | None) -> Page[Version]:
    query = sa.select(Version).where(Version.model_id == model_id)
    return page(session, query, Version.published_at, Version.id, limit=limit, cursor=cursor)


def versions_from(session: Session, *, dataset_id: str, limit: int) -> list[tuple[Model, Version, Run]]:
    """The last versions of all models that learn from a dataset, newest first, with the runs that made them."""
    query = sa.select(Model, Version, Run).join(Version, Version.model_id == Model.id)
    query = query.join(Run, Run.id == Version.run_id).where(Model.dataset_id == dataset_id)
    query = query.order_by(Version.published_at.desc(), Version.id.desc()).limit(limit)
    return [(model, version, run) for model, version, run in session.execute(query)]


def exports(session: Session, *, model_id: str, version: int | None, limit: int, cursor: str | None) -> Page[Export]:
    query = sa.select(Export).where(Export.model_id == model_id)
    if version is not None:
        query = query.where(Export.version == version)
    return page(session, query, Export.at, Export.id, limit=limit, cursor=cursor)


def forget_metrics(session: Session, *, evaluation_dataset_id: str) -> None:
    """Drop what was measured on people of an evaluation dataset, some of whom have been erased since."""
    measured = sa.select(Model.id).where(Model.evaluation_dataset_id == evaluation_dataset_id)
    session.execute(sa.update(Version).where(Version.model_id.in_(measured)).values(metrics={}))


def retired_version_ids(session: Session) -> list[str]:
    return list(session.scalars(sa.select(Version.id).where(Version.status == VersionStatus.RETIRED)))


def mark_destroyed(session: Session, *, version_ids: Collection[str], at: datetime.datetime) -> None:
    retired = sa.and_(Version.id.in_(version_ids), Version.status == VersionStatus.RETIRED)
    session.execute(sa.update(Version).where(retired).values(status=VersionStatus.DESTROYED, destroyed_at=at))


def needed_version_ids(session: Session) -> set[str]:
    """Versions whose weights must stay: those in service, and those that a running run may publish."""
    running = set(
        session.scalars(sa.select(Run.version_id).where(Run.status == RunStatus.RUNNING))
    )  # first: it may publish now
    return running | set(session.scalars(sa.select(Version.id).where(Version.status == VersionStatus.LIVE)))


def running_run(session: Session, *, model_id: str) -> Run | None:
    """The one that makes a version of the model, or tests it."""
    running = sa.select(Run).where(Run.model_id == model_id, Run.status == RunStatus.RUNNING)
    return session.scalars(running).one_or_none()


def last_audited_run(session: Session, *, model_id: str) -> Run | None:
    query = sa.select(Run).where(Run.model_id == model_id, Run.audit.is_not(None))
    return session.scalars(query.order_by(Run.started_at.desc(), Run.id.desc()).limit(1)).first()
