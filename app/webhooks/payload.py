"""The payload that receivers get: which event, and where the request stands then. Nothing of it is about a person."""

import datetime
import json
from collections.abc import Sequence
from dataclasses import dataclass

from app.db.tables import DeletionRequest
from lethe.contract.sets import RequestStatus, WebhookEvent

API_VERSION = "1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Announcement:
    """Something that happened to a request, which has this status then. `event`: None for what is not an event."""

    request: DeletionRequest
    event: WebhookEvent | None
    status: str
    at: datetime.datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A message that the receivers of a request are to get, and from when on they may."""

    request: DeletionRequest
    urls: Sequence[str]
    event: str
    body: str
    at: datetime.datetime


def messages(told: Announcement) -> list[Message]:
    """In our own words; empty for what the receivers of this request are not told.

    A request by somebody who may not learn whether anything is held is told of as they would see it: with its
    acceptance, that it is completed, for when that is reported; and nothing of how long it waits or what was found.
    """
    request, event, at, status = told.request, told.event, told.at, told.status
    if event is None:
        return []
    if not request.discreet:
        return [_message(request, event, at=at, status=status)]
    reported_at = request.reported_at
    if event in (WebhookEvent.AT_RISK, WebhookEvent.OVERDUE):
        return []
    if event is WebhookEvent.COMPLETED:
        return [_message(request, event, at=reported_at or at, status=status)]
    if reported_at is not None and at >= reported_at:
        return []
    is_hidden = status in (RequestStatus.RUNNING, RequestStatus.COMPLETED)
    found = [_message(request, event, at=at, status=RequestStatus.ACCEPTED if is_hidden else status)]
    if event is WebhookEvent.ACCEPTED and reported_at is not None:
        found.append(_message(request, WebhookEvent.COMPLETED, at=reported_at, status=RequestStatus.COMPLETED))
    return found


def _message(request: DeletionRequest, event: WebhookEvent, *, at: datetime.datetime, status: str) -> Message:
    data = {
        "api_version": API_VERSION,
        "id": request.id,
        "status": status,
        "external_id": request.particulars.external_id,
        "due_at": _rfc3339(request.due_at),
        "deadline": _rfc3339(request.deadline),
        "completed_at": None,
        "refers_to": request.refers_to,
    }
    if event is WebhookEvent.COMPLETED:
        data["completed_at"] = _rfc3339(at if request.discreet else request.completed_at or at)
    if not request.discreet:
        data["outcome"] = request.outcome if event is WebhookEvent.COMPLETED else None
    body = json.dumps({"type": event, "timestamp": _rfc3339(at), "data": data}, separators=(",", ":"))
    return Message(request=request, urls=request.particulars.callback_urls, event=event, body=body, at=at)


def _rfc3339(time: datetime.datetime) -> str:
    return time.astimezone(datetime.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
