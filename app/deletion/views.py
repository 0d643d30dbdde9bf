"""Views of a request, as its caller may see it.

Callers who may not learn whether anything is held about a person (`discreet`) see of every request what was known when
it was accepted: it is accepted until its report time (`completion.report_at`) and completed from then on, whatever has
been done; and nothing of rows and models.
"""

import datetime
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from app.audit import service as audit
from app.db.tables import DeletionRequest, RequestEvent
from app.deletion import deadlines
from app.deletion.deadlines import Clock
from app.deletion.status import OF_THE_CLOCK, OPEN
from lethe.contract.sets import EventKind, RequestStatus

_SHOWN_BY_TIME = frozenset({RequestStatus.ACCEPTED, RequestStatus.RUNNING, RequestStatus.COMPLETED})
_TOLD = frozenset({EventKind.RECEIVED, EventKind.IN_REVIEW, EventKind.REJECTED, EventKind.CANCELLED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """`facts`: what there is to say beyond the kind; `words`: of one that a release before recorded in words."""

    at: datetime.datetime
    kind: EventKind
    status: str
    actor: str
    facts: Mapping[str, Any] | None = None
    words: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """The view of a caller at a moment."""

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

    def clock(self, request: DeletionRequest, *, horizon: datetime.timedelta) -> Clock:
        return deadlines.clock(
            ended=not self.is_open(request),
            deadline=request.deadline,
            paused_at=request.paused_at,
            at=self.at,
            horizon=horizon,
        )

    def events(self, request: DeletionRequest, found: Iterable[RequestEvent]) -> list[Event]:
        """In their order."""
        every = [
            Event(
                at=one.at,
                kind=_kind(one),
                status=one.status,
                actor=one.actor,
                facts=one.facts,
                words=one.detail,
            )
            for one in found
        ]
        return self._discreet(request, every) if self.discreet else every

    def _discreet(self, request: DeletionRequest, every: Iterable[Event]) -> list[Event]:
        shown: list[Event] = []
        accepted = False
        for one in every:
            if request.reported_at is not None and one.at > request.reported_at:
                continue
            if one.kind in OF_THE_CLOCK:
                status = RequestStatus.ACCEPTED if one.status in _SHOWN_BY_TIME else one.status
                shown.append(replace(one, status=status))
            elif one.kind in _TOLD:
                shown.append(one)
            elif one.kind is EventKind.ACCEPTED and not accepted:
                accepted = True
                shown.append(one)
        if request.reported_at is not None and self.status(request) == RequestStatus.COMPLETED:
            end, by = RequestStatus.COMPLETED, audit.SERVICE
            shown.append(Event(at=request.reported_at, kind=EventKind.COMPLETED, status=end, actor=by))
        return shown

    def _is_reported(self, request: DeletionRequest) -> bool:
        return request.reported_at is not None and request.reported_at <= self.at


def _kind(event: RequestEvent) -> EventKind:
    """A release that knew no kinds added no words to the change of a status."""
    is_of_status = event.kind == EventKind.NOTED and event.detail is None
    return EventKind(event.status if is_of_status else event.kind)
