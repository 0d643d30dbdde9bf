"""All SQL that searches deletion requests: for a list, a count, or a decision about many."""

import datetime
from dataclasses import dataclass
from typing import cast

import sqlalchemy as sa
from sqlalchemy.orm import InstrumentedAttribute, Session, aliased

from app.db import sealed
from app.db.paging import Page, cut, ordered, page
from app.db.people import is_about
from app.db.tables import DeletionRequest, Model, RequestModel
from app.deletion.repository import these
from app.deletion.status import OPEN
from app.deletion.views import View
from lethe.contract.choices import RequestOrder
from lethe.contract.deletion_requests import NOBODY, OpenClock
from lethe.contract.sets import ClockState, RequestStatus

_FEW = 1000
_EARLY = datetime.timedelta(hours=1)
"""Callers' clocks may be ahead, so that something comes in before it was sent; never by so much."""

_ASCENDING = frozenset({RequestOrder.OLDEST, RequestOrder.DEADLINE, RequestOrder.FIRST_COMPLETED})
_OPEN = these(OPEN)
_SHOWN_BY_TIME = these([RequestStatus.ACCEPTED, RequestStatus.RUNNING, RequestStatus.COMPLETED])
_SHOWN_AS_ACCEPTED = these([RequestStatus.ACCEPTED, RequestStatus.RUNNING])


@dataclass(frozen=True, slots=True, kw_only=True)
class Sought:
    """Filters of requests; of several, those that satisfy all. `received_from`, `received_before`: by their
    `submitted_at`; `due_from`, `due_before`: open ones by their deadline, whether or not their clock is paused;
    `completed_from`, `completed_before`: completed ones by when they were; `clock`: open ones whose clock says so, at
    risk being those that are due within `horizon`; `assignee`: those that are this person's, or `NOBODY`'s;
    `made_before`: those that came in earlier."""

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
        """True if no request that has ended is sought."""
        return self.due_from is not None or self.due_before is not None or self.clock is not None


def requests(
    session: Session,
    sought: Sought,
    *,
    view: View,
    order: RequestOrder = RequestOrder.NEWEST,
    limit: int,
    cursor: str | None,
) -> Page[DeletionRequest]:
    """Those that are as described, in the eyes of the reader."""
    filters = _filters(session, sought, view)
    match order:
        case RequestOrder.NEWEST | RequestOrder.OLDEST:
            at = DeletionRequest.created_at
        case RequestOrder.DEADLINE | RequestOrder.LATEST_DEADLINE:
            at = DeletionRequest.deadline
            filters += [] if sought.is_of_open else [is_open(view)]
        case RequestOrder.LAST_COMPLETED | RequestOrder.FIRST_COMPLETED:
            at = cast("InstrumentedAttribute[datetime.datetime]", completed_at(view))
            if sought.is_of_open or sought.status not in (None, RequestStatus.COMPLETED):
                return Page([], None)  # none is: all that were completed would be read to find that out
            filters.append(was_completed(view, since=None, before=None))
    if sought.model_id is not None and not filters and order is RequestOrder.NEWEST:
        return _requests_of_model(session, sought.model_id, limit=limit, cursor=cursor)
    if sought.model_id is not None:
        filters.append(_asks(session, sought.model_id))
    query = sa.select(DeletionRequest).where(*filters)
    return page(session, query, at, DeletionRequest.id, limit=limit, cursor=cursor, ascending=order in _ASCENDING)


def count(session: Session, sought: Sought, *, view: View, at_most: int) -> int:
    """Number of them, counted up to `at_most`."""
    filters = _filters(session, sought, view)
    if sought.model_id is not None:
        filters.append(_asks(session, sought.model_id))
    if sought.regulation is not None and sought.status in OPEN and not view.discreet:
        filters.append(DeletionRequest.status.in_(_OPEN))  # so that the index of open requests alone counts
    some = sa.select(DeletionRequest.id).where(*filters).limit(at_most).subquery()
    return session.scalars(sa.select(sa.func.count()).select_from(some)).one()


def _filters(session: Session, sought: Sought, view: View) -> list[sa.ColumnElement[bool]]:
    """All but the model."""
    filters = [
        column == value
        for column, value in (
            (DeletionRequest.source, sought.source),
            (DeletionRequest.regulation, sought.regulation),
        )
        if value is not None
    ]
    if sought.subject_ref is not None:
        filters.append(is_about([sought.subject_ref]))
    if sought.external_id is not None:
        filters.append(sealed.refers_to(session, DeletionRequest.external_ref, sought.external_id))
    if sought.status is not None:
        filters.append(_has_status(sought.status, view))
    if sought.refers_to is not None:
        same_person = DeletionRequest.subject_ref == _subject_of(sought.refers_to)
        filters += [DeletionRequest.refers_to == sought.refers_to, same_person]
    if sought.assignee is not None:
        mine = DeletionRequest.assignee
        filters.append(mine.is_(None) if sought.assignee == NOBODY else mine == sought.assignee)
    if sought.made_before is not None:
        filters.append(DeletionRequest.created_at < sought.made_before)
    if sought.received_from is not None:
        filters.append(DeletionRequest.submitted_at >= sought.received_from)
        filters.append(DeletionRequest.created_at >= sought.received_from - _EARLY)  # so that the list's index serves
    if sought.received_before is not None:
        filters.append(DeletionRequest.submitted_at < sought.received_before)
    if sought.due_from is not None:
        filters.append(DeletionRequest.deadline >= sought.due_from)
    if sought.due_before is not None:
        filters.append(DeletionRequest.deadline < sought.due_before)
    if sought.clock is not None:
        filters.append(_clock_says(sought, view))
    if sought.is_of_open:
        filters.append(is_open(view))
    if sought.completed_from is not None or sought.completed_before is not None:
        filters.append(was_completed(view, since=sought.completed_from, before=sought.completed_before))
    return filters


def is_open(view: View) -> sa.ColumnElement[bool]:
    """A condition: as it is shown (`View.is_open`)."""
    return _is_one_of(_OPEN, view)


def is_overdue(view: View) -> sa.ColumnElement[bool]:
    """A condition on an open request: as `deadlines.clock` has it."""
    return sa.and_(DeletionRequest.paused_at.is_(None), DeletionRequest.deadline <= view.at)


def completed_at(view: View) -> InstrumentedAttribute[datetime.datetime | None]:
    """The time of a completion, as it is shown (`View.completed_at`)."""
    return DeletionRequest.reported_at if view.discreet else DeletionRequest.completed_at


def was_completed(
    view: View, *, since: datetime.datetime | None, before: datetime.datetime | None
) -> sa.ColumnElement[bool]:
    """A condition: it is shown as completed in [since, before). Only what is completed has the time of it, so that an
    index on that time answers alone."""
    shown = completed_at(view)
    within = [shown >= since] if since is not None else []
    within += [shown < before] if before is not None else []
    if view.discreet:
        within.append(_has_status(RequestStatus.COMPLETED, view))
    return sa.and_(shown.is_not(None), *within)


def _clock_says(sought: Sought, view: View) -> sa.ColumnElement[bool]:
    """As `deadlines.clock` has it."""
    runs, due = DeletionRequest.paused_at.is_(None), DeletionRequest.deadline
    match sought.clock:
        case ClockState.OVERDUE:
            return is_overdue(view)
        case ClockState.AT_RISK:
            return sa.and_(runs, due > view.at, due <= view.at + sought.horizon)
        case _:
            return ~runs


def _has_status(status: str, view: View) -> sa.ColumnElement[bool]:
    """As it is shown (`View.status`)."""
    match status if view.discreet else None:
        case RequestStatus.RUNNING:
            return DeletionRequest.status.in_(())  # nothing is seen so
        case RequestStatus.ACCEPTED:
            return _is_one_of(_SHOWN_AS_ACCEPTED, view)
        case RequestStatus.COMPLETED:
            return sa.and_(DeletionRequest.status.in_(_SHOWN_BY_TIME), DeletionRequest.reported_at <= view.at)
        case _:
            return DeletionRequest.status == status


def _is_one_of(statuses: sa.BindParameter[list[str]], view: View) -> sa.ColumnElement[bool]:
    """These; for a reader who sees what is accepted end at its report time, that is not over, and all else that is."""
    if not view.discreet:
        return DeletionRequest.status.in_(statuses)
    is_over = DeletionRequest.reported_at <= view.at
    these = sa.select(DeletionRequest.id).where(
        DeletionRequest.status.in_(statuses), sa.or_(DeletionRequest.reported_at.is_(None), ~is_over)
    )
    young = sa.select(DeletionRequest.id).where(
        DeletionRequest.status == RequestStatus.COMPLETED, DeletionRequest.reported_at > view.at
    )
    return DeletionRequest.id.in_(sa.union_all(these, young))


def _subject_of(request_id: str) -> sa.ScalarSelect[str]:
    other = aliased(DeletionRequest)
    return sa.select(other.subject_ref).where(other.id == request_id).scalar_subquery()


def _requests_of_model(session: Session, model_id: str, *, limit: int, cursor: str | None) -> Page[DeletionRequest]:
    """Along the model's own list, in the order of the requests, which are its tenant's."""
    if session.scalars(sa.select(Model.id).where(Model.id == model_id)).first() is None:  # or it is another tenant's
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
    """A condition: a request asks something of the model: of a few all are looked up, among many the newest are soon
    found."""
    of_model = sa.select(RequestModel.request_id).where(RequestModel.model_id == model_id)
    some = list(session.scalars(of_model.limit(_FEW + 1)))
    if len(some) <= _FEW:
        return DeletionRequest.id.in_(some)
    return of_model.where(RequestModel.request_id == DeletionRequest.id).exists()
