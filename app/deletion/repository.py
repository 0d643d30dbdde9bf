"""All SQL about deletion requests, their erasures and their models."""

import datetime
import functools
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import cast

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.db.paging import Page, page
from app.db.tables import Dataset, DeletionRequest, Erasure, Model, Record, RequestEvent, RequestModel, Run, Table
from app.deletion.status import OPEN, Status

_FEW = 1000
_HAS_OR_MAY = sa.or_(Model.status != "failed", Model.live_version.is_not(None))
"""Of models: not those that failed before they had a version."""


def request(session: Session, request_id: str) -> DeletionRequest | None:
    return session.get(DeletionRequest, request_id)


def requests(
    session: Session,
    *,
    status: str | None,
    subject_ref: str | None,
    model_id: str | None,
    external_id: str | None,
    limit: int,
    cursor: str | None,
) -> Page[DeletionRequest]:
    query = sa.select(DeletionRequest)
    if status is not None:
        query = query.where(DeletionRequest.status == status)
    if subject_ref is not None:
        query = query.where(DeletionRequest.subject_ref == subject_ref)
    if external_id is not None:
        query = query.where(DeletionRequest.external_id == external_id)
    if model_id is not None:
        query = query.where(_asks(session, model_id))
    return page(session, query, DeletionRequest.created_at, DeletionRequest.id, limit=limit, cursor=cursor)


def _asks(session: Session, model_id: str) -> sa.ColumnElement[bool]:
    """That a request asks something of the model: of a few all are looked up, among many the newest are soon found."""
    of_model = sa.select(RequestModel.request_id).where(RequestModel.model_id == model_id)
    some = list(session.scalars(of_model.limit(_FEW + 1)))
    if len(some) <= _FEW:
        return DeletionRequest.id.in_(some)
    return of_model.where(RequestModel.request_id == DeletionRequest.id).exists()


def events(session: Session, *, request_id: str) -> list[RequestEvent]:
    query = sa.select(RequestEvent).where(RequestEvent.request_id == request_id).order_by(RequestEvent.id)
    return list(session.scalars(query))


def erasures(session: Session, *, request_id: str) -> list[Erasure]:
    return list(session.scalars(sa.select(Erasure).where(Erasure.request_id == request_id).order_by(Erasure.id)))


def request_models(session: Session, *, request_id: str) -> list[RequestModel]:
    query = sa.select(RequestModel).where(RequestModel.request_id == request_id).order_by(RequestModel.model_id)
    return list(session.scalars(query))


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimed:
    """An erasure of an open request that has claimed its rows."""

    request_id: str
    dataset_id: str
    revision: int
    num_records: int
    nulled_at: datetime.datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LookedUp:
    """What is known of some people and datasets when requests about them come in."""

    datasets: set[str]
    holding: dict[str, list[str]]  # subject_ref: datasets with rows that nobody has claimed
    models: dict[str, list[str]]  # dataset: models that may carry its rows
    claimed: dict[str, dict[str, Claimed]]  # subject_ref: of each dataset, the last
    owed: dict[tuple[str, str], list[str]]  # request and dataset of those: models that still carry the rows


_THESE: sa.BindParameter[Sequence[str]] = sa.bindparam("these", expanding=True)
_DATASETS = sa.select(Dataset.id).where(Dataset.id.in_(_THESE))
_CLAIMED = (Erasure.request_id, Erasure.revision, Erasure.num_records, Erasure.nulled_at)
_PEOPLE = sa.union_all(
    sa.select(DeletionRequest.subject_ref, Erasure.dataset_id, *_CLAIMED)
    .join(DeletionRequest, DeletionRequest.id == Erasure.request_id)
    .where(DeletionRequest.subject_ref.in_(_THESE), DeletionRequest.status.in_(OPEN), Erasure.num_records > 0),
    sa.select(Record.subject_ref, Record.dataset_id, *[sa.cast(sa.null(), column.type) for column in _CLAIMED])
    .where(Record.subject_ref.in_(_THESE), Record.erasure_id.is_(None))
    .distinct(),
)
_MODELS = sa.select(Model.dataset_id, Model.id).where(Model.dataset_id.in_(_THESE), _HAS_OR_MAY).order_by(Model.id)
_OWED = (
    sa.select(RequestModel.request_id, Model.dataset_id, Model.id)
    .join(Model, Model.id == RequestModel.model_id)
    .where(RequestModel.request_id.in_(_THESE), RequestModel.status.in_(("pending", "running")), _HAS_OR_MAY)
    .order_by(Model.id)
)
"""Made once: making a statement anew takes longer than running it."""


def look_up(session: Session, *, subject_refs: Iterable[str], dataset_ids: Collection[str]) -> LookedUp:
    """Of these people; and which of these datasets there are."""
    found = LookedUp(datasets=set(), holding={}, models={}, claimed={}, owed={})
    if dataset_ids:
        found.datasets.update(session.scalars(_DATASETS, {"these": list(dataset_ids)}))
    for subject_ref, dataset_id, request_id, *claimed in session.execute(_PEOPLE, {"these": list(subject_refs)}):
        if request_id is None:
            found.holding.setdefault(subject_ref, []).append(dataset_id)
            continue
        revision, num_records, nulled_at = claimed
        of_person = found.claimed.setdefault(subject_ref, {})
        if dataset_id not in of_person or of_person[dataset_id].revision <= revision:
            of_person[dataset_id] = Claimed(
                request_id=request_id,
                dataset_id=dataset_id,
                revision=revision,
                num_records=num_records,
                nulled_at=nulled_at,
            )
    holders = {dataset_id for dataset_ids in found.holding.values() for dataset_id in dataset_ids}
    if holders:
        for dataset_id, model_id in session.execute(_MODELS, {"these": list(holders)}):
            found.models.setdefault(dataset_id, []).append(model_id)
    first = {claimed.request_id for of_person in found.claimed.values() for claimed in of_person.values()}
    if first:
        for request_id, dataset_id, model_id in session.execute(_OWED, {"these": list(first)}):
            found.owed.setdefault((request_id, dataset_id), []).append(model_id)
    return found


def models_of_requests(session: Session, *, request_ids: Sequence[str]) -> dict[str, list[RequestModel]]:
    """What each of these requests asks of models, for those that ask anything."""
    query = sa.select(RequestModel).where(RequestModel.request_id.in_(request_ids)).order_by(RequestModel.model_id)
    found: dict[str, list[RequestModel]] = {}
    for owed in session.scalars(query):
        found.setdefault(owed.request_id, []).append(owed)
    return found


def store(session: Session, table: type[Table], rows: Sequence[Table]) -> None:
    """Add new rows, in one statement."""
    if rows:
        statement, attributes = _insertion(table)
        values = [{column: getattr(row, name) for column, name in attributes} for row in rows]
        session.connection().execute(statement, values)


@functools.cache
def _insertion(table: type[Table]) -> tuple[sa.Insert, list[tuple[str, str]]]:
    """The statement, and which attribute goes into which column."""
    columns = [(attribute.columns[0], attribute.key) for attribute in sa.inspect(table).column_attrs]
    attributes = [(column.key, name) for column, name in columns if column.autoincrement is not True]
    return sa.insert(table.metadata.tables[table.__tablename__]), attributes


def models_of(session: Session, *, dataset_id: str) -> list[Model]:
    """Models that learned from a dataset, or will: not those that failed before they had a version."""
    query = sa.select(Model).where(Model.dataset_id == dataset_id, _HAS_OR_MAY)
    return list(session.scalars(query.order_by(Model.id)))


def pending_erasures(session: Session, *, dataset_id: str, limit: int) -> list[tuple[Erasure, DeletionRequest]]:
    """Erasures of a dataset that nobody has claimed, of accepted requests, for the `limit` people who wait longest.

    All requests of one person are taken together: they share the rows.
    """
    waiting = sa.and_(
        Erasure.dataset_id == dataset_id,
        Erasure.revision.is_(None),
        DeletionRequest.status.in_((Status.ACCEPTED, Status.RUNNING)),
    )
    joined = sa.join(Erasure, DeletionRequest, DeletionRequest.id == Erasure.request_id)
    people = sa.select(DeletionRequest.subject_ref).select_from(joined).where(waiting)
    people = people.group_by(DeletionRequest.subject_ref).order_by(sa.func.min(DeletionRequest.created_at)).limit(limit)
    query = sa.select(Erasure, DeletionRequest).select_from(joined).where(waiting)
    query = query.where(DeletionRequest.subject_ref.in_(people)).order_by(
        DeletionRequest.created_at, DeletionRequest.id
    )
    return [(erasure, found) for erasure, found in session.execute(query)]


def count_waiting(session: Session, *, dataset_id: str, at_most: int = 10_000) -> int:
    """Rows of a dataset that accepted requests wait to have erased: of `at_most` requests, if there are more."""
    waiting = (
        sa.select(DeletionRequest.subject_ref)
        .join(Erasure, Erasure.request_id == DeletionRequest.id)
        .where(Erasure.dataset_id == dataset_id, Erasure.revision.is_(None))
        .where(DeletionRequest.status.in_((Status.ACCEPTED, Status.RUNNING)))
        .limit(at_most)
    )
    people = sa.select(waiting.subquery())
    query = sa.select(sa.func.count()).where(Record.dataset_id == dataset_id, Record.subject_ref.in_(people))
    return session.scalars(query.where(Record.erasure_id.is_(None))).one()


def claim_records(session: Session, *, erasure: Erasure, subject_ref: str) -> None:
    """Claim the person's rows for this erasure, and count them."""
    mine = sa.and_(Record.dataset_id == erasure.dataset_id, Record.subject_ref == subject_ref)
    claimed = sa.update(Record).where(mine, Record.erasure_id.is_(None)).values(erasure_id=erasure.id)
    erasure.num_claimed = cast("sa.CursorResult[tuple[()]]", session.execute(claimed)).rowcount
    erasure.num_records = session.scalars(sa.select(sa.func.count()).where(mine)).one()


def drop_owed(session: Session, *, erasure: Erasure) -> None:
    """Ask nothing of the models of this erasure's dataset any more."""
    models = sa.select(Model.id).where(Model.dataset_id == erasure.dataset_id)
    mine = sa.and_(RequestModel.request_id == erasure.request_id, RequestModel.model_id.in_(models))
    session.execute(sa.delete(RequestModel).where(mine))


def drop_pending(session: Session, *, model_id: str) -> None:
    """Ask nothing more of a model."""
    pending = sa.and_(RequestModel.model_id == model_id, RequestModel.status == "pending")
    session.execute(sa.delete(RequestModel).where(pending))


def slots_to_null(session: Session, *, dataset_id: str) -> list[int]:
    """Slots that are claimed for erasure and not yet known to be null on disk."""
    erasures = [erasure.id for erasure in unconfirmed_erasures(session, dataset_id=dataset_id)]
    query = sa.select(Record.slot).where(Record.erasure_id.in_(erasures)).order_by(Record.slot)
    return list(session.scalars(query))


def unconfirmed_erasures(session: Session, *, dataset_id: str) -> list[Erasure]:
    query = sa.select(Erasure).where(
        Erasure.dataset_id == dataset_id, Erasure.revision.is_not(None), Erasure.nulled_at.is_(None)
    )
    return list(session.scalars(query))


def drop_records(session: Session, *, erasure_ids: list[str]) -> None:
    """Forget whose the rows were that are null on disk."""
    session.execute(sa.delete(Record).where(Record.erasure_id.in_(erasure_ids)))


def awaiting_model(
    session: Session, *, model_id: str, revision: int
) -> list[tuple[RequestModel, Erasure, DeletionRequest]]:
    """What a model still owes to requests whose rows were erased at or before `revision`."""
    query = (
        sa.select(RequestModel, Erasure, DeletionRequest)
        .join(DeletionRequest, DeletionRequest.id == RequestModel.request_id)
        .join(Model, Model.id == RequestModel.model_id)
        .join(Erasure, sa.and_(Erasure.request_id == RequestModel.request_id, Erasure.dataset_id == Model.dataset_id))
        .where(
            RequestModel.model_id == model_id,
            RequestModel.status.in_(("pending", "running")),
            Erasure.revision <= revision,
        )
        .order_by(DeletionRequest.created_at, DeletionRequest.id)
    )
    return [(owed, erasure, found) for owed, erasure, found in session.execute(query)]


def request_models_of_run(session: Session, *, run_id: str) -> list[RequestModel]:
    query = sa.select(RequestModel).where(RequestModel.run_id == run_id, RequestModel.status == "running")
    return list(session.scalars(query))


def is_running(session: Session, *, request_id: str) -> bool:
    """Whether a run that serves the request is under way."""
    query = sa.select(RequestModel).where(RequestModel.request_id == request_id, RequestModel.status == "running")
    if session.scalars(query.limit(1)).first():
        return True
    erasing = (
        sa.select(Erasure)
        .join(Run, Run.dataset_id == Erasure.dataset_id)
        .where(Erasure.request_id == request_id, Erasure.nulled_at.is_(None), Erasure.revision.is_not(None))
        .where(Run.status == "running")
    )
    return session.scalars(erasing.limit(1)).first() is not None
