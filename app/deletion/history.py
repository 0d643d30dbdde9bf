"""The history of requests, written here alone: to their events, to the audit log, and to receivers who want to be
called."""

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy.orm import Session

from app.audit import service as audit
from app.audit.service import Deed
from app.db import bulk, now
from app.db.tables import DeletionRequest, RequestEvent
from app.deletion import callbacks, status
from app.webhooks.payload import Announcement
from lethe.contract.sets import EventKind, RequestStatus, WebhookEvent

_WEBHOOK_EVENTS = {
    EventKind.IN_REVIEW: WebhookEvent.IN_REVIEW,
    EventKind.ACCEPTED: WebhookEvent.ACCEPTED,
    EventKind.COMPLETED: WebhookEvent.COMPLETED,
    EventKind.NOTHING_HELD: WebhookEvent.COMPLETED,
    EventKind.REJECTED: WebhookEvent.REJECTED,
    EventKind.CANCELLED: WebhookEvent.CANCELLED,
    EventKind.EXTENDED: WebhookEvent.EXTENDED,
    EventKind.AT_RISK: WebhookEvent.AT_RISK,
    EventKind.OVERDUE: WebhookEvent.OVERDUE,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A change of a request. `status`: afterwards; `facts`: whatever its sentence says beyond its kind; `verb`: its
    name in the audit log, if it is there."""

    request: DeletionRequest
    kind: EventKind
    status: str
    actor: str
    at: datetime.datetime
    facts: Mapping[str, Any] | None = None
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
            "kind": change.kind,
            "status": change.status,
            "facts": change.facts,
            "detail": None,
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
    kind: EventKind | None = None,
    at: datetime.datetime | None = None,
    facts: Mapping[str, Any] | None = None,
    verb: str | None = None,
    told: bool = True,
) -> None:
    """Change the status of a request, and tell unless that was told before; as an event of its own `kind`, or of the
    status. Raises `TransitionForbidden`."""
    status.check(request.status, wanted)
    request.status = wanted
    if told:
        note(session, request, kind or status.entered(wanted), at=at, facts=facts, verb=verb)


def note(
    session: Session,
    request: DeletionRequest,
    kind: EventKind,
    *,
    at: datetime.datetime | None = None,
    facts: Mapping[str, Any] | None = None,
    verb: str | None = None,
) -> None:
    """Tell of something that happened to a request, whose status is by now what it is afterwards."""
    by, moment = audit.actor_of(session), at or now(session)
    change = Change(request=request, kind=kind, status=request.status, actor=by, at=moment, facts=facts, verb=verb)
    tell(session, [change])


def _announcement(change: Change) -> Announcement:
    event = _WEBHOOK_EVENTS.get(change.kind)
    return Announcement(request=change.request, event=event, status=change.status, at=change.at)


def _deed(change: Change) -> Deed:
    return Deed(
        tenant_id=change.request.tenant_id,
        actor=change.actor,
        action=f"deletion_request.{change.verb}",
        object_id=change.request.id,
    )
