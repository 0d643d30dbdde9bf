"""Deliveries: made in the transaction that changes a request, sent by a dispatcher, and sent again if somebody asks."""

import datetime
from collections.abc import Callable, Sequence

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.audit import service as audit
from app.db import now
from app.db.sealed import Payload
from app.db.tables import WebhookDelivery, new_id
from app.webhooks import payload, receiver, repository
from app.webhooks.payload import Announcement, Message
from lethe.contract.problems import DeliveryUnknown
from lethe.contract.sets import DeliveryStatus, WebhookEvent

_TOLD = "webhooks.told"
_MOMENT = datetime.timedelta(microseconds=1)

_ears: list[Callable[[], None]] = []
"""The dispatchers of this process, to be woken."""


def announce_all(session: Session, announcements: Sequence[Announcement]) -> None:
    """Tell the receivers of these requests, in our own words; of each request, what happened first comes first."""
    called = [told for told in announcements if told.request.particulars.callback_urls]
    withdrawn = [told.request.id for told in called if told.event in (WebhookEvent.REJECTED, WebhookEvent.CANCELLED)]
    if withdrawn:
        repository.drop_planned(session, request_ids=withdrawn)
    found = [one for told in called for one in payload.messages(told)]
    send_all(session, _once(session, found))


def _once(session: Session, messages: Sequence[Message]) -> list[Message]:
    """Without ends that were planned when their requests were accepted, now or before."""
    ends = {one.request.id for one in messages if one.event == WebhookEvent.COMPLETED and one.request.discreet}
    planned = repository.planned(session, request_ids=ends, event=WebhookEvent.COMPLETED) if ends else set()
    left: list[Message] = []
    for one in messages:
        if one.request.id in ends and one.event == WebhookEvent.COMPLETED:
            if one.request.id in planned:
                continue
            planned.add(one.request.id)
        left.append(one)
    return left


def send_all(session: Session, messages: Sequence[Message]) -> None:
    """Make a delivery for each receiver of each message; no statement is run where there is none."""
    rows: list[WebhookDelivery] = []
    latest: dict[str, datetime.datetime] = {}
    for one in messages:
        before = latest.get(one.request.id)
        at = one.at if before is None else max(one.at, before + _MOMENT)  # those of one moment keep their order
        latest[one.request.id] = at
        rows += [_pending(one, url, at) for url in dict.fromkeys(one.urls)]
    if rows:
        repository.add(session, rows)
        _will_tell(session)


def get(session: Session, delivery_id: str) -> WebhookDelivery:
    """Raises `DeliveryUnknown`."""
    found = repository.delivery(session, delivery_id)
    if found is None:
        raise DeliveryUnknown(f"There is no delivery {delivery_id!r}.")
    return found


def replay(session: Session, delivery: WebhookDelivery) -> None:
    """Send again, with the same id, what was delivered or given up; one that is still to be sent is left alone."""
    if delivery.status == DeliveryStatus.PENDING:
        return
    delivery.status, delivery.attempts, delivery.error, delivery.ended_at = DeliveryStatus.PENDING, 0, None, None
    delivery.next_attempt_at = now(session)
    audit.record(session, "webhook_delivery.replayed", delivery.id)
    _will_tell(session)


def replay_all(
    session: Session, *, status: str, request_id: str | None, ended_before: datetime.datetime | None, limit: int
) -> tuple[int, bool]:
    """Send again at most `limit` of the deliveries that ended so, the oldest first; return how many, and whether others
    are left."""
    found = repository.ended_so(
        session, status=status, request_id=request_id, ended_before=ended_before, limit=limit + 1
    )
    for delivery in found[:limit]:
        replay(session, delivery)
    return len(found[:limit]), len(found) > limit


def old(session: Session, *, keep: datetime.timedelta, limit: int) -> list[WebhookDelivery]:
    """Deliveries that ended so long ago that nobody sends them again (`limit` at most)."""
    return repository.ended(session, before=now(session) - keep, limit=limit)


def listen(ear: Callable[[], None]) -> None:
    """Call `ear` whenever this process has committed something to send; it must return at once."""
    _ears.append(ear)


def stop_listening(ear: Callable[[], None]) -> None:
    _ears.remove(ear)


def _pending(one: Message, url: str, at: datetime.datetime) -> WebhookDelivery:
    return WebhookDelivery(
        id=new_id("whd"),
        tenant_id=one.request.tenant_id,
        request_id=one.request.id,
        event=one.event,
        receiver_ref=url,
        host=receiver.host_of(url),
        letter=Payload(url=url, body=one.body),
        status=DeliveryStatus.PENDING,
        attempts=0,
        next_attempt_at=at,
        created_at=at,
    )


def _will_tell(session: Session) -> None:
    if session.info.get(_TOLD):
        return
    session.info[_TOLD] = True

    def tell(_session: Session) -> None:
        for ear in [*_ears]:
            ear()

    sa.event.listen(session, "after_commit", tell, once=True)
