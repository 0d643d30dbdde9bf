"""SQL for accounting: read-only queries about versions, runs, the ledger and certificates."""

import datetime
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import sqlalchemy as sa
from sqlalchemy.orm import Session, aliased

from app.db import bulk, rows
from app.db.tables import (
    OWED,
    Addition,
    Certificate,
    Dataset,
    DeletionRequest,
    Erasure,
    LedgerEntry,
    Model,
    Record,
    RequestAlias,
    RequestEvent,
    RequestModel,
    Run,
    Version,
    stored_mechanism,
)
from lethe.contract.sets import RequestStatus, RunKind
from lethe.proof.mechanism import Mechanism

_AT_ONCE = 64
_MODEL_ID, _DATASET_ID = sa.bindparam("model_id", type_=sa.String), sa.bindparam("dataset_id", type_=sa.String)
_RUNS = sa.select(Version.number, Run.kind, Run.first_step, Run.steps_total, Run.records, Run.revision)
_RUNS = _RUNS.join(Version, Version.run_id == Run.id).where(Version.model_id == _MODEL_ID)
_RUNS = _RUNS.order_by(Version.number.desc()).limit(_AT_ONCE)
_BEGAN = sa.select(Version.revision).join(Run, Run.id == Version.run_id).order_by(Version.number.desc()).limit(1)
_BEGAN_AT = _BEGAN.where(Version.model_id == _MODEL_ID, Run.kind != RunKind.UNLEARN).scalar_subquery()
_SUM = sa.select(sa.func.coalesce(sa.func.sum(Addition.num_records), 0)).where(Addition.dataset_id == _DATASET_ID)
_LATER, _WAITING = _SUM.where(Addition.revision > _BEGAN_AT), _SUM.where(Addition.revision.is_(None))
_ADDED = sa.select(_BEGAN_AT, _LATER.scalar_subquery(), _WAITING.scalar_subquery())
_LIVE = sa.select(Version.revision).where(Version.model_id == _MODEL_ID, Version.number == sa.bindparam("number"))
_NULLED = sa.select(sa.func.coalesce(sa.func.sum(Erasure.num_claimed), 0)).where(Erasure.dataset_id == _DATASET_ID)
_NULLED_LATER = _NULLED.where(Erasure.revision > _LIVE.scalar_subquery())
_PERSON = sa.union_all(
    sa.select(DeletionRequest.subject_ref).where(DeletionRequest.id == Erasure.request_id).correlate(Erasure),
    sa.select(RequestAlias.subject_ref).where(RequestAlias.request_id == Erasure.request_id).correlate(Erasure),
)
_THEIRS = sa.and_(Record.dataset_id == Erasure.dataset_id, Record.subject_ref.in_(_PERSON))
_NUM_HELD = sa.select(sa.func.count()).select_from(Record).where(_THEIRS).correlate(Erasure).scalar_subquery()
_WITH_ROWS = sa.select(Erasure, Dataset, sa.func.coalesce(Erasure.num_records, _NUM_HELD))
_WITH_ROWS = _WITH_ROWS.join(Dataset, Dataset.id == Erasure.dataset_id)
_WITH_ROWS = _WITH_ROWS.where(Erasure.request_id.in_(sa.bindparam("these", expanding=True)))


class PublishedRun(NamedTuple):
    """Published run: its version number, the number of chain steps before it, its own number of steps, the number of
    records that became null since the previous version's run, and its dataset revision."""

    number: int
    first_step: int
    steps: int
    records: int
    revision: int


def chain_backwards(session: Session, *, model_id: str) -> Iterator[PublishedRun]:
    """Yield the published runs of the model's current chain, newest first, back to the run that started the chain. Runs
    are read in batches as the iterator advances."""
    batch = list(rows(session, _RUNS, {"model_id": model_id}))
    while batch:
        for number, kind, *of_run in batch:
            yield PublishedRun(number, *of_run)
            if kind != RunKind.UNLEARN:
                return
        batch = list(session.execute(_RUNS.where(Version.number < number), {"model_id": model_id}))


def chain_steps(session: Session, *, model_id: str) -> int:
    """Return the number of steps in the model's current chain, or 0 if the model has no versions."""
    return next((run.first_step + run.steps for run in chain_backwards(session, model_id=model_id)), 0)


def records_added_to_chain(session: Session, model: Model, *, waiting: bool = False) -> int | None:
    """Return the number of rows added to a model's dataset since its current chain began, or None if the model has
    never been trained. With `waiting`, include rows that are still to be added."""
    ((began_at, later, unassigned),) = rows(session, _ADDED, {"model_id": model.id, "dataset_id": model.dataset_id})
    return None if began_at is None else later + (unassigned if waiting else 0)


def releases_before(session: Session, *, dataset_id: str, revision: int) -> list[tuple[Model, Counter[int]]]:
    """Return each of a dataset's models with counts of its versions published before dataset revision `revision`, keyed
    by the number of steps of their runs. All lost versions are included, because it is unknown which records they were
    trained on."""
    query = sa.select(Model, Run.steps_total, sa.func.count(Run.id)).where(Model.dataset_id == dataset_id)
    query = query.outerjoin(Version, sa.and_(Version.model_id == Model.id, Version.revision < revision))
    query = query.outerjoin(Run, Run.id == Version.run_id).group_by(Model.id, Run.steps_total).order_by(Model.id)
    released: dict[Model, Counter[int]] = {}
    for model, steps, count in session.execute(query):
        counts = released.setdefault(model, Counter(model.lost_releases))
        if count:
            counts[steps] += count
    return list(released.items())


def lost_models(session: Session, *, dataset_id: str) -> list[tuple[str, Mechanism, list[int]]]:
    """Return a dataset's models that are missing from a restored backup, each with its mechanism and the number of
    steps of each version's run."""
    lost = session.get_one(Dataset, dataset_id).lost_models
    return [
        (model_id, stored_mechanism(model["mechanism"]), model["steps"]) for model_id, model in sorted(lost.items())
    ]


def times(session: Session, *, model_id: str, last: int) -> list[tuple[int, datetime.datetime, datetime.datetime]]:
    """Return (steps, start, end) for each of a model's `last` most recent published runs."""
    query = sa.select(Run.steps_total, Run.started_at, Run.finished_at).join(Version, Version.run_id == Run.id)
    query = query.where(Version.model_id == model_id).order_by(Version.number.desc()).limit(last)
    return [(steps, began, ended) for steps, began, ended in session.execute(query) if ended is not None]


def models_of(session: Session, *, dataset_id: str) -> list[Model]:
    return list(session.scalars(sa.select(Model).where(Model.dataset_id == dataset_id).order_by(Model.id)))


def erasures_of(session: Session, *, request_id: str) -> list[Erasure]:
    return list(session.scalars(sa.select(Erasure).where(Erasure.request_id == request_id)))


def erasures_with_rows(session: Session, *, request_ids: Iterable[str]) -> Iterator[tuple[Erasure, Dataset, int]]:
    """Yield each of the requests' erasures with its dataset and the number of rows about the person. For an unclaimed
    erasure, the rows are counted now."""
    for batch in bulk.in_parts(request_ids):
        yield from session.execute(_WITH_ROWS, {"these": batch})


def records_waiting_for(session: Session, model: Model) -> int:
    """Return how many rows became null after the revision of a model's live version; 0 if no version is live."""
    values = {"model_id": model.id, "number": model.live_version, "dataset_id": model.dataset_id}
    return next(int(count) for (count,) in rows(session, _NULLED_LATER, values))


def last_entry(session: Session, *, model_id: str) -> LedgerEntry | None:
    query = sa.select(LedgerEntry).where(LedgerEntry.model_id == model_id).order_by(LedgerEntry.sequence.desc())
    return session.scalars(query.limit(1)).one_or_none()


def last_entries(session: Session) -> dict[str, LedgerEntry]:
    """Return the last ledger entry of each model in service, keyed by model id. Models without entries are omitted."""
    entry = aliased(LedgerEntry)
    last = sa.select(sa.func.max(entry.sequence)).where(entry.model_id == Model.id).scalar_subquery()
    query = sa.select(LedgerEntry).join(Model, Model.id == LedgerEntry.model_id)
    query = query.where(Model.retired_at.is_(None), LedgerEntry.sequence == last)
    return {last_entry.model_id: last_entry for last_entry in session.scalars(query)}


def entries(session: Session, *, model_id: str, after: int = 0, limit: int | None = None) -> list[LedgerEntry]:
    query = sa.select(LedgerEntry).where(LedgerEntry.model_id == model_id, LedgerEntry.sequence > after)
    return list(session.scalars(query.order_by(LedgerEntry.sequence).limit(limit)))


def all_entries(session: Session, *, model_id: str | None = None) -> Iterator[LedgerEntry]:
    query = sa.select(LedgerEntry).order_by(LedgerEntry.model_id, LedgerEntry.sequence)
    if model_id is not None:
        query = query.where(LedgerEntry.model_id == model_id)
    yield from session.scalars(query.execution_options(yield_per=1000))


def entries_of_tenant(session: Session, *, tenant_id: str) -> Iterator[LedgerEntry]:
    """Yield a tenant's ledger entries, ordered by model and sequence."""
    query = sa.select(LedgerEntry).join(Model, Model.id == LedgerEntry.model_id).where(Model.tenant_id == tenant_id)
    query = query.order_by(LedgerEntry.model_id, LedgerEntry.sequence)
    yield from session.scalars(query.execution_options(yield_per=1000))


def versions_of_tenant(session: Session, *, tenant_id: str) -> Iterator[Version]:
    """Yield a tenant's versions, ordered by model and number."""
    query = sa.select(Version).join(Model, Model.id == Version.model_id).where(Model.tenant_id == tenant_id)
    query = query.order_by(Version.model_id, Version.number)
    yield from session.scalars(query.execution_options(yield_per=1000))


def certificates_of_tenant(session: Session, *, tenant_id: str) -> Iterator[Certificate]:
    query = sa.select(Certificate).where(Certificate.tenant_id == tenant_id).order_by(Certificate.id)
    yield from session.scalars(query.execution_options(yield_per=1000))


def certificate(session: Session, certificate_id: str) -> Certificate | None:
    return session.get(Certificate, certificate_id)


def certificates_of(session: Session, *, request_id: str) -> list[Certificate]:
    query = sa.select(Certificate).where(Certificate.request_id == request_id)
    return list(session.scalars(query.order_by(Certificate.issued_at, Certificate.id)))


def accepted_at(session: Session, *, request_id: str) -> datetime.datetime | None:
    """Return the time at which a request was accepted and its rows were looked up; None if it was never accepted."""
    accepted = sa.select(RequestEvent.at).where(
        RequestEvent.request_id == request_id, RequestEvent.status == RequestStatus.ACCEPTED
    )
    return session.scalars(accepted.order_by(RequestEvent.id).limit(1)).first()


def datasets_at(session: Session, *, at: datetime.datetime, among: list[str] | None) -> list[str]:
    """Return the ids of the datasets that existed at `at`, restricted to `among` unless it is None."""
    query = sa.select(Dataset.id).where(Dataset.created_at <= at)
    if among is not None:
        query = query.where(Dataset.id.in_(among))
    return list(session.scalars(query.order_by(Dataset.id)))


def is_model_waited_for(session: Session, *, request_id: str) -> bool:
    """Return True if a model still has to forget the request's rows."""
    is_waiting = sa.and_(RequestModel.request_id == request_id, RequestModel.status.in_(OWED))
    return session.scalars(sa.select(sa.exists().where(is_waiting))).one()


def is_live_since(session: Session, model: Model, *, revision: int) -> bool:
    """Return True if a model's live version excludes the rows that became null at `revision`."""
    live = sa.and_(Version.model_id == model.id, Version.number == model.live_version, Version.revision >= revision)
    return session.scalars(sa.select(sa.exists().where(live))).one()
