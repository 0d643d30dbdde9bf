"""SQL queries about deletion requests, their erasures and models, and about the people whom new requests name."""

import datetime
import functools
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar, cast

import sqlalchemy as sa
from sqlalchemy.orm import Session
from sqlalchemy.orm.attributes import flag_modified

from app.db import bulk, functions, now, rows, sealed
from app.db.tables import (
    OWED,
    Dataset,
    DeletionRequest,
    Erasure,
    Model,
    Record,
    RequestAlias,
    RequestEvent,
    RequestModel,
    Run,
    Tenant,
    Version,
)
from app.deletion.status import OPEN
from app.rows import repository as rows_repository
from lethe import sockets
from lethe.contract import deletion_requests, sets
from lethe.proof import target


def these(statuses: Iterable[str]) -> sa.BindParameter[list[str]]:
    """Return statuses as literals, which SQLite must see in order to use the partial index of open requests."""
    return sa.bindparam(None, sorted(statuses), expanding=True, literal_execute=True)


_OPEN, _ACCEPTED = these(OPEN), these([sets.RequestStatus.ACCEPTED])
_IN_HAND = these([sets.RequestStatus.ACCEPTED, sets.RequestStatus.RUNNING])
_RUNNING = these([sets.RequestStatus.RUNNING])
_MAX_CLAIMED_REQUESTS = 10_000
_THESE: sa.BindParameter[Sequence[str]] = sa.bindparam("these", expanding=True)
_HAND_BACKS = sa.select(RequestEvent.request_id).where(RequestEvent.kind == sets.EventKind.HANDED_BACK)
_HAND_BACKS = _HAND_BACKS.where(RequestEvent.request_id.in_(_THESE))
_AWAITING = (
    sa.select(RequestModel, Erasure, DeletionRequest)
    .join(DeletionRequest, DeletionRequest.id == RequestModel.request_id)
    .join(Model, Model.id == RequestModel.model_id)
    .join(Erasure, sa.and_(Erasure.request_id == RequestModel.request_id, Erasure.dataset_id == Model.dataset_id))
    .where(RequestModel.model_id == sa.bindparam("model_id"), Erasure.revision <= sa.bindparam("revision"))
    .where(RequestModel.status.in_(OWED))
    .order_by(DeletionRequest.created_at, DeletionRequest.id)
)


def is_about(subject_refs: Collection[str]) -> sa.ColumnElement[bool]:
    """Return the condition that a request names one of `subject_refs`, as its identifier or as an alias."""
    by_identifier = sa.select(DeletionRequest.id).where(DeletionRequest.subject_ref.in_(subject_refs))
    by_alias = sa.select(RequestAlias.request_id).where(RequestAlias.subject_ref.in_(subject_refs))
    return DeletionRequest.id.in_(sa.union_all(by_identifier, by_alias))


_WITH_MODELS = (
    sa.select(DeletionRequest, RequestModel)
    .outerjoin(RequestModel, RequestModel.request_id == DeletionRequest.id)
    .where(DeletionRequest.id == sa.bindparam("request_id"))
    .order_by(RequestModel.model_id)
)


def request_with_models(session: Session, request_id: str) -> tuple[DeletionRequest, list[RequestModel]] | None:
    """Return a request with its models, in one statement; None if the request does not exist."""
    rows = session.execute(_WITH_MODELS, {"request_id": request_id}).all()
    return (rows[0][0], [demand for _, demand in rows if demand is not None]) if rows else None


def requests_by_id(session: Session, request_ids: Collection[str]) -> dict[str, DeletionRequest]:
    query = sa.select(DeletionRequest).where(DeletionRequest.id.in_(_THESE))
    with sealed.opening(session):
        batches = [session.scalars(query, {"these": batch}) for batch in bulk.in_parts(request_ids)]
        return {request.id: request for batch in batches for request in batch}


_GRACE_OVER = sa.and_(
    DeletionRequest.status.in_(_ACCEPTED),
    DeletionRequest.held_until <= sa.bindparam("at", type_=DeletionRequest.held_until.type),
    DeletionRequest.doubted_at.is_(None),
)
_DOUBTED = sa.and_(
    DeletionRequest.status.in_(_IN_HAND),
    DeletionRequest.doubted_at.is_not(None),
    sa.or_(
        DeletionRequest.held_until.is_(None),
        DeletionRequest.held_until <= sa.bindparam("at", type_=DeletionRequest.held_until.type),
    ),
)
_ANY_MAY_SETTLE = sa.select(sa.exists().where(sa.or_(_GRACE_OVER, _DOUBTED)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Awaited:
    """A feature's work that must end before a request can complete (extension socket `AWAITS`).

    `opening` returns a predicate that is true if the feature opens work for a request on acceptance. `is_open` returns
    the condition, independent of the time, that `request` has open work. When that work ends, the feature calls
    `completion.complete_done` for a running request; `settle` completes an accepted request."""

    opening: Callable[[Session], Callable[[DeletionRequest], bool]]
    is_open: Callable[[type[DeletionRequest]], sa.ColumnElement[bool]]


def awaits() -> tuple[Awaited, ...]:
    return sockets.plugs("app.features", "hooks", "AWAITS")


@functools.cache
def _done() -> sa.Select[str, bool, bool, bool, dict[str, Any]]:
    mine = Erasure.request_id == DeletionRequest.id
    is_owed = sa.exists().where(RequestModel.request_id == DeletionRequest.id, RequestModel.status.in_(OWED))
    has_erased = sa.exists().where(mine, Erasure.num_records > 0)
    is_widened = DeletionRequest.id.in_(sa.select(_WIDENED.subquery().c.request_id))
    is_awaited = sa.or_(sa.false(), *[awaited.is_open(DeletionRequest) for awaited in awaits()])
    query = sa.select(DeletionRequest.id, has_erased, is_widened, is_awaited, Tenant.policy)
    query = query.join(Tenant, Tenant.id == DeletionRequest.tenant_id).where(DeletionRequest.id.in_(_THESE))
    return query.where(~is_owed, ~sa.exists().where(mine, Erasure.nulled_at.is_(None)))


def done(session: Session, *, request_ids: Collection[str]) -> dict[str, tuple[bool, bool, bool, dict[str, Any]]]:
    """Map those of `request_ids` whose erasures and models are all done to whether their erasures have rows, whether
    any target was beyond the default bounds, whether a feature's work is open, and their tenant's policy."""
    found = (row for batch in bulk.in_parts(request_ids) for row in rows(session, _done(), {"these": batch}))
    return {request_id: tuple(work) for request_id, *work in found}


def settled(session: Session, *, at: datetime.datetime, limit: int) -> list[tuple[DeletionRequest, bool]]:
    """Return up to `limit` requests that were waiting for the end of their grace period, the repair of records or a
    feature's work and no longer wait for anything. Each is paired with whether it has erasures."""
    if not session.scalar(_ANY_MAY_SETTLE, {"at": at}):
        return []
    mine = Erasure.request_id == DeletionRequest.id
    is_waiting = sa.and_(RequestModel.request_id == DeletionRequest.id, RequestModel.status.in_(OWED))
    query = (
        sa.select(DeletionRequest, sa.exists().where(mine))
        .where(
            DeletionRequest.unknown_at.is_(None),
            ~sa.exists().where(mine, Erasure.nulled_at.is_(None)),
            ~sa.exists().where(is_waiting),
            *[~_may_be_in(dataset_id, of) for dataset_id, of in rows_repository.doubtful(session).items()],
            *[~awaited.is_open(DeletionRequest) for awaited in awaits()],
        )
        .order_by(DeletionRequest.created_at, DeletionRequest.id)
    )
    requests: list[tuple[DeletionRequest, bool]] = []
    for condition in (_GRACE_OVER, _DOUBTED):
        rows = session.execute(query.where(condition).limit(limit - len(requests)), {"at": at})
        requests += [(request, holds) for request, holds in rows]
    return requests


def _may_be_in(dataset_id: str, tenant_id: str) -> sa.ColumnElement[bool]:
    """Return the condition that a request covers a dataset, explicitly or because it covers all of the tenant's
    datasets (`completion.is_in_doubt`)."""
    named = sa.cast(DeletionRequest.dataset_ids, sa.String).contains(f'"{dataset_id}"', autoescape=True)
    return sa.and_(DeletionRequest.tenant_id == tenant_id, sa.or_(DeletionRequest.dataset_ids.is_(None), named))


def has_clock(
    state: deletion_requests.OpenClock, *, at: datetime.datetime, horizon: datetime.timedelta = datetime.timedelta(0)
) -> sa.ColumnElement[bool]:
    """Return the condition that an open request's clock is in `state` at `at`, as `deadlines.clock` defines it."""
    is_running, deadline = DeletionRequest.paused_at.is_(None), DeletionRequest.deadline
    match state:
        case sets.ClockState.OVERDUE:
            return sa.and_(deadline <= at, sa.or_(is_running, DeletionRequest.paused_at >= deadline))
        case sets.ClockState.PAUSED:
            return ~is_running & (DeletionRequest.paused_at < deadline)
        case sets.ClockState.AT_RISK:
            return sa.and_(is_running, deadline > at, deadline <= at + horizon)
        case "running":
            return is_running & (deadline > at)


def to_alert(
    session: Session, *, at: datetime.datetime, horizon: datetime.timedelta, limit: int
) -> list[DeletionRequest]:
    """Return open requests that are overdue, or due within `horizon` on a running clock, and not announced as such."""
    late = sa.and_(DeletionRequest.deadline <= at, DeletionRequest.alerted == sets.ClockState.AT_RISK)
    query = sa.select(DeletionRequest).where(
        DeletionRequest.status.in_(_OPEN),
        sa.or_(DeletionRequest.paused_at.is_(None), has_clock(sets.ClockState.OVERDUE, at=at)),
        DeletionRequest.deadline <= at + horizon,
        sa.or_(DeletionRequest.alerted.is_(None), late),
    )
    return list(session.scalars(query.order_by(DeletionRequest.deadline, DeletionRequest.id).limit(limit)))


def events(session: Session, *, request_id: str) -> list[RequestEvent]:
    query = sa.select(RequestEvent).where(RequestEvent.request_id == request_id).order_by(RequestEvent.id)
    return list(session.scalars(query))


def count_hand_backs(session: Session, *, request_ids: Collection[str]) -> Counter[str]:
    """Count each request's hand-backs: events recording that a run serving it did not succeed."""
    return Counter(
        id_ for batch in bulk.in_parts(request_ids) for (id_,) in rows(session, _HAND_BACKS, {"these": batch})
    )


def request_models(session: Session, *, request_id: str) -> list[RequestModel]:
    query = sa.select(RequestModel).where(RequestModel.request_id == request_id).order_by(RequestModel.model_id)
    return list(session.scalars(query))


_OfRequest = TypeVar("_OfRequest", Erasure, RequestModel)


def by_request(session: Session, table: type[_OfRequest], request_ids: Collection[str]) -> dict[str, list[_OfRequest]]:
    """Map each request to its erasures or its models, in key order. Requests that have none are omitted."""
    groups: dict[str, list[_OfRequest]] = {}
    query = sa.select(table).where(table.request_id.in_(_THESE)).order_by(*sa.inspect(table).primary_key)
    for batch in bulk.in_parts(request_ids):
        for row in session.scalars(query, {"these": batch}):
            groups.setdefault(row.request_id, []).append(row)
    return groups


def first_deadlines(session: Session) -> dict[str, datetime.datetime]:
    """Return the earliest deadline of the running requests waiting for each model, keyed by model id."""
    # The condition on open requests selects their partial index.
    is_running = DeletionRequest.status.in_(_OPEN), DeletionRequest.status.in_(_RUNNING)
    running = sa.select(DeletionRequest.id, DeletionRequest.deadline).where(*is_running)
    # The limit makes SQLite start with the running requests rather than with all pending demands.
    first = running.limit(_MAX_CLAIMED_REQUESTS).subquery()
    query = sa.select(RequestModel.model_id, sa.func.min(first.c.deadline)).join(
        first, first.c.id == RequestModel.request_id
    )
    query = query.where(RequestModel.status.in_(OWED)).group_by(RequestModel.model_id)
    return {model_id: deadline for model_id, deadline in session.execute(query)}  # noqa: C416  rows are no pairs


def line_up(request: DeletionRequest, erasures: Iterable[Erasure]) -> None:
    """Set the queue position of a new request's erasures. Database triggers update it when the request changes."""
    is_accepted = request.status in (
        sets.RequestStatus.ACCEPTED,
        sets.RequestStatus.RUNNING,
        sets.RequestStatus.COMPLETED,
    )
    for erasure in erasures:
        erasure.deadline = request.deadline
        erasure.ready_at = (request.held_until or request.created_at) if is_accepted else None


_UNCLAIMED = sa.and_(
    Erasure.dataset_id == sa.bindparam("dataset_id"), Erasure.revision.is_(None), Erasure.ready_at.is_not(None)
)
_UNCONFIRMED = sa.and_(
    Erasure.dataset_id == sa.bindparam("dataset_id"), Erasure.num_records.is_not(None), Erasure.nulled_at.is_(None)
)
_MINE = sa.join(Erasure, DeletionRequest, DeletionRequest.id == Erasure.request_id)
_TO_NULL = sa.select(Record.slot, functions.raw(Record.subject_ref), Record.check_value).order_by(Record.slot)
_TO_NULL = _TO_NULL.select_from(sa.outerjoin(Erasure, Record, Record.erasure_id == Erasure.id)).where(_UNCONFIRMED)
_IS_OWED = sa.exists().where(RequestModel.request_id == Erasure.request_id, RequestModel.status.in_(OWED))
_WITH_REQUESTS = sa.select(Erasure, DeletionRequest, _IS_OWED).select_from(_MINE).where(_UNCONFIRMED)
_READY = sa.and_(_UNCLAIMED, functions.usually(Erasure.ready_at <= sa.bindparam("at", type_=Erasure.ready_at.type)))
_FIRST = (
    sa.select(Erasure, DeletionRequest)
    .select_from(_MINE)
    .where(_READY)
    .order_by(Erasure.deadline, Erasure.ready_at)
    .limit(sa.bindparam("limit"))
)
MAX_ALSO_THEIRS = 100
_ALSO_THEIRS = (
    sa.select(Erasure, DeletionRequest)
    .select_from(_MINE)
    .where(
        _READY,
        sa.or_(
            DeletionRequest.subject_ref.in_(_THESE),
            DeletionRequest.id.in_(sa.select(RequestAlias.request_id).where(RequestAlias.subject_ref.in_(_THESE))),
        ),
    )
    .order_by(Erasure.deadline, Erasure.ready_at)
    .limit(sa.bindparam("limit"))
)


def pending_erasures(session: Session, *, dataset_id: str, limit: int) -> list[tuple[Erasure, DeletionRequest]]:
    """Return the unclaimed, ready erasures of a dataset: the first `limit` by deadline, ordered by request age.

    Other requests about these people, which share the rows, are added beyond `limit`, up to `MAX_ALSO_THEIRS`. Any
    further requests join these erasures (`claims`), so that one run serves a bounded number of requests.
    """
    values = {"dataset_id": dataset_id, "at": now(session)}
    with sealed.opening(session):
        first = session.execute(_FIRST, values | {"limit": limit})
        pairs = {erasure.id: (erasure, request) for erasure, request in first}
    # At the limit there may be further requests of the same people.
    if len(pairs) == limit:
        people = sorted({ref for _, request in pairs.values() for ref in request.subject_refs})
        for batch in bulk.in_parts(people):
            also_theirs = values | {"these": batch, "limit": limit + MAX_ALSO_THEIRS}
            for erasure, request in session.execute(_ALSO_THEIRS, also_theirs):
                pairs[erasure.id] = erasure, request
    return sorted(pairs.values(), key=lambda pair: (pair[1].created_at, pair[1].id))


def count_waiting(session: Session, *, dataset_id: str, at_most: int) -> int:
    """Return the number of unclaimed rows covered by a dataset's `at_most` earliest-due accepted requests."""
    waiting = (
        sa.select(DeletionRequest.id, DeletionRequest.subject_ref)
        .select_from(_MINE)
        .where(_UNCLAIMED)
        .order_by(Erasure.deadline, Erasure.ready_at)
        .limit(at_most)
    ).cte()
    aliases = sa.select(RequestAlias.subject_ref).join(waiting, waiting.c.id == RequestAlias.request_id)
    people = sa.union_all(sa.select(waiting.c.subject_ref), aliases)
    query = sa.select(sa.func.count()).where(Record.dataset_id == dataset_id, Record.subject_ref.in_(people))
    return session.scalars(query.where(Record.erasure_id.is_(None)), {"dataset_id": dataset_id}).one()


_HELD = sa.select(Record.subject_ref, sa.func.count(), sa.func.count(Record.erasure_id)).group_by(Record.subject_ref)
_HELD = _HELD.where(Record.dataset_id == sa.bindparam("dataset_id"), Record.subject_ref.in_(_THESE))
_TABLE = Record.metadata.tables[Record.__tablename__]
_CLAIM = (
    sa.update(_TABLE)
    .where(
        _TABLE.c.dataset_id == sa.bindparam("dataset"),
        _TABLE.c.subject_ref == sa.bindparam("person"),
        _TABLE.c.erasure_id.is_(None),
    )
    .values(erasure_id=sa.bindparam("erasure"))
)


def claim_records(session: Session, *, dataset_id: str, claiming: Sequence[tuple[Erasure, DeletionRequest]]) -> None:
    """Claim the unclaimed rows of the requests' people in a dataset, each for the first erasure that names its person.
    Store in each erasure the number of rows claimed and the total number of the person's rows."""
    held, unclaimed = Counter[str](), Counter[str]()
    for batch in bulk.in_parts({ref for _, request in claiming for ref in request.subject_refs}):
        for ref, num_records, num_claimed in session.execute(_HELD, {"dataset_id": dataset_id, "these": batch}):
            held[str(ref)], unclaimed[str(ref)] = num_records, num_records - num_claimed
    claims: list[dict[str, str]] = []
    for erasure, request in claiming:
        people = set(request.subject_refs)
        erasure.num_records = sum(held[ref] for ref in people)
        claims += [{"dataset": dataset_id, "person": ref, "erasure": erasure.id} for ref in people if unclaimed[ref]]
        erasure.num_claimed = sum(unclaimed.pop(ref, 0) for ref in people)
        # Rows with the same changed columns are updated together.
        flag_modified(erasure, "num_claimed")
    if claims:
        session.connection().execute(_CLAIM, claims)


def drop_owed(session: Session, *, dataset_id: str, besides: Mapping[str, Collection[str]]) -> None:
    """Delete requests' demands on a dataset's models, except on the models to which `besides` maps each request."""
    by_models: dict[frozenset[str], list[str]] = {}
    for request_id, model_ids in besides.items():
        by_models.setdefault(frozenset(model_ids), []).append(request_id)
    for kept, request_ids in by_models.items():
        models = sa.select(Model.id).where(Model.dataset_id == dataset_id, Model.id.not_in(kept))
        for batch in bulk.in_parts(request_ids):
            theirs = sa.and_(RequestModel.request_id.in_(batch), RequestModel.model_id.in_(models))
            session.execute(sa.delete(RequestModel).where(theirs))


def drop_pending(session: Session, *, model_id: str) -> None:
    """Delete all pending demands on a model."""
    pending = sa.and_(RequestModel.model_id == model_id, RequestModel.status == sets.RequestModelStatus.PENDING)
    session.execute(sa.delete(RequestModel).where(pending))


def count_owed(session: Session, *, model_id: str) -> int:
    """Return the number of requests waiting for a model."""
    is_waiting = sa.and_(RequestModel.model_id == model_id, RequestModel.status.in_(OWED))
    return session.scalars(sa.select(sa.func.count()).where(is_waiting)).one()


def count_to_erase(session: Session, *, dataset_id: str) -> int:
    """Count a dataset's unfinished erasures that are ready for workers or belong to an open request."""
    waits = sa.and_(Erasure.dataset_id == dataset_id, Erasure.nulled_at.is_(None))
    asks = sa.or_(Erasure.ready_at.is_not(None), DeletionRequest.status.in_(OPEN))
    query = sa.select(sa.func.count(Erasure.id)).join(DeletionRequest, DeletionRequest.id == Erasure.request_id)
    return session.scalars(query.where(waits, asks)).one()


def unconfirmed_erasures(session: Session, *, dataset_id: str) -> list[Erasure]:
    """Return a dataset's erasures whose rows are not yet confirmed to be null on disk."""
    return list(session.scalars(sa.select(Erasure).where(_UNCONFIRMED), {"dataset_id": dataset_id}))


def claimed_records(session: Session, *, dataset_id: str) -> tuple[bool, list[rows_repository.StoredRecord]]:
    """Return whether any erasure of a dataset is not yet confirmed, and the records that such erasures have claimed."""
    found = list(rows(session, _TO_NULL, {"dataset_id": dataset_id}))
    return bool(found), [rows_repository.StoredRecord._make(row) for row in found if row[0] is not None]


def unconfirmed_with_requests(session: Session, *, dataset_id: str) -> list[tuple[Erasure, DeletionRequest, bool]]:
    """Return the erasures that `unconfirmed_erasures` returns, each with its request and whether the request waits for
    a model."""
    with sealed.opening(session):
        found = session.execute(_WITH_REQUESTS, {"dataset_id": dataset_id})
        return [(erasure, request, is_owed) for erasure, request, is_owed in found]


def is_anybody_erased_since(session: Session, *, dataset_id: str, at: datetime.datetime) -> bool:
    """Return True if rows of a dataset became null at `at` or later."""
    query = sa.select(Erasure.id).where(Erasure.dataset_id == dataset_id, Erasure.nulled_at >= at)
    return session.scalars(query.limit(1)).first() is not None


def drop_records(session: Session, *, erasure_ids: list[str]) -> int:
    """Delete the records of rows that are null on disk, and return their number."""
    dropped = session.execute(sa.delete(_TABLE).where(_TABLE.c.erasure_id.in_(erasure_ids)))
    return cast("sa.CursorResult[tuple[()]]", dropped).rowcount


def awaiting_model(
    session: Session, *, model_id: str, revision: int
) -> list[tuple[RequestModel, Erasure, DeletionRequest]]:
    """Return (demand, erasure, request) for a model's open demands with erasures claimed at or before `revision`."""
    values = {"model_id": model_id, "revision": revision}
    with sealed.opening(session):
        return [(demand, erasure, request) for demand, erasure, request in session.execute(_AWAITING, values)]


def request_models_of_run(session: Session, *, run_id: str) -> list[RequestModel]:
    query = sa.select(RequestModel).where(
        RequestModel.run_id == run_id, RequestModel.status == sets.RequestModelStatus.RUNNING
    )
    return list(session.scalars(query))


def served(session: Session, *, request_ids: Collection[str]) -> set[str]:
    """Return those of `request_ids` that a current run is serving."""
    by_model = sa.select(RequestModel.request_id).where(RequestModel.status == sets.RequestModelStatus.RUNNING)
    by_rows = (
        sa.select(Erasure.request_id)
        .join(Run, Run.dataset_id == Erasure.dataset_id)
        .where(Erasure.nulled_at.is_(None), Erasure.revision.is_not(None), Run.status == sets.RunStatus.RUNNING)
    )
    running: set[str] = set()
    for batch in bulk.in_parts(request_ids):
        running.update(session.scalars(by_model.where(RequestModel.request_id.in_(batch))))
        running.update(session.scalars(by_rows.where(Erasure.request_id.in_(batch))))
    return running


_HAS_OR_MAY = sa.or_(
    Model.status.not_in((sets.ModelStatus.FAILED, sets.ModelStatus.CANCELLED, sets.ModelStatus.RETIRED)),
    Model.live_version.is_not(None),
)
"""Condition that excludes retired models, and models that failed or were cancelled before their first version."""


class ClaimedErasure(NamedTuple):
    """Erasure of an open or completed request whose rows are claimed, or already null."""

    request_id: str
    dataset_id: str
    status: str
    revision: int
    num_records: int
    nulled_at: datetime.datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Lookup:
    """Result of a lookup of people and datasets.

    Attributes:
        datasets: Tenant of each dataset.
        holding: Datasets with unclaimed rows, keyed by subject reference.
        models: Models that have been, or may still be, trained on a dataset's rows, keyed by dataset.
        claimed: Latest erasure of an open request, keyed by subject reference and dataset.
        erased: Last erasure of a completed request, keyed by subject reference and dataset.
        nulled: Number of claimed rows, keyed by dataset and revision, where several requests have claimed rows.
        owed: Models that still have to forget rows, keyed by the request and dataset of `claimed` erasures.
        widened: Pairs (request, dataset) of the `claimed` erasures with a model target beyond the default bounds.
        doubtful: Tenant of each dataset with damaged records, which may hold undetected rows of a person.
        is_awaited: Whether a request, once accepted, will wait for a feature's work.
    """

    datasets: dict[str, str]
    holding: dict[str, list[str]]
    models: dict[str, list[str]]
    claimed: dict[str, dict[str, ClaimedErasure]]
    erased: dict[str, dict[str, ClaimedErasure]]
    nulled: dict[tuple[str, int], int]
    owed: dict[tuple[str, str], list[str]]
    widened: set[tuple[str, str]]
    doubtful: dict[str, str]
    is_awaited: Callable[[DeletionRequest], bool]

    def held(self, subject_refs: Iterable[str]) -> set[str]:
        """Return the datasets with unclaimed rows of the person."""
        return {dataset_id for ref in subject_refs for dataset_id in self.holding.get(ref, ())}

    def erased_by(self, request: DeletionRequest) -> str | None:
        """Return the id of the completed request that last erased the person's rows in the datasets of `request`, after
        `request` was submitted; None if no request did."""
        erasures = [
            (erasure.nulled_at, erasure.request_id)
            for ref in request.subject_refs
            for erasure in self.erased.get(ref, {}).values()
            if erasure.nulled_at is not None
            and erasure.nulled_at >= request.submitted_at
            and (request.dataset_ids is None or erasure.dataset_id in request.dataset_ids)
        ]
        return max(erasures)[1] if erasures else None

    def joined(self, subject_refs: Iterable[str]) -> dict[str, "JoinedErasure"]:
        """Map each dataset to the combined erasures in progress that another request about the person would join."""
        by_dataset: dict[str, dict[str, ClaimedErasure]] = {}
        for ref in subject_refs:
            for dataset_id, erasure in self.claimed.get(ref, {}).items():
                by_dataset.setdefault(dataset_id, {})[erasure.request_id] = erasure
        return {dataset_id: self._merge(dataset_id, list(group.values())) for dataset_id, group in by_dataset.items()}

    def _merge(self, dataset_id: str, erasures: Sequence[ClaimedErasure]) -> "JoinedErasure":
        nulled = [erasure.nulled_at for erasure in erasures if erasure.nulled_at is not None]
        models = (model for erasure in erasures for model in self.owed.get((erasure.request_id, dataset_id), ()))
        revision = max(erasure.revision for erasure in erasures)
        counts = [erasure.num_records for erasure in erasures if erasure.revision == revision]
        return JoinedErasure(
            revision=revision,
            num_records=self._count(dataset_id, revision, counts),
            nulled_at=max(nulled) if len(nulled) == len(erasures) else None,
            models=list(dict.fromkeys(models)),
            widened=any((erasure.request_id, dataset_id) in self.widened for erasure in erasures),
        )

    def _count(self, dataset_id: str, revision: int, counts: Sequence[int]) -> int:
        """Return an upper bound on the person's rows erased at one revision: several of `counts` may include the same
        row, and no run forgets more rows than were claimed in total."""
        if len(counts) == 1:
            return counts[0]
        return max(*counts, min(sum(counts), self.nulled[dataset_id, revision]))


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedErasure:
    """A person's rows that are being erased for other requests, at `revision` or before, and the models yet to forget
    them. `num_records` counts only the rows of that revision. The requests that claimed rows at earlier revisions have
    the certificates about those rows. `widened` is True if a model's target exceeds the default bounds."""

    revision: int
    num_records: int
    nulled_at: datetime.datetime | None
    models: list[str]
    widened: bool


_DATASETS = sa.select(Dataset.id, Dataset.tenant_id).where(Dataset.tenant_id.in_(_THESE))
_CLAIMED = (Erasure.request_id, DeletionRequest.status, Erasure.revision, Erasure.num_records, Erasure.nulled_at)
_MATTERS = sa.and_(
    Erasure.num_records > 0,
    sa.or_(
        DeletionRequest.status.in_(OPEN),
        sa.and_(
            DeletionRequest.status == sets.RequestStatus.COMPLETED,
            DeletionRequest.completed_at >= sa.bindparam("since", type_=DeletionRequest.completed_at.type),
        ),
    ),
)
_PEOPLE = sa.union_all(
    sa.select(DeletionRequest.subject_ref, Erasure.dataset_id, *_CLAIMED)
    .join(DeletionRequest, DeletionRequest.id == Erasure.request_id)
    .where(DeletionRequest.subject_ref.in_(_THESE), _MATTERS),
    sa.select(RequestAlias.subject_ref, Erasure.dataset_id, *_CLAIMED)
    .join(DeletionRequest, DeletionRequest.id == RequestAlias.request_id)
    .join(Erasure, Erasure.request_id == RequestAlias.request_id)
    .where(RequestAlias.subject_ref.in_(_THESE), _MATTERS),
    sa.select(Record.subject_ref, Record.dataset_id, *[sa.cast(sa.null(), column.type) for column in _CLAIMED])
    .where(Record.subject_ref.in_(_THESE), functions.usually(Record.erasure_id.is_(None)))
    .distinct(),
)
_MODELS = sa.select(Model.dataset_id, Model.id).where(Model.dataset_id.in_(_THESE), _HAS_OR_MAY).order_by(Model.id)
_OWED = (
    sa.select(RequestModel.request_id, Model.dataset_id, Model.id)
    .join(Model, Model.id == RequestModel.model_id)
    .where(RequestModel.request_id.in_(_THESE), RequestModel.status.in_(OWED), _HAS_OR_MAY)
    .order_by(Model.id)
)
_REVISIONS: sa.BindParameter[Sequence[int]] = sa.bindparam("revisions", expanding=True)
_NULLED = (
    sa.select(Erasure.dataset_id, Erasure.revision, sa.func.sum(Erasure.num_claimed))
    .where(Erasure.dataset_id.in_(_THESE), Erasure.revision.in_(_REVISIONS))
    .group_by(Erasure.dataset_id, Erasure.revision)
)
_IS_WIDENED = sa.or_(Model.epsilon > target.LARGEST_EPSILON, Model.delta > 1.0 / Dataset.num_slots)
"""SQL form of `target.is_widened` for a model joined with its dataset."""
_WIDENED = sa.union(
    sa.select(RequestModel.request_id, Model.dataset_id)
    .join(Model, Model.id == RequestModel.model_id)
    .join(Dataset, Dataset.id == Model.dataset_id)
    .where(RequestModel.request_id.in_(_THESE), RequestModel.status == sets.RequestModelStatus.COMPLETED, _IS_WIDENED),
    # A request that joined another request's erasure may have no models of its own.
    sa.select(Erasure.request_id, Erasure.dataset_id)
    .join(Dataset, Dataset.id == Erasure.dataset_id)
    .join(Model, Model.dataset_id == Erasure.dataset_id)
    .where(
        Erasure.request_id.in_(_THESE),
        Model.status != sets.ModelStatus.RETIRED,
        sa.exists().where(Version.model_id == Model.id, Version.revision < Erasure.revision),
        _IS_WIDENED,
    ),
)
"""Query for the pairs (request, dataset) whose rows a model with a target beyond the default bounds used or forgot."""
_BY_TIME, _BY_REVISION = attrgetter("nulled_at", "request_id"), attrgetter("revision")


def look_up(
    session: Session,
    *,
    subject_refs: Iterable[str],
    since: datetime.datetime | None = None,
    tenant_ids: Collection[str] = (),
) -> Lookup:
    """Look up people, and all of the tenants' datasets: a tenant has few datasets, even if a caller names many people.

    `since` is the time at which the earliest request to look up was submitted. Requests completed before then cannot
    have erased the rows of any of these (`Lookup.erased_by`), and are read only if `since` is None.
    """
    since = since or datetime.datetime.min.replace(tzinfo=datetime.UTC)
    doubtful = rows_repository.doubtful(session)
    opening = [awaited.opening(session) for awaited in awaits()]
    lookup = Lookup(
        datasets={},
        holding={},
        models={},
        claimed={},
        erased={},
        nulled={},
        owed={},
        widened=set(),
        doubtful=doubtful,
        is_awaited=lambda request: any(will_open(request) for will_open in opening),
    )
    if tenant_ids:
        of_tenants = rows(session, _DATASETS, {"these": list(tenant_ids)})
        lookup.datasets.update((dataset_id, tenant_id) for dataset_id, tenant_id in of_tenants)
    people = (
        row for batch in bulk.in_parts(subject_refs) for row in rows(session, _PEOPLE, {"these": batch, "since": since})
    )
    for subject_ref, dataset_id, request_id, *details in people:
        if request_id is None:
            lookup.holding.setdefault(subject_ref, []).append(dataset_id)
            continue
        erasure = ClaimedErasure(request_id, dataset_id, *details)
        is_done = erasure.status == sets.RequestStatus.COMPLETED
        if is_done and erasure.nulled_at is None:
            continue
        of_person = (lookup.erased if is_done else lookup.claimed).setdefault(subject_ref, {})
        order = _BY_TIME if is_done else _BY_REVISION
        if dataset_id not in of_person or order(of_person[dataset_id]) <= order(erasure):
            of_person[dataset_id] = erasure
    holders = {dataset_id for dataset_ids in lookup.holding.values() for dataset_id in dataset_ids}
    if holders:
        for dataset_id, model_id in rows(session, _MODELS, {"these": list(holders)}):
            lookup.models.setdefault(dataset_id, []).append(model_id)
    request_ids = list({erasure.request_id for of_person in lookup.claimed.values() for erasure in of_person.values()})
    if request_ids:
        for request_id, dataset_id, model_id in rows(session, _OWED, {"these": request_ids}):
            lookup.owed.setdefault((request_id, dataset_id), []).append(model_id)
        for batch in bulk.in_parts(request_ids):
            lookup.widened.update((of, dataset_id) for of, dataset_id in rows(session, _WIDENED, {"these": batch}))
    shared = _shared(lookup.claimed.values())
    if shared:
        keys = {"these": [dataset_id for dataset_id, _ in shared], "revisions": [revision for _, revision in shared]}
        lookup.nulled.update({(dataset_id, at): count for dataset_id, at, count in rows(session, _NULLED, keys)})
    return lookup


def _shared(of_people: Iterable[dict[str, ClaimedErasure]]) -> set[tuple[str, int]]:
    """Return pairs (dataset, revision) at which several requests have claimed rows."""
    revisions = {(e.request_id, e.dataset_id, e.revision) for of_person in of_people for e in of_person.values()}
    requests = Counter((dataset_id, revision) for _, dataset_id, revision in revisions)
    return {pair for pair, count in requests.items() if count > 1}


def models_of(session: Session, *, dataset_id: str) -> list[str]:
    """Return the ids of the models that have been, or may still be, trained on a dataset (`_HAS_OR_MAY`)."""
    return [model_id for _, model_id in rows(session, _MODELS, {"these": [dataset_id]})]
