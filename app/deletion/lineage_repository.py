"""All SQL about where the rows of one person have been."""

import datetime
from collections.abc import Collection
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.db.people import is_about
from app.db.tables import (
    OWED,
    Certificate,
    Dataset,
    DeletionRequest,
    Erasure,
    Export,
    Model,
    Record,
    RequestModel,
    Version,
)
from lethe.contract.sets import RequestModelStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class Presence:
    """A person in a dataset: from its beginning, or later, until `revision`; None while the rows are there."""

    dataset_id: str
    name: str
    records: int
    revision: int | None
    erased_at: datetime.datetime | None


def presences(session: Session, *, subject_refs: Collection[str]) -> list[Presence]:
    """The datasets with the person's rows, and those that had them until they were erased."""
    there = (
        sa.select(Dataset.id, Dataset.name, sa.func.count())
        .join(Record, Record.dataset_id == Dataset.id)
        .where(Record.subject_ref.in_(subject_refs), Record.erasure_id.is_(None))
        .group_by(Dataset.id, Dataset.name)
    )
    gone = (  # a person who asked again while being erased joined the first; one who was added again was erased again
        sa.select(
            Dataset.id,
            Dataset.name,
            sa.func.max(sa.func.coalesce(Erasure.num_records, 0)),
            sa.func.max(Erasure.revision),
            sa.func.max(Erasure.nulled_at),
        )
        .select_from(DeletionRequest)
        .join(Erasure, Erasure.request_id == DeletionRequest.id)
        .join(Dataset, Dataset.id == Erasure.dataset_id)
        .where(is_about(subject_refs), Erasure.num_records > 0, Erasure.revision.is_not(None))
        .group_by(Dataset.id, Dataset.name)
    )
    found = [
        Presence(dataset_id=dataset_id, name=name, records=records, revision=revision, erased_at=erased_at)
        for dataset_id, name, records, revision, erased_at in session.execute(gone)
    ]
    found += [
        Presence(dataset_id=dataset_id, name=name, records=records, revision=None, erased_at=None)
        for dataset_id, name, records in session.execute(there)
    ]
    return sorted(found, key=lambda presence: presence.dataset_id)


def dataset_ids(session: Session, *, request_id: str) -> set[str]:
    return set(session.scalars(sa.select(Erasure.dataset_id).where(Erasure.request_id == request_id)))


def models(session: Session, *, dataset_ids: Collection[str]) -> list[Model]:
    return list(session.scalars(sa.select(Model).where(Model.dataset_id.in_(dataset_ids)).order_by(Model.id)))


def asked_models(session: Session, *, subject_refs: Collection[str]) -> set[str]:
    """Models of which the person's requests ask, or asked, a version without the rows."""
    query = (
        sa.select(RequestModel.model_id)
        .join(DeletionRequest, DeletionRequest.id == RequestModel.request_id)
        .where(
            is_about(subject_refs),
            RequestModel.status.in_((*OWED, RequestModelStatus.COMPLETED)),
        )
    )
    return set(session.scalars(query))


def carried_in(session: Session, *, model_id: str, revision: int | None, limit: int) -> tuple[int, list[Version]]:
    """Number of versions of a model that carried the rows erased at `revision`, and the newest of them."""
    carrying = [Version.model_id == model_id, *([] if revision is None else [Version.revision < revision])]
    newest = sa.select(Version).where(*carrying).order_by(Version.number.desc()).limit(limit)
    found = list(session.scalars(newest))
    count = session.scalars(sa.select(sa.func.count()).select_from(Version).where(*carrying)).one()
    return count, found


def first_without(session: Session, *, model_id: str, revision: int) -> Version | None:
    """The first version of a model that lacks the people erased at `revision`."""
    query = sa.select(Version).where(Version.model_id == model_id, Version.revision >= revision)
    return session.scalars(query.order_by(Version.number).limit(1)).first()


def certificates(session: Session, *, subject_refs: Collection[str]) -> list[Certificate]:
    """The certificates of all requests of a person, in the order of their issue."""
    query = (
        sa.select(Certificate)
        .join(DeletionRequest, DeletionRequest.id == Certificate.request_id)
        .where(is_about(subject_refs))
        .order_by(Certificate.issued_at, Certificate.id)
    )
    return list(session.scalars(query))


def copies(session: Session, *, model_id: str, up_to: int, limit: int) -> tuple[int, list[Export]]:
    """Number of times that a version of a model up to this one was handed out, and the last times."""
    mine = [Export.model_id == model_id, Export.version <= up_to]
    last = sa.select(Export).where(*mine).order_by(Export.at.desc(), Export.id.desc()).limit(limit)
    return session.scalars(sa.select(sa.func.count()).select_from(Export).where(*mine)).one(), list(
        session.scalars(last)
    )
