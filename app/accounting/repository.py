"""All SQL of the accountant: it reads what was published and appends to the ledger, nothing else."""

from collections.abc import Iterator

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.db.tables import Certificate, DeletionRequest, Erasure, LedgerEntry, Model, Record, Run, Version


def chain_runs(session: Session, *, model_id: str) -> list[Run]:
    """The published runs of the model's present chain: its last learning run and all after it, oldest first."""
    published = (
        sa.select(Run, Version.number).join(Version, Version.run_id == Run.id).where(Version.model_id == model_id)
    )
    last_learned = sa.select(sa.func.max(Version.number)).join(Run, Version.run_id == Run.id)
    last_learned = last_learned.where(Version.model_id == model_id, Run.kind != "unlearn")
    query = published.where(Version.number >= last_learned.scalar_subquery()).order_by(Version.number)
    return list(session.scalars(query))


def releases_before(session: Session, *, model_id: str, revision: int) -> list[int]:
    """Steps of the runs behind the versions of a model that were published before dataset revision `revision`."""
    query = sa.select(Run.steps_total).join(Version, Version.run_id == Run.id)
    return list(session.scalars(query.where(Version.model_id == model_id, Version.revision < revision)))


def count_versions(session: Session, *, model_id: str) -> int:
    return session.scalars(sa.select(sa.func.count()).where(Version.model_id == model_id)).one()


def models_of(session: Session, *, dataset_id: str) -> list[Model]:
    return list(session.scalars(sa.select(Model).where(Model.dataset_id == dataset_id).order_by(Model.id)))


def erasures_of(session: Session, *, request_id: str) -> list[Erasure]:
    return list(session.scalars(sa.select(Erasure).where(Erasure.request_id == request_id)))


def count_records_of(session: Session, *, erasure: Erasure) -> int:
    """Rows of the person whom an erasure that nobody has claimed is about."""
    person = sa.select(DeletionRequest.subject_ref).where(DeletionRequest.id == erasure.request_id).scalar_subquery()
    mine = sa.and_(Record.dataset_id == erasure.dataset_id, Record.subject_ref == person)
    return session.scalars(sa.select(sa.func.count()).where(mine)).one()


def records_erased_since(session: Session, *, dataset_id: str, revision: int) -> int:
    """Rows of a dataset that became null after `revision`."""
    later = sa.and_(Erasure.dataset_id == dataset_id, Erasure.revision > revision)
    return session.scalars(sa.select(sa.func.coalesce(sa.func.sum(Erasure.num_claimed), 0)).where(later)).one()


def records_waiting_for(session: Session, model: Model) -> int:
    """Rows that became null after the live version of a model was made."""
    live = sa.select(Version.revision).where(Version.model_id == model.id, Version.number == model.live_version)
    revision = session.scalars(live).one_or_none()
    if revision is None:
        return 0
    return records_erased_since(session, dataset_id=model.dataset_id, revision=revision)


def last_entry(session: Session, *, model_id: str) -> LedgerEntry | None:
    query = sa.select(LedgerEntry).where(LedgerEntry.model_id == model_id).order_by(LedgerEntry.sequence.desc())
    return session.scalars(query.limit(1)).one_or_none()


def entries(session: Session, *, model_id: str, after: int = 0, limit: int | None = None) -> list[LedgerEntry]:
    query = sa.select(LedgerEntry).where(LedgerEntry.model_id == model_id, LedgerEntry.sequence > after)
    return list(session.scalars(query.order_by(LedgerEntry.sequence).limit(limit)))


def all_entries(session: Session) -> Iterator[LedgerEntry]:
    query = sa.select(LedgerEntry).order_by(LedgerEntry.model_id, LedgerEntry.sequence)
    yield from session.scalars(query.execution_options(yield_per=1000))


def all_versions(session: Session) -> Iterator[Version]:
    query = sa.select(Version).order_by(Version.model_id, Version.number)
    yield from session.scalars(query.execution_options(yield_per=1000))


def certificate(session: Session, certificate_id: str) -> Certificate | None:
    return session.get(Certificate, certificate_id)


def certificates_of(session: Session, *, request_id: str) -> list[Certificate]:
    query = sa.select(Certificate).where(Certificate.request_id == request_id)
    return list(session.scalars(query.order_by(Certificate.issued_at, Certificate.id)))


def request(session: Session, request_id: str) -> DeletionRequest | None:
    return session.get(DeletionRequest, request_id)
