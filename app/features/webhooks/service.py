"""Deliveries: created in the transaction that changes a request, sent by a dispatcher, and resent on demand."""

import datetime
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.audit import service as audit
from app.config import Settings
from app.db import actor, now
from app.db.tables import DeletionRequest, Tenant, new_id
from app.features.webhooks import receiver, repository, tables
from app.keys import Keys
from lethe import sockets
from lethe.contract.sets import RequestStatus
from lethe.features.webhooks import signatures as signature
from lethe.features.webhooks.contract import DeliveryStatus, DeliveryUnknown, SecretNotPresent, WebhookEvent

API_VERSION = "1"
OVERLAP = datetime.timedelta(hours=24)
"""Time after a rotation during which messages are also signed with the previous secret."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Announcement:
    """Change to a request, with the resulting status. `event` is None if receivers are not notified of the change."""

    request: DeletionRequest
    event: WebhookEvent | None
    status: str
    at: datetime.datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookMessage:
    """Message to the receivers of a request; `at` is the time from which they may receive it."""

    request: DeletionRequest
    urls: Sequence[str]
    event: str
    body: str
    at: datetime.datetime


def compose(announcement: Announcement) -> list[WebhookMessage]:
    """Return the messages for an announcement in the standard format; empty if the receivers are not notified.

    A request from a caller who may not learn whether data is held is reported as that caller sees it: its completion
    message is scheduled at acceptance for the reporting time, and neither delays nor results are disclosed.
    """
    request, event, at, status = announcement.request, announcement.event, announcement.at, announcement.status
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
    planned = [_message(request, event, at=at, status=RequestStatus.ACCEPTED if is_hidden else status)]
    if event is WebhookEvent.ACCEPTED and reported_at is not None:
        planned.append(_message(request, WebhookEvent.COMPLETED, at=reported_at, status=RequestStatus.COMPLETED))
    return planned


def _message(request: DeletionRequest, event: WebhookEvent, *, at: datetime.datetime, status: str) -> WebhookMessage:
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
    return WebhookMessage(request=request, urls=request.particulars.callback_urls, event=event, body=body, at=at)


def _rfc3339(time: datetime.datetime) -> str:
    return time.astimezone(datetime.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


Words = Callable[[Session, Sequence[DeletionRequest], datetime.datetime, str], str]
"""Function that returns the message body for one receiver about the requests that a protocol treats as one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtocolCallbacks:
    """Dialect of a protocol (extension socket `DIALECTS`): bodies and signatures of callbacks for a source's requests.
    `headers` signs a body; `name` returns the id shared by all requests of a tenant that form one protocol request, and
    `parts` those requests in order of arrival. `is_discreet` is True if the receiver may not learn what is held."""

    source: str
    words: Words
    headers: Callable[[Settings, bytes], Mapping[str, str]]
    name: Callable[[DeletionRequest], str]
    parts: Callable[[Session, DeletionRequest], list[DeletionRequest]]
    is_discreet: Callable[[DeletionRequest], bool]


def protocol_event(source: str | None) -> str:
    """Return the name of a protocol's callback event. Deliveries of this event are signed by the protocol's dialect."""
    return f"{source}.status"


def protocols() -> dict[str, ProtocolCallbacks]:
    """Return the installed protocols, keyed by the source of their requests."""
    return {protocol.source: protocol for protocol in sockets.plugs("app.features", "hooks", "DIALECTS")}


def announce(session: Session, announcements: Sequence[Announcement]) -> None:
    """Send announcements to the receivers of their requests, in the transaction that changes the requests."""
    by_source = protocols()
    announce_all(session, [item for item in announcements if item.request.source not in by_source])
    # Changes of several parts of a request at one time are sent as one state.
    by_name_and_time = {
        (item.request.tenant_id, protocol.source, protocol.name(item.request), item.at): (item, protocol)
        for item in announcements
        if (protocol := by_source.get(item.request.source or ""))
    }
    for announcement, protocol in by_name_and_time.values():
        _send_state(session, announcement, protocol)


def _send_state(session: Session, announcement: Announcement, protocol: ProtocolCallbacks) -> None:
    """Send a protocol request's current state, and schedule a message with the state that will apply once all parts are
    reported. A state that equals the receiver's last message is not sent."""
    at, parts = announcement.at, protocol.parts(session, announcement.request)
    first = parts[0]
    reported = [part.reported_at for part in parts if protocol.is_discreet(part) and part.reported_at is not None]
    # Replace what was planned for the time of the report.
    if reported and min(reported) > at:
        repository.drop_planned(
            session, request_ids=[first.id], event=protocol_event(first.source), since=min(reported)
        )
    for moment in sorted({at, max([at, *reported])}):
        for url in dict.fromkeys(first.particulars.callback_urls):
            body = protocol.words(session, parts, moment, url)
            last = repository.last_notified(session, request_id=first.id, url=url, until=moment)
            if last is None or last.letter.is_damaged or last.letter.body != body:
                send_at = moment if last is None else max(moment, last.created_at + _MOMENT)
                event = protocol_event(first.source)
                message = WebhookMessage(request=first, urls=[url], event=event, body=body, at=send_at)
                send_all(session, [message])


_IS_WAKING = "webhooks.is_waking"
_MOMENT = datetime.timedelta(microseconds=1)

_listeners: list[Callable[[], None]] = []
"""Functions that wake the dispatchers of this process."""


def announce_all(session: Session, announcements: Sequence[Announcement]) -> None:
    """Send announcements to their requests' receivers in the standard format, keeping the order for each request."""
    called = [item for item in announcements if item.request.particulars.callback_urls]
    withdrawn = [item.request.id for item in called if item.event in (WebhookEvent.REJECTED, WebhookEvent.CANCELLED)]
    if withdrawn:
        repository.drop_planned(session, request_ids=withdrawn)
    messages = [message for item in called for message in compose(item)]
    send_all(session, _without_planned(session, messages))


def _without_planned(session: Session, messages: Sequence[WebhookMessage]) -> list[WebhookMessage]:
    """Return the messages, dropping a discreet request's completion message if one is planned or comes earlier."""
    ends = {item.request.id for item in messages if item.event == WebhookEvent.COMPLETED and item.request.discreet}
    planned = repository.planned(session, request_ids=ends, event=WebhookEvent.COMPLETED) if ends else set()
    remaining: list[WebhookMessage] = []
    for message in messages:
        if message.request.id in ends and message.event == WebhookEvent.COMPLETED:
            if message.request.id in planned:
                continue
            planned.add(message.request.id)
        remaining.append(message)
    return remaining


def send_all(session: Session, messages: Sequence[WebhookMessage]) -> None:
    """Create one delivery per receiver of each message. If there are no receivers, no SQL is executed."""
    rows: list[tables.WebhookDelivery] = []
    latest: dict[str, datetime.datetime] = {}
    for message in messages:
        before = latest.get(message.request.id)
        # Messages with the same time keep their order.
        at = message.at if before is None else max(message.at, before + _MOMENT)
        latest[message.request.id] = at
        rows += [_pending(message, url, at) for url in dict.fromkeys(message.urls)]
    if rows:
        repository.add(session, rows)
        _wake_after_commit(session)


def get(session: Session, delivery_id: str) -> tables.WebhookDelivery:
    """Return a delivery. Raises `DeliveryUnknown`."""
    return DeliveryUnknown.if_none(repository.delivery(session, delivery_id), delivery_id=delivery_id)


def replay(session: Session, delivery: tables.WebhookDelivery) -> None:
    """Send a delivered or abandoned delivery again under the same id. A pending delivery is left unchanged."""
    if delivery.status == DeliveryStatus.PENDING:
        return
    delivery.status, delivery.attempts, delivery.error, delivery.ended_at = DeliveryStatus.PENDING, 0, None, None
    delivery.next_attempt_at = now(session)
    audit.record(session, "webhook_delivery.replayed", delivery.id)
    _wake_after_commit(session)


def replay_all(
    session: Session, *, status: str, request_id: str | None, ended_before: datetime.datetime | None, limit: int
) -> tuple[int, bool]:
    """Replay at most `limit` deliveries that ended with `status`, oldest first.

    Return their number, and True if more remain.
    """
    deliveries = repository.ended_so(
        session, status=status, request_id=request_id, ended_before=ended_before, limit=limit + 1
    )
    for delivery in deliveries[:limit]:
        replay(session, delivery)
    return len(deliveries[:limit]), len(deliveries) > limit


def old(session: Session, *, keep: datetime.timedelta, limit: int) -> list[tables.WebhookDelivery]:
    """Return at most `limit` deliveries that ended more than `keep` ago."""
    return repository.ended(session, before=now(session) - keep, limit=limit)


def listen(listener: Callable[[], None]) -> None:
    """Call `listener` after each commit in this process that queues deliveries; `listener` must return immediately."""
    _listeners.append(listener)


def stop_listening(listener: Callable[[], None]) -> None:
    _listeners.remove(listener)


def _pending(message: WebhookMessage, url: str, at: datetime.datetime) -> tables.WebhookDelivery:
    return tables.WebhookDelivery(
        id=new_id("whd"),
        tenant_id=message.request.tenant_id,
        request_id=message.request.id,
        event=message.event,
        receiver_ref=url,
        host=receiver.host_of(url),
        letter=tables.Payload(url=url, body=message.body),
        status=DeliveryStatus.PENDING,
        attempts=0,
        next_attempt_at=at,
        created_at=at,
    )


def _wake_after_commit(session: Session) -> None:
    if session.info.get(_IS_WAKING):
        return
    session.info[_IS_WAKING] = True

    def wake(_session: Session) -> None:
        for listener in [*_listeners]:
            listener()

    sa.event.listen(session, "after_commit", wake, once=True)


def present(keys: Keys, tenant: Tenant) -> str:
    return _secret(keys, tenant.id, tenant.webhook_generation)


def signing(
    keys: Keys, *, tenant_id: str, generation: int, rotated_at: datetime.datetime | None, at: datetime.datetime
) -> list[str]:
    """Return the signing secrets at `at`: the current one and, within `OVERLAP` of a rotation, the previous one."""
    generations = [generation]
    if rotated_at is not None and at < rotated_at + OVERLAP:
        generations.append(generation - 1)
    return [_secret(keys, tenant_id, number) for number in generations]


def rotate(session: Session, *, generation: int) -> Tenant:
    """Rotate the tenant's webhook secret from `generation` to the next. Repeating the call is a no-op.

    Raises `SecretNotPresent` if the current secret has a different generation.
    """
    tenant = session.get_one(Tenant, actor(session).tenant_id)
    if tenant.webhook_generation == generation + 1:
        return tenant
    if tenant.webhook_generation != generation:
        raise SecretNotPresent(generation=tenant.webhook_generation)
    tenant.webhook_generation, tenant.webhook_rotated_at = generation + 1, now(session)
    audit.record(session, "webhook_secret.rotated", tenant.id, generation=tenant.webhook_generation)
    return tenant


def _secret(keys: Keys, tenant_id: str, generation: int) -> str:
    return signature.secret_from(keys.webhook_secret(tenant_id, generation))
