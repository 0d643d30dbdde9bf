"""Views of a request for different kinds of callers.

Callers who may not find out whether anything is held about a person (`discreet`) see only what is known at acceptance.
To them, each request appears accepted until its report time (`completion.report_at`) and completed from then on,
whatever was actually done. They see no rows and no models.
"""

import datetime
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from app.audit import service as audit
from app.db.tables import DeletionRequest, RequestEvent
from app.deletion import deadlines
from app.deletion.status import OF_THE_CLOCK, OPEN
from lethe.contract.sets import EventKind, RequestStatus

_SHOWN_BY_TIME = frozenset({RequestStatus.ACCEPTED, RequestStatus.RUNNING, RequestStatus.COMPLETED})
_SHOWN_AS_IS = frozenset({EventKind.RECEIVED, EventKind.IN_REVIEW, EventKind.REJECTED, EventKind.CANCELLED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Event of a request as a caller may see it. `facts` are the details that its kind does not imply."""

    at: datetime.datetime
    kind: EventKind
    status: str
    actor: str
    facts: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """A caller's view of a request at a point in time."""

    discreet: bool
    at: datetime.datetime

    def status(self, request: DeletionRequest) -> RequestStatus:
        if not self.discreet or request.status not in _SHOWN_BY_TIME:
            return RequestStatus(request.status)
        return RequestStatus.COMPLETED if self._is_reported(request) else RequestStatus.ACCEPTED

    def is_open(self, request: DeletionRequest) -> bool:
        return self.status(request) in OPEN

    def completed_at(self, request: DeletionRequest) -> datetime.datetime | None:
        if not self.discreet:
            return request.completed_at
        return request.reported_at if self.status(request) == RequestStatus.COMPLETED else None

    def held_until(self, request: DeletionRequest) -> datetime.datetime | None:
        """Return the end of the grace period. Discreet callers get None once it has passed, because a later time could
        show that the request has rows to erase."""
        return None if self.discreet and not deadlines.is_held(request, at=self.at) else request.held_until

    def clock(self, request: DeletionRequest, *, horizon: datetime.timedelta) -> deadlines.Clock:
        return deadlines.clock(
            ended=not self.is_open(request),
            deadline=request.deadline,
            paused_at=request.paused_at,
            at=self.at,
            horizon=horizon,
        )

    def events(self, request: DeletionRequest, stored_events: Iterable[RequestEvent]) -> list[Event]:
        """Return the events that the caller may see, in the order of `stored_events`."""
        events = [
            Event(
                at=stored.at, kind=EventKind(stored.kind), status=stored.status, actor=stored.actor, facts=stored.facts
            )
            for stored in stored_events
        ]
        return self._discreet(request, events) if self.discreet else events

    def _discreet(self, request: DeletionRequest, events: Iterable[Event]) -> list[Event]:
        visible: list[Event] = []
        accepted = False
        for event in events:
            if request.reported_at is not None and event.at > request.reported_at:
                continue
            if event.kind in OF_THE_CLOCK:
                status = RequestStatus.ACCEPTED if event.status in _SHOWN_BY_TIME else event.status
                visible.append(replace(event, status=status))
            elif event.kind in _SHOWN_AS_IS:
                visible.append(event)
            elif event.kind is EventKind.ACCEPTED and not accepted:
                accepted = True
                visible.append(event)
        if request.reported_at is not None and self.status(request) == RequestStatus.COMPLETED:
            end, actor = RequestStatus.COMPLETED, audit.SERVICE
            visible.append(Event(at=request.reported_at, kind=EventKind.COMPLETED, status=end, actor=actor))
        return visible

    def _is_reported(self, request: DeletionRequest) -> bool:
        return request.reported_at is not None and request.reported_at <= self.at
