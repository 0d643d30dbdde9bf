"""The history of requests, written here alone: to their events, to the audit log, and to receivers who want to be
called."""

import datetime
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy.orm import Session

from app.audit import service as audit
from app.audit.service import Deed
from app.db import Actor, bulk, now
from app.db.tables import DeletionRequest, RequestEvent
from app.deletion import callbacks, status
from app.deletion.status import AT_RISK, EXTENDED, OVERDUE
from app.webhooks.payload import Announcement
from lethe.contract.sets import RequestStatus, WebhookEvent

_EVENTS = {
    RequestStatus.IN_REVIEW: WebhookEvent.IN_REVIEW,
    RequestStatus.ACCEPTED: WebhookEvent.ACCEPTED,
    RequestStatus.COMPLETED: WebhookEvent.COMPLETED,
    RequestStatus.REJECTED: WebhookEvent.REJECTED,
    RequestStatus.CANCELLED: WebhookEvent.CANCELLED,
}
_EVENTS_BY_DETAIL = {EXTENDED: WebhookEvent.EXTENDED, AT_RISK: WebhookEvent.AT_RISK, OVERDUE: WebhookEvent.OVERDUE}


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A change of a request. `status`: afterwards; `verb`: what the audit log calls it, if it records it."""

    request: DeletionRequest
    status: str
    actor: str
    at: datetime.datetime
    detail: str | None = None
    verb: str | None = None


def tell(session: Session, changes: Sequence[Change]) -> None:
    """Record changes, oldest first, of requests that are stored, and announce them."""
    record(session, changes)
    announce(session, changes)


def record(session: Session, changes: Sequence[Change]) -> None:
    """Write changes, oldest first, into the events of their requests and into the audit log."""
    if not changes:
        return
    events = [
        {
            "request_id": change.request.id,
            "status": change.status,
            "detail": change.detail,
            "actor": change.actor,
            "at": change.at,
        }
        for change in changes
    ]
    bulk.store(session, RequestEvent, events)
    audit.record_all(session, [_deed(change) for change in changes if change.verb], at=changes[-1].at)


def announce(session: Session, changes: Sequence[Change]) -> None:
    """Tell receivers who want to be called of changes that are recorded."""
    callbacks.announce(
        session, [_announcement(change) for change in changes if change.request.particulars.callback_urls]
    )


def move(
    session: Session,
    request: DeletionRequest,
    wanted: RequestStatus,
    *,
    at: datetime.datetime | None = None,
    detail: str | None = None,
    verb: str | None = None,
    told: bool = True,
) -> None:
    """Change the status of a request, and tell unless that was told before. Raises `TransitionForbidden`."""
    status.check(request.status, wanted)
    request.status = wanted
    if told:
        note(session, request, at=at, detail=detail, verb=verb)


def note(
    session: Session,
    request: DeletionRequest,
    *,
    at: datetime.datetime | None = None,
    detail: str | None = None,
    verb: str | None = None,
) -> None:
    """Tell of something that leaves the status as it is."""
    by, moment = actor_of(session), at or now(session)
    tell(session, [Change(request=request, status=request.status, actor=by, at=moment, detail=detail, verb=verb)])


def actor_of(session: Session) -> str:
    """The actor of a change: the caller, or the service itself."""
    by: Actor | None = session.info.get("actor")
    return by.name if by else audit.SERVICE


def _announcement(change: Change) -> Announcement:
    event = _EVENTS_BY_DETAIL.get(change.detail or "")
    if event is None and (change.detail is None or change.status == RequestStatus.COMPLETED):
        event = _EVENTS.get(RequestStatus(change.status))
    return Announcement(request=change.request, event=event, status=change.status, at=change.at)


def _deed(change: Change) -> Deed:
    return Deed(
        tenant_id=change.request.tenant_id,
        actor=change.actor,
        action=f"deletion_request.{change.verb}",
        object_id=change.request.id,
    )
