"""SQL queries about one person's rows, and about exports."""

import datetime
from collections.abc import Collection
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.db.bulk import Page, page
from app.db.tables import OWED, Certificate, Dataset, DeletionRequest, Erasure, Model, Record, RequestModel, Version
from app.deletion.repository import is_about
from app.features.lineage.tables import Export
from lethe.contract.sets import RequestModelStatus
from lethe.features.lineage.contract import CopyState


@dataclass(frozen=True, slots=True, kw_only=True)
class Presence:
    """Dataset that holds a person's rows, or held them until `revision` (None while the rows are present)."""

    id: str
    name: str
    records: int
    revision: int | None
    erased_at: datetime.datetime | None


def presences(session: Session, *, subject_refs: Collection[str]) -> list[Presence]:
    """Return the datasets that hold the person's rows, and the datasets from which they were erased."""
    present = (
        sa.select(Dataset.id, Dataset.name, sa.func.count())
        .join(Record, Record.dataset_id == Dataset.id)
        .where(Record.subject_ref.in_(subject_refs), Record.erasure_id.is_(None))
        .group_by(Dataset.id, Dataset.name)
    )
    # A repeated request during an erasure joined that erasure; a person who was added again was erased again.
    erased = (
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
    presences = [
        Presence(id=dataset_id, name=name, records=records, revision=revision, erased_at=erased_at)
        for dataset_id, name, records, revision, erased_at in session.execute(erased)
    ]
    presences += [
        Presence(id=dataset_id, name=name, records=records, revision=None, erased_at=None)
        for dataset_id, name, records in session.execute(present)
    ]
    return sorted(presences, key=lambda presence: presence.id)


def dataset_ids(session: Session, *, request_id: str) -> set[str]:
    return set(session.scalars(sa.select(Erasure.dataset_id).where(Erasure.request_id == request_id)))


def models(session: Session, *, dataset_ids: Collection[str]) -> list[Model]:
    return list(session.scalars(sa.select(Model).where(Model.dataset_id.in_(dataset_ids)).order_by(Model.id)))


def asked_models(session: Session, *, subject_refs: Collection[str]) -> set[str]:
    """Return the ids of the models that a request required, or still requires, to forget the person's rows."""
    query = (
        sa.select(RequestModel.model_id)
        .join(DeletionRequest, DeletionRequest.id == RequestModel.request_id)
        .where(is_about(subject_refs), RequestModel.status.in_((*OWED, RequestModelStatus.COMPLETED)))
    )
    return set(session.scalars(query))


def carried_in(session: Session, *, model_id: str, revision: int | None, limit: int) -> tuple[int, list[Version]]:
    """Return how many of a model's versions contain the rows erased at `revision`, and the newest of these versions.

    `revision` is None if the rows have not been erased.
    """
    carrying = [Version.model_id == model_id, *([] if revision is None else [Version.revision < revision])]
    newest = sa.select(Version).where(*carrying).order_by(Version.number.desc()).limit(limit)
    count = session.scalars(sa.select(sa.func.count()).select_from(Version).where(*carrying)).one()
    return count, list(session.scalars(newest))


def first_without(session: Session, *, model_id: str, revision: int) -> Version | None:
    """Return a model's first version without the rows erased at `revision`, or None if there is no such version."""
    query = sa.select(Version).where(Version.model_id == model_id, Version.revision >= revision)
    return session.scalars(query.order_by(Version.number).limit(1)).first()


def certificates(session: Session, *, subject_refs: Collection[str]) -> list[Certificate]:
    """Return the certificates for all of a person's requests, in order of issue."""
    query = (
        sa.select(Certificate)
        .join(DeletionRequest, DeletionRequest.id == Certificate.request_id)
        .where(is_about(subject_refs))
        .order_by(Certificate.issued_at, Certificate.id)
    )
    return list(session.scalars(query))


def copies(session: Session, *, model_id: str, up_to: int, limit: int) -> tuple[int, list[Export]]:
    """Return the number of exports of a model's versions up to version `up_to`, and the newest of these exports."""
    mine = [Export.model_id == model_id, Export.version <= up_to]
    last = sa.select(Export).where(*mine).order_by(Export.at.desc(), Export.id.desc()).limit(limit)
    count = session.scalars(sa.select(sa.func.count()).select_from(Export).where(*mine)).one()
    return count, list(session.scalars(last))


def copies_by_state(
    session: Session, *, model_id: str, up_to: int, first_without: int | None, limit: int
) -> tuple[dict[CopyState, int], list[tuple[CopyState, Export]]]:
    """Return the number of copies in each state, for a model's versions up to version `up_to`, and at most `limit` of
    the copies: worst state first, then newest first. `first_without`: first version without the person's rows."""
    has_forgotten = Export.replaced_by >= sa.literal(first_without, sa.Integer())
    rank = sa.case((Export.destroyed.is_not(None), 2), (has_forgotten, 1), else_=0).label("rank")
    mine, states = [Export.model_id == model_id, Export.version <= up_to], list(CopyState)
    ranks = sa.select(rank).where(*mine).subquery()
    counted = session.execute(sa.select(ranks.c.rank, sa.func.count()).group_by(ranks.c.rank))
    counts = dict.fromkeys(states, 0) | {states[number]: count for number, count in counted}
    worst = sa.select(rank, Export).where(*mine).order_by(rank, Export.at.desc(), Export.id.desc()).limit(limit)
    return counts, [(states[number], export) for number, export in session.execute(worst)]


def export_counts(session: Session, model_id: str) -> dict[int, int]:
    """Map each exported version of a model to its number of exports."""
    query = sa.select(Export.version, sa.func.count()).where(Export.model_id == model_id).group_by(Export.version)
    # mypy does not accept dict() of rows.
    return {version: exports for version, exports in session.execute(query)}  # noqa: C416


def exports(
    session: Session,
    *,
    model_id: str,
    version: int | None,
    to: Collection[str] | None = None,
    limit: int,
    cursor: str | None,
) -> Page[Export]:
    """Return one page of a model's exports, newest first, optionally only of one version or to the API keys `to`."""
    query = sa.select(Export).where(Export.model_id == model_id)
    if version is not None:
        query = query.where(Export.version == version)
    if to is not None:
        query = query.where(Export.api_key_id.in_(to))
    return page(session, query, Export.at, Export.id, limit=limit, cursor=cursor)


def version_named(session: Session, *, model_id: str, number: int | None, weights_sha256: str | None) -> Version | None:
    """Return the model's version with the given number, weights digest, or both; None if there is no such version."""
    query = sa.select(Version).where(Version.model_id == model_id)
    if number is not None:
        query = query.where(Version.number == number)
    if weights_sha256 is not None:
        query = query.where(Version.weights_sha256 == weights_sha256)
    return session.scalars(query.order_by(Version.number.desc()).limit(1)).first()


def first_deadline_owed(session: Session, model: Model) -> datetime.datetime | None:
    """Return the earliest deadline of accepted requests about people in the live version, or None if there are none."""
    mine = sa.select(Erasure.deadline).where(Erasure.dataset_id == model.dataset_id, Erasure.ready_at.is_not(None))
    revision = sa.select(Version.revision).where(Version.model_id == model.id, Version.number == model.live_version)
    claimed_deadlines = mine.where(Erasure.revision > revision.scalar_subquery(), Erasure.num_records > 0)
    waiting = mine.where(Erasure.revision.is_(None)).order_by(Erasure.deadline).limit(1)
    of_claimed = session.scalar(sa.select(sa.func.min(claimed_deadlines.subquery().c.deadline)))
    return min(filter(None, (of_claimed, session.scalar(waiting))), default=None)
