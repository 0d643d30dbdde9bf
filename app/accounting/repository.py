"""All SQL of the accountant: it reads what was published and appends to the ledger, nothing else."""

import datetime
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import sqlalchemy as sa
from sqlalchemy.orm import Session, aliased

from app.db.mechanisms import stored_mechanism
from app.db.tables import (
    OWED,
    Addition,
    Certificate,
    Dataset,
    DeletionRequest,
    Erasure,
    Export,
    LedgerEntry,
    Model,
    Record,
    RequestAlias,
    RequestEvent,
    RequestModel,
    Run,
    Version,
)
from lethe.contract.sets import RequestModelStatus, RequestStatus, RunKind
from lethe.proof.mechanism import Mechanism

_AT_ONCE = 64


class Ran(NamedTuple):
    """A published run: the number of its version, how many steps of its chain come before its own, its steps, and how
    many records became null before it, at which dataset revision."""

    number: int
    first_step: int
    steps: int
    records: int
    revision: int


def chain_backwards(session: Session, *, model_id: str) -> Iterator[Ran]:
    """The published runs of the model's present chain, newest first, its last learning run at the end: a few at a time,
    as far as anybody asks."""
    ran = sa.select(Version.number, Run.kind, Run.first_step, Run.steps_total, Run.records, Run.revision)
    ran = ran.join(Version, Version.run_id == Run.id).where(Version.model_id == model_id)
    ran = ran.order_by(Version.number.desc()).limit(_AT_ONCE)
    found = session.execute(ran).all()
    while found:
        for number, kind, *of_run in found:
            yield Ran(number, *of_run)
            if kind != RunKind.UNLEARN:
                return
        found = session.execute(ran.where(Version.number < number)).all()


def chain_steps(session: Session, *, model_id: str) -> int:
    """Steps of the model's present chain."""
    last = sa.select(Run.first_step + Run.steps_total).join(Version, Version.run_id == Run.id)
    last = last.where(Version.model_id == model_id).order_by(Version.number.desc())
    return session.scalars(last.limit(1)).first() or 0


def chain_steps_before(session: Session, *, model_id: str, revision: int) -> int:
    """Those of them that ran before dataset revision `revision`: none where the chain began after it."""
    for ran in chain_backwards(session, model_id=model_id):
        if ran.revision < revision:
            return ran.first_step + ran.steps
    return 0


def chain_began_at(session: Session, *, model_id: str) -> int | None:
    """The dataset revision that the model's present chain learned from first; None if it never learned."""
    learned = sa.select(Version.revision).join(Run, Run.id == Version.run_id)
    learned = learned.where(Version.model_id == model_id, Run.kind != RunKind.UNLEARN)
    return session.scalars(learned.order_by(Version.number.desc()).limit(1)).first()


def releases_before(session: Session, *, model_id: str, revision: int) -> Counter[int]:
    """Count the versions of a model that were published before dataset revision `revision`, by the steps of their runs,
    and all that were lost: nobody knows to whom those were exposed."""
    query = sa.select(Run.steps_total, sa.func.count()).join(Version, Version.run_id == Run.id)
    query = query.where(Version.model_id == model_id, Version.revision < revision).group_by(Run.steps_total)
    found = Counter(session.get_one(Model, model_id).lost_releases)
    for steps, count in session.execute(query):
        found[steps] += count
    return found


def lost_models(session: Session, *, dataset_id: str) -> list[tuple[str, Mechanism, list[int]]]:
    """Models of a dataset that a restored backup did not know: their mechanisms, and the steps behind each version."""
    lost = session.get_one(Dataset, dataset_id).lost_models
    return [(model_id, stored_mechanism(one["mechanism"]), one["steps"]) for model_id, one in sorted(lost.items())]


def releases(session: Session, *, model_id: str) -> list[tuple[int, int, int]]:
    """Every version of a model, in order: its number, the dataset revision it was made at, the steps of its run; those
    that were lost count as the first."""
    query = sa.select(Version.number, Version.revision, Run.steps_total).join(Run, Run.id == Version.run_id)
    query = query.where(Version.model_id == model_id).order_by(Version.number)
    lost = [(0, -1, steps) for steps in session.get_one(Model, model_id).lost_releases]
    return [*lost, *((number, revision, steps) for number, revision, steps in session.execute(query))]


def steps_until(session: Session, *, model_id: str, number: int) -> int:
    """Steps of the runs behind all versions of a model before version `number`."""
    query = sa.select(sa.func.coalesce(sa.func.sum(Run.steps_total), 0)).join(Version, Version.run_id == Run.id)
    return session.scalars(query.where(Version.model_id == model_id, Version.number < number)).one()


def count_exports(session: Session, *, model_id: str) -> dict[int, int]:
    """Number of times that the weights of each version of a model were handed out; versions that never were are left
    out."""
    query = sa.select(Export.version, sa.func.count()).where(Export.model_id == model_id).group_by(Export.version)
    return {version: exports for version, exports in session.execute(query)}  # noqa: C416  rows are no pairs to mypy


def times(session: Session, *, model_id: str, last: int) -> list[tuple[int, datetime.datetime, datetime.datetime]]:
    """The `last` published runs of a model: steps, when it was claimed, when it was over."""
    query = sa.select(Run.steps_total, Run.started_at, Run.finished_at).join(Version, Version.run_id == Run.id)
    query = query.where(Version.model_id == model_id).order_by(Version.number.desc()).limit(last)
    return [(steps, began, ended) for steps, began, ended in session.execute(query) if ended is not None]


def larger_requests(session: Session, model: Model, *, records: int, limit: int) -> list[tuple[str, int]]:
    """Open requests whose people have more than so many rows in a model's data: their ids and rows, most rows first."""
    mine = sa.select(RequestModel.request_id).where(
        RequestModel.model_id == model.id, RequestModel.status == RequestModelStatus.PENDING
    )
    there = Record.dataset_id == model.dataset_id
    by_name = mine.join(DeletionRequest, DeletionRequest.id == RequestModel.request_id)
    by_alias = mine.join(RequestAlias, RequestAlias.request_id == RequestModel.request_id)
    found = sa.union_all(
        by_name.join(Record, sa.and_(there, Record.subject_ref == DeletionRequest.subject_ref)),
        by_alias.join(Record, sa.and_(there, Record.subject_ref == RequestAlias.subject_ref)),
    ).subquery()
    rows = sa.func.count()
    query = sa.select(found.c.request_id, rows).group_by(found.c.request_id).having(rows > records)
    query = query.order_by(rows.desc(), found.c.request_id).limit(limit)
    return [(request_id, count) for request_id, count in session.execute(query)]


def count_versions(session: Session, *, model_id: str) -> int:
    return session.scalars(sa.select(sa.func.count()).where(Version.model_id == model_id)).one()


def models_of(session: Session, *, dataset_id: str) -> list[Model]:
    return list(session.scalars(sa.select(Model).where(Model.dataset_id == dataset_id).order_by(Model.id)))


def erasures_of(session: Session, *, request_id: str) -> list[Erasure]:
    return list(session.scalars(sa.select(Erasure).where(Erasure.request_id == request_id)))


def count_records_of(session: Session, *, erasure: Erasure) -> int:
    """Rows of the person whom an erasure that nobody has claimed is about."""
    person = sa.union_all(
        sa.select(DeletionRequest.subject_ref).where(DeletionRequest.id == erasure.request_id),
        sa.select(RequestAlias.subject_ref).where(RequestAlias.request_id == erasure.request_id),
    )
    mine = sa.and_(Record.dataset_id == erasure.dataset_id, Record.subject_ref.in_(person))
    return session.scalars(sa.select(sa.func.count()).where(mine)).one()


def records_erased_since(session: Session, *, dataset_id: str, revision: int) -> int:
    """Rows of a dataset that became null after `revision`."""
    later = sa.and_(Erasure.dataset_id == dataset_id, Erasure.revision > revision)
    return session.scalars(sa.select(sa.func.coalesce(sa.func.sum(Erasure.num_claimed), 0)).where(later)).one()


def records_added_since(session: Session, *, dataset_id: str, revision: int) -> int:
    """Rows that came to a dataset after `revision`."""
    later = sa.and_(Addition.dataset_id == dataset_id, Addition.revision > revision)
    return session.scalars(sa.select(sa.func.coalesce(sa.func.sum(Addition.num_records), 0)).where(later)).one()


def is_anything_added_since(session: Session, *, dataset_id: str, revision: int) -> bool:
    """Return True if rows came to a dataset after `revision`, or wait to be written into it."""
    later = sa.or_(Addition.revision.is_(None), Addition.revision > revision)
    query = sa.select(Addition.id).where(Addition.dataset_id == dataset_id, later)
    return session.scalars(query.limit(1)).first() is not None


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


def last_entries(session: Session) -> dict[str, LedgerEntry]:
    """The last entry of each model in service that has any."""
    entry = aliased(LedgerEntry)
    last = sa.select(sa.func.max(entry.sequence)).where(entry.model_id == Model.id).scalar_subquery()
    query = sa.select(LedgerEntry).join(Model, Model.id == LedgerEntry.model_id)
    query = query.where(Model.retired_at.is_(None), LedgerEntry.sequence == last)
    return {one.model_id: one for one in session.scalars(query)}


def entries(session: Session, *, model_id: str, after: int = 0, limit: int | None = None) -> list[LedgerEntry]:
    query = sa.select(LedgerEntry).where(LedgerEntry.model_id == model_id, LedgerEntry.sequence > after)
    return list(session.scalars(query.order_by(LedgerEntry.sequence).limit(limit)))


def entries_backwards(session: Session, *, model_id: str, before: int | None, limit: int) -> list[LedgerEntry]:
    """The last `limit` entries of a model before entry `before`, newest first."""
    query = sa.select(LedgerEntry).where(LedgerEntry.model_id == model_id)
    if before is not None:
        query = query.where(LedgerEntry.sequence < before)
    return list(session.scalars(query.order_by(LedgerEntry.sequence.desc()).limit(limit)))


def all_entries(session: Session, *, model_id: str | None = None) -> Iterator[LedgerEntry]:
    query = sa.select(LedgerEntry).order_by(LedgerEntry.model_id, LedgerEntry.sequence)
    if model_id is not None:
        query = query.where(LedgerEntry.model_id == model_id)
    yield from session.scalars(query.execution_options(yield_per=1000))


def all_versions(session: Session, *, model_id: str | None = None) -> Iterator[Version]:
    query = sa.select(Version).order_by(Version.model_id, Version.number)
    if model_id is not None:
        query = query.where(Version.model_id == model_id)
    yield from session.scalars(query.execution_options(yield_per=1000))


def entries_of_tenant(session: Session, *, tenant_id: str) -> Iterator[LedgerEntry]:
    """Ordered by model and sequence."""
    query = sa.select(LedgerEntry).join(Model, Model.id == LedgerEntry.model_id).where(Model.tenant_id == tenant_id)
    query = query.order_by(LedgerEntry.model_id, LedgerEntry.sequence)
    yield from session.scalars(query.execution_options(yield_per=1000))


def versions_of_tenant(session: Session, *, tenant_id: str) -> Iterator[Version]:
    """Ordered by model and number."""
    query = sa.select(Version).join(Model, Model.id == Version.model_id).where(Model.tenant_id == tenant_id)
    query = query.order_by(Version.model_id, Version.number)
    yield from session.scalars(query.execution_options(yield_per=1000))


def ledger_lengths(session: Session, *, tenant_id: str) -> dict[str, int]:
    """Number of entries of each model of a tenant, of those that have any, ordered by model."""
    query = sa.select(LedgerEntry.model_id, sa.func.max(LedgerEntry.sequence))
    query = query.join(Model, Model.id == LedgerEntry.model_id).where(Model.tenant_id == tenant_id)
    query = query.group_by(LedgerEntry.model_id).order_by(LedgerEntry.model_id)
    return {model_id: length for model_id, length in session.execute(query)}  # noqa: C416  rows are no pairs to mypy


def versions_between(session: Session, *, model_id: str, after: int, until: int) -> list[Version]:
    """Those of these numbers, in their order."""
    query = sa.select(Version).where(Version.model_id == model_id, Version.number > after, Version.number <= until)
    return list(session.scalars(query.order_by(Version.number)))


def certificates_of_tenant(session: Session, *, tenant_id: str) -> Iterator[Certificate]:
    query = sa.select(Certificate).where(Certificate.tenant_id == tenant_id).order_by(Certificate.id)
    yield from session.scalars(query.execution_options(yield_per=1000))


def certificate(session: Session, certificate_id: str) -> Certificate | None:
    return session.get(Certificate, certificate_id)


def certificates_of(session: Session, *, request_id: str) -> list[Certificate]:
    query = sa.select(Certificate).where(Certificate.request_id == request_id)
    return list(session.scalars(query.order_by(Certificate.issued_at, Certificate.id)))


def request(session: Session, request_id: str) -> DeletionRequest | None:
    return session.get(DeletionRequest, request_id)


def accepted_at(session: Session, *, request_id: str) -> datetime.datetime | None:
    """Time at which it was looked up what a request asks for."""
    accepted = sa.select(RequestEvent.at).where(
        RequestEvent.request_id == request_id, RequestEvent.status == RequestStatus.ACCEPTED
    )
    return session.scalars(accepted.order_by(RequestEvent.id).limit(1)).first()


def datasets_at(session: Session, *, at: datetime.datetime, among: list[str] | None) -> list[str]:
    """The datasets that there were, all or among these."""
    query = sa.select(Dataset.id).where(Dataset.created_at <= at)
    if among is not None:
        query = query.where(Dataset.id.in_(among))
    return list(session.scalars(query.order_by(Dataset.id)))


def is_model_waited_for(session: Session, *, request_id: str) -> bool:
    """Return True if a model still has to forget what the request is about."""
    owed = sa.and_(RequestModel.request_id == request_id, RequestModel.status.in_(OWED))
    return session.scalars(sa.select(sa.exists().where(owed))).one()


def is_live_since(session: Session, model: Model, *, revision: int) -> bool:
    """Return True if the live version of a model was made without what became null at `revision`."""
    live = sa.and_(Version.model_id == model.id, Version.number == model.live_version, Version.revision >= revision)
    return session.scalars(sa.select(sa.exists().where(live))).one()
