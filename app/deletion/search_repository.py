"""SQL queries across many deletion requests: searches and counts, suppressions, and retention of ended requests."""

import datetime
import operator
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, cast

import sqlalchemy as sa
from sqlalchemy.orm import InstrumentedAttribute, Session, aliased

from app.db import sealed
from app.db.bulk import Page, cut, in_parts, ordered, page
from app.db.tables import DeletionRequest, Model, RequestAlias, RequestEvent, RequestModel, Suppression
from app.deletion import repository, views
from app.deletion.status import OPEN
from lethe import sockets
from lethe.contract.deletion_requests import NOBODY, OpenClock
from lethe.contract.sets import RequestOrder, RequestStatus

_FEW = 1000
_EARLY = datetime.timedelta(hours=1)
"""Maximum lead of a caller's clock: the stated submission time can be at most this much later than the receipt."""

_ASCENDING = frozenset({RequestOrder.OLDEST, RequestOrder.DEADLINE, RequestOrder.FIRST_COMPLETED})
_OPEN = repository.these(OPEN)
_SHOWN_BY_TIME = repository.these([RequestStatus.ACCEPTED, RequestStatus.RUNNING, RequestStatus.COMPLETED])
_SHOWN_AS_ACCEPTED = repository.these([RequestStatus.ACCEPTED, RequestStatus.RUNNING])


@dataclass(frozen=True, slots=True, kw_only=True)
class Sought:
    """Conjunction of filters on requests. `received_*` bounds `submitted_at`; `due_*` selects open requests by their
    deadline, paused or not; `completed_*` selects completed requests by the time of completion; `clock` selects open
    requests by the state of their clock, at risk meaning due within `horizon`; `assignee` names a person, or `NOBODY`
    for unassigned requests; `made_before` bounds `created_at`. All `*_from` are inclusive, all `*_before` exclusive."""

    status: str | None = None
    subject_ref: str | None = None
    model_id: str | None = None
    external_id: str | None = None
    source: str | None = None
    regulation: str | None = None
    refers_to: str | None = None
    received_from: datetime.datetime | None = None
    received_before: datetime.datetime | None = None
    due_from: datetime.datetime | None = None
    due_before: datetime.datetime | None = None
    completed_from: datetime.datetime | None = None
    completed_before: datetime.datetime | None = None
    clock: OpenClock | None = None
    horizon: datetime.timedelta = datetime.timedelta(0)
    assignee: str | None = None
    made_before: datetime.datetime | None = None

    @property
    def is_of_open(self) -> bool:
        """True if the filters exclude every request that has ended."""
        return self.due_from is not None or self.due_before is not None or self.clock is not None


def requests(
    session: Session,
    search: Sought,
    *,
    view: views.View,
    order: RequestOrder = RequestOrder.NEWEST,
    limit: int,
    cursor: str | None,
) -> Page[DeletionRequest]:
    """Return one page of the requests matching `search`, judged by the status that the reader sees."""
    filters = _filters(session, search, view)
    match order:
        case RequestOrder.NEWEST | RequestOrder.OLDEST:
            at = DeletionRequest.created_at
        case RequestOrder.DEADLINE | RequestOrder.LATEST_DEADLINE:
            at = DeletionRequest.deadline
            filters += [] if search.is_of_open else [is_open(view)]
        case RequestOrder.LAST_COMPLETED | RequestOrder.FIRST_COMPLETED:
            at = cast("InstrumentedAttribute[datetime.datetime]", completed_at(view))
            if search.is_of_open or search.status not in (None, RequestStatus.COMPLETED):
                # The filters exclude completed requests; the query would read all of them to find none.
                return Page([], None)
            filters.append(was_completed(view, since=None, before=None))
    if search.model_id is not None and not filters and order is RequestOrder.NEWEST:
        return _requests_of_model(session, search.model_id, limit=limit, cursor=cursor)
    if search.model_id is not None:
        filters.append(_asks(session, search.model_id))
    query = sa.select(DeletionRequest).where(*filters)
    return page(session, query, at, DeletionRequest.id, limit=limit, cursor=cursor, ascending=order in _ASCENDING)


def count(session: Session, search: Sought, *, view: views.View, at_most: int) -> int:
    """Return the number of requests matching `search`, counted up to `at_most`."""
    filters = _filters(session, search, view)
    if search.model_id is not None:
        filters.append(_asks(session, search.model_id))
    if search.regulation is not None and search.status in OPEN and not view.discreet:
        # With this condition the database counts in the partial index of open requests.
        filters.append(DeletionRequest.status.in_(_OPEN))
    matches = sa.select(DeletionRequest.id).where(*filters).limit(at_most).subquery()
    return session.scalars(sa.select(sa.func.count()).select_from(matches)).one()


def _filters(session: Session, search: Sought, view: views.View) -> list[sa.ColumnElement[bool]]:
    """Return the conditions of `search`, except the condition on the model."""
    request = DeletionRequest
    comparisons: tuple[tuple[InstrumentedAttribute[Any], Callable[[Any, Any], Any], Any], ...] = (
        (request.source, operator.eq, search.source),
        (request.regulation, operator.eq, search.regulation),
        (request.refers_to, operator.eq, search.refers_to),
        (request.created_at, operator.lt, search.made_before),
        (request.submitted_at, operator.ge, search.received_from),
        (request.submitted_at, operator.lt, search.received_before),
        (request.deadline, operator.ge, search.due_from),
        (request.deadline, operator.lt, search.due_before),
    )
    filters: list[sa.ColumnElement[bool]] = [
        compare(column, value) for column, compare, value in comparisons if value is not None
    ]
    if search.subject_ref is not None:
        filters += [
            repository.is_about([search.subject_ref]),
            *([~is_linked(search.subject_ref)] if view.discreet else ()),
        ]
    if search.external_id is not None:
        filters.append(sealed.refers_to(session, request.external_ref, search.external_id))
    if search.status is not None:
        filters.append(_has_status(search.status, view))
    if search.refers_to is not None:
        other = aliased(DeletionRequest)
        subject = sa.select(other.subject_ref).where(other.id == search.refers_to).scalar_subquery()
        filters.append(request.subject_ref == subject)
    if search.assignee is not None:
        is_unassigned = search.assignee == NOBODY
        filters.append(request.assignee.is_(None) if is_unassigned else request.assignee == search.assignee)
    if search.received_from is not None:
        # This condition is redundant, but lets the database use the index on `created_at`.
        filters.append(request.created_at >= search.received_from - _EARLY)
    if search.clock is not None:
        filters.append(repository.has_clock(search.clock, at=view.at, horizon=search.horizon))
    if search.is_of_open:
        filters.append(is_open(view))
    if search.completed_from is not None or search.completed_before is not None:
        filters.append(was_completed(view, since=search.completed_from, before=search.completed_before))
    return filters


def is_linked(subject_ref: str | sa.ColumnElement[str]) -> sa.ColumnElement[bool]:
    """Return the condition that `subject_ref` came from an identity map, which is hidden from discreet readers."""
    linked = sa.cast(DeletionRequest.resolution, sa.String).contains(subject_ref)
    return sa.and_(DeletionRequest.resolution.is_not(None), linked)


def is_open(view: views.View) -> sa.ColumnElement[bool]:
    """Return the condition that the reader sees a request as open (`View.is_open`)."""
    return _is_one_of(_OPEN, view)


def completed_at(view: views.View) -> InstrumentedAttribute[datetime.datetime | None]:
    """Return the column with the completion time that the reader sees (`View.completed_at`)."""
    return DeletionRequest.reported_at if view.discreet else DeletionRequest.completed_at


def was_completed(
    view: views.View, *, since: datetime.datetime | None, before: datetime.datetime | None
) -> sa.ColumnElement[bool]:
    """Return the condition that the reader sees a request as completed in [since, before). Only completed requests
    have a completion time, so its index alone answers the query."""
    column = completed_at(view)
    within = [column >= since] if since is not None else []
    within += [column < before] if before is not None else []
    if view.discreet:
        within.append(_has_status(RequestStatus.COMPLETED, view))
    return sa.and_(column.is_not(None), *within)


def _has_status(status: str, view: views.View) -> sa.ColumnElement[bool]:
    """Return the condition that the reader sees a request in status `status` (`View.status`)."""
    match status if view.discreet else None:
        case RequestStatus.RUNNING:
            # Discreet readers never see a request as running.
            return DeletionRequest.status.in_(())
        case RequestStatus.ACCEPTED:
            return _is_one_of(_SHOWN_AS_ACCEPTED, view)
        case RequestStatus.COMPLETED:
            return sa.and_(DeletionRequest.status.in_(_SHOWN_BY_TIME), DeletionRequest.reported_at <= view.at)
        case _:
            return DeletionRequest.status == status


def _is_one_of(statuses: sa.BindParameter[list[str]], view: views.View) -> sa.ColumnElement[bool]:
    """Return the condition that the reader sees a request in one of the open `statuses`. A discreet reader sees an
    accepted request as open until its report time, whether it completes earlier or later."""
    if not view.discreet:
        return DeletionRequest.status.in_(statuses)
    is_over = DeletionRequest.reported_at <= view.at
    unreported = sa.select(DeletionRequest.id).where(
        DeletionRequest.status.in_(statuses), sa.or_(DeletionRequest.reported_at.is_(None), ~is_over)
    )
    completed = sa.select(DeletionRequest.id).where(
        DeletionRequest.status == RequestStatus.COMPLETED, DeletionRequest.reported_at > view.at
    )
    return DeletionRequest.id.in_(sa.union_all(unreported, completed))


def _requests_of_model(session: Session, model_id: str, *, limit: int, cursor: str | None) -> Page[DeletionRequest]:
    """Return one page of a model's requests, newest first, using the index of requests by model."""
    # `RequestModel` is not restricted to the session's tenant, so look up the model, which is.
    if session.scalars(sa.select(Model.id).where(Model.id == model_id)).first() is None:
        return Page([], None)
    at, key = RequestModel.requested_at, RequestModel.request_id
    of_model = sa.select(at, key).where(RequestModel.model_id == model_id)
    listed = ordered(of_model, at, key, limit=limit, cursor=cursor).subquery()
    query = (
        sa.select(DeletionRequest)
        .join(listed, listed.c.request_id == DeletionRequest.id)
        .order_by(listed.c.requested_at.desc(), listed.c.request_id.desc())
    )
    return cut(session, query, DeletionRequest.created_at, DeletionRequest.id, limit=limit)


def _asks(session: Session, model_id: str) -> sa.ColumnElement[bool]:
    """Return the condition that a request concerns the model: a list of ids if the model has few requests; otherwise a
    subquery, which finds the newest matches early."""
    of_model = sa.select(RequestModel.request_id).where(RequestModel.model_id == model_id)
    request_ids = list(session.scalars(of_model.limit(_FEW + 1)))
    if len(request_ids) <= _FEW:
        return DeletionRequest.id.in_(request_ids)
    return of_model.where(RequestModel.request_id == DeletionRequest.id).exists()


ANYWHERE = "*"
_FEW_SUPPRESSIONS = 1000
"""Number of suppressions below which it is faster to read them all than to look up thousands of references."""
_MAX_TRANSACTION_DURATION = datetime.timedelta(minutes=5)
"""Maximum time between a suppression's timestamp and its commit."""


def suppressed_people(session: Session, dataset_id: str, subject_refs: Collection[str]) -> set[str]:
    """Return which of `subject_refs` a dataset must refuse rows about; `*` stands for a dataset being created."""
    suppressed = set[str]()
    in_dataset = Suppression.dataset_id.in_({dataset_id, ANYWHERE})
    # A statement with thousands of references takes longer than reading as many suppressions.
    if len(subject_refs) > _FEW_SUPPRESSIONS:
        everybody = set(session.scalars(sa.select(Suppression.subject_ref).where(in_dataset).limit(_FEW_SUPPRESSIONS)))
        if len(everybody) < _FEW_SUPPRESSIONS:
            return everybody.intersection(subject_refs)
    for batch in in_parts(subject_refs):
        in_batch = Suppression.subject_ref.in_(batch)
        suppressed |= set(session.scalars(sa.select(Suppression.subject_ref).where(in_batch, in_dataset)))
    return suppressed


def suppressed_since(session: Session, since: datetime.datetime, dataset_id: str = ANYWHERE) -> set[str]:
    """Return the people whose rows a dataset must refuse and whose suppression may have been committed after `since`.
    `*` stands for a dataset that is being created."""
    query = sa.select(Suppression.subject_ref).where(
        Suppression.created_at >= since - _MAX_TRANSACTION_DURATION, Suppression.dataset_id.in_({dataset_id, ANYWHERE})
    )
    return set(session.scalars(query))


def accepted_after(session: Session, request: DeletionRequest) -> list[DeletionRequest]:
    """Return later-accepted requests about the same person that are still in force and can take over its suppressions.

    Requests accepted earlier do not count: consent ended their suppression, or this request would not own it.
    """
    accepted = (
        sa.select(sa.func.min(RequestEvent.id))
        .where(RequestEvent.request_id == DeletionRequest.id, RequestEvent.status == RequestStatus.ACCEPTED)
        .correlate(DeletionRequest)
        .scalar_subquery()
    )
    mine = sa.select(sa.func.min(RequestEvent.id)).where(
        RequestEvent.request_id == request.id, RequestEvent.status == RequestStatus.ACCEPTED
    )
    query = sa.select(DeletionRequest).where(
        repository.is_about(request.subject_refs),
        DeletionRequest.id != request.id,
        DeletionRequest.status.in_((RequestStatus.ACCEPTED, RequestStatus.RUNNING, RequestStatus.COMPLETED)),
        accepted > mine.scalar_subquery(),
    )
    return list(session.scalars(query.order_by(DeletionRequest.created_at, DeletionRequest.id)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Attached:
    """Content that a feature attaches to requests and that is erased with their details (extension socket `ATTACHED`).

    `keys` maps each request to the keys that seal its content; `drop` deletes its rows; `is_pending` returns the
    condition that the content still requires its request to be kept.
    """

    keys: Callable[[Session, Collection[str]], dict[str, list[str]]]
    drop: Callable[[Session, Collection[str]], None]
    is_pending: Callable[[type[DeletionRequest]], sa.ColumnElement[bool]] | None = None


def _attached() -> tuple[Attached, ...]:
    return sockets.plugs("app.features", "hooks", "ATTACHED")


def _sources_in_parts() -> tuple[str, ...]:
    """Return the sources whose requests with the same external id are parts of one subject request."""
    return sockets.plugs("app.features", "hooks", "SOURCES_IN_PARTS")


UNKNOWN_SUBJECT = "sub_unknown"
"""Placeholder subject of a request that has been reduced to its trace."""


def due_requests(
    session: Session, *, tenant_id: str, kept: str, before: datetime.datetime, limit: int
) -> list[DeletionRequest]:
    """Return up to `limit` requests at level `kept` that ended before `before` and have no pending content, with the
    other parts of their subject requests.

    All parts of a subject request, one per identity, change their level together, because a part left behind would be
    mistaken for a separate subject request.
    """
    part, parts = aliased(DeletionRequest), _part_of(DeletionRequest)
    waits = sa.or_(part.ended_at.is_(None), part.ended_at > before, _is_pending(part))
    query = sa.select(DeletionRequest).where(
        DeletionRequest.kept == kept,
        DeletionRequest.tenant_id == tenant_id,
        DeletionRequest.ended_at <= before,
        ~_is_pending(DeletionRequest),
        ~sa.exists().where(parts, _part_of(part), part.tenant_id == tenant_id, _reference(part) == _THEIRS, waits),
    )
    first = list(session.scalars(query.order_by(DeletionRequest.ended_at).limit(limit)))
    in_parts = [request for request in first if request.source in _sources_in_parts()]
    references = {request.external_ref for request in in_parts if request.external_ref is not None}
    others = sa.select(DeletionRequest).where(
        parts,
        DeletionRequest.tenant_id == tenant_id,
        DeletionRequest.kept == kept,
        _THEIRS.in_(references),
        DeletionRequest.id.not_in([request.id for request in first]),
    )
    return [*first, *(session.scalars(others) if references else ())]


def _is_pending(request: type[DeletionRequest]) -> sa.ColumnElement[bool]:
    """Return an SQL condition that is true if content attached to the request still requires it to be kept."""
    return sa.or_(sa.false(), *(attached.is_pending(request) for attached in _attached() if attached.is_pending))


def _part_of(request: type[DeletionRequest]) -> sa.ColumnElement[bool]:
    """Return the condition that the request may be one of several parts of a subject request."""
    return request.source.in_(_sources_in_parts())


def _reference(request: type[DeletionRequest]) -> sa.ColumnElement[str]:
    """Return the external reference as stored; a value compared with the column itself would be hashed."""
    return sa.type_coerce(request.external_ref, sa.String)


_THEIRS = _reference(DeletionRequest)


def attached_keys(session: Session, *, request_ids: Collection[str]) -> dict[str, list[str]]:
    """Map each request to the keys that seal the content attached to it."""
    keys: dict[str, list[str]] = {}
    for attached in _attached():
        for request_id, names in attached.keys(session, request_ids).items():
            keys.setdefault(request_id, []).extend(names)
    return keys


def retained_at(session: Session, *, request_ids: Collection[str], kept: str) -> list[str]:
    """Return the ids of the requests that are still at retention level `kept`."""
    query = sa.select(DeletionRequest.id).where(DeletionRequest.id.in_(request_ids), DeletionRequest.kept == kept)
    return list(session.scalars(query))


def erase_details(session: Session, *, request_ids: Collection[str], trace_only: bool) -> None:
    """Delete all texts about the given requests and, with `trace_only`, their subjects and suppressions."""
    erased: dict[str, Any] = {"particulars": None, "external_ref": None, "kept": "request"}
    if trace_only:
        erased |= {"kept": "trace", "subject_ref": UNKNOWN_SUBJECT, "alias_refs": None, "resolution": None}
        _end_suppressions(session, request_ids)
        session.execute(sa.delete(RequestAlias).where(RequestAlias.request_id.in_(request_ids)))
        following = sa.or_(DeletionRequest.refers_to.in_(request_ids), DeletionRequest.id.in_(request_ids))
        session.execute(
            sa.update(DeletionRequest).where(following).values(refers_to=None),
            execution_options={"synchronize_session": False},
        )
    for attached in _attached():
        attached.drop(session, request_ids)
    session.execute(
        sa.update(DeletionRequest).where(DeletionRequest.id.in_(request_ids)).values(**erased),
        execution_options={"synchronize_session": False},
    )


def _end_suppressions(session: Session, request_ids: Collection[str]) -> None:
    """Delete the given requests' suppressions, or transfer each to another retained request about the person."""
    for row in session.scalars(sa.select(Suppression).where(Suppression.request_id.in_(request_ids))).all():
        others = sa.select(DeletionRequest.id).where(
            repository.is_about([row.subject_ref]),
            DeletionRequest.id.not_in(request_ids),
            DeletionRequest.status.in_((RequestStatus.ACCEPTED, RequestStatus.RUNNING, RequestStatus.COMPLETED)),
        )
        successor = session.scalars(others.order_by(DeletionRequest.created_at).limit(1)).first()
        if successor is None:
            session.delete(row)
        else:
            row.request_id = successor
    session.flush()
