"""Request history. Only this module writes requests' events and audit entries. Features are notified of each change."""

import datetime
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy.orm import Session

from app.audit import service as audit
from app.db import bulk, now, tables
from app.deletion import status
from lethe import sockets
from lethe.contract.sets import EventKind, RequestStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Change to a request. `status` is the status after the change, `facts` are the details that its kind does not
    imply, and `verb` is its name in the audit log, or None if it is not logged there."""

    request: tables.DeletionRequest
    kind: EventKind
    status: str
    actor: str
    at: datetime.datetime
    facts: Mapping[str, Any] | None = None
    verb: str | None = None


def record(session: Session, changes: Sequence[Change]) -> None:
    """Write and announce changes to stored requests, oldest first."""
    write(session, changes)
    announce(session, changes)


def write(session: Session, changes: Sequence[Change]) -> None:
    """Write changes, oldest first, to the events of their requests and to the audit log."""
    if not changes:
        return
    same = ("kind", "status", "facts", "actor", "at")
    events = [{"request_id": change.request.id} | {name: getattr(change, name) for name in same} for change in changes]
    bulk.store(session, tables.RequestEvent, events)
    audit.record_all(session, [_deed(change) for change in changes if change.verb], at=changes[-1].at)


OnChange = Callable[[Session, Sequence[Change]], None]
"""Hook called with changes to requests in the transaction that makes them (extension socket `ON_CHANGE`)."""


def announce(session: Session, changes: Sequence[Change]) -> None:
    """Pass recorded changes to the features' hooks."""
    for on_change in sockets.plugs("app.features", "hooks", "ON_CHANGE"):
        on_change(session, changes)


def move(
    session: Session,
    request: tables.DeletionRequest,
    wanted: RequestStatus,
    *,
    kind: EventKind | None = None,
    at: datetime.datetime | None = None,
    facts: Mapping[str, Any] | None = None,
    verb: str | None = None,
    recorded: bool = True,
) -> None:
    """Change the status of a request, or raise `TransitionForbidden`. With `recorded`, record the change as an event of
    `kind`, by default the kind of the new status."""
    status.check(request.status, wanted)
    request.status = wanted
    if recorded:
        note(session, request, kind or status.entered(wanted), at=at, facts=facts, verb=verb)


def note(
    session: Session,
    request: tables.DeletionRequest,
    kind: EventKind,
    *,
    at: datetime.datetime | None = None,
    facts: Mapping[str, Any] | None = None,
    verb: str | None = None,
) -> None:
    """Record an event of a request whose status has already been updated."""
    record(session, [changed(session, request, kind, at=at or now(session), facts=facts, verb=verb)])


def changed(
    session: Session,
    request: tables.DeletionRequest,
    kind: EventKind,
    *,
    at: datetime.datetime,
    facts: Mapping[str, Any] | None = None,
    verb: str | None = None,
) -> Change:
    """Return the change to `record` for a request whose status has already been updated."""
    actor = audit.actor_of(session)
    return Change(request=request, kind=kind, status=request.status, actor=actor, at=at, facts=facts, verb=verb)


def _deed(change: Change) -> audit.Deed:
    return audit.Deed(
        tenant_id=change.request.tenant_id,
        actor=change.actor,
        action=f"deletion_request.{change.verb}",
        object_id=change.request.id,
    )
