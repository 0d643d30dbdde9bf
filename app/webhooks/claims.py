"""Deliveries on their way: taken for a while, and what became of them. A delivery is sent by one dispatcher at a
time."""

import datetime
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from random import Random

from sqlalchemy.orm import Session

from app.db import now
from app.webhooks import repository, schedule
from app.webhooks.sender import SendResult, Verdict
from lethe.contract.sets import DeliveryStatus

_HOPELESS = frozenset({"url_invalid"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedDelivery:
    """A delivery that is its dispatcher's until `lease`. `at`: when it was taken."""

    id: str
    tenant_id: str
    request_id: str
    event: str
    url: str
    host: str
    body: str
    source: str | None
    generation: int
    rotated_at: datetime.datetime | None
    at: datetime.datetime
    lease: datetime.datetime


def claim(
    session: Session,
    *,
    limit: int,
    lease_for: datetime.timedelta,
    under_way: Mapping[str, int],
    most_per_host: int,
) -> list[ClaimedDelivery]:
    """Take what is due, for others a while out of sight: of each request and receiver only what comes first, and for
    each host, to which so many are `under_way`, no more than `most_per_host` at once."""
    at = now(session)
    lease, counts = at + lease_for, dict(under_way)
    found = []
    due = repository.due(session, at=at, besides=busy(under_way, most_per_host), limit=limit)
    for delivery, source, generation, rotated_at, waits_for in due:
        if waits_for is not None:
            delivery.next_attempt_at = waits_for
        elif counts.get(delivery.host, 0) < most_per_host:
            counts[delivery.host] = counts.get(delivery.host, 0) + 1
            delivery.next_attempt_at = lease
            found.append(
                ClaimedDelivery(
                    id=delivery.id,
                    tenant_id=delivery.tenant_id,
                    request_id=delivery.request_id,
                    event=delivery.event,
                    url=delivery.letter.url,
                    host=delivery.host,
                    body=delivery.letter.body,
                    source=source,
                    generation=generation,
                    rotated_at=rotated_at,
                    at=at,
                    lease=lease,
                )
            )
    return found


def busy(under_way: Mapping[str, int], most_per_host: int) -> Collection[str]:
    """The hosts that get nothing more for now."""
    return [host for host, count in under_way.items() if count >= most_per_host]


def record(session: Session, claimed: ClaimedDelivery, outcome: SendResult, random: Random) -> str | None:
    """Note what came of an attempt, and say what that makes of the delivery: delivered, gone, failed (it is tried
    again) or dead; None if it was taken away meanwhile, and this attempt does not count."""
    delivery = repository.delivery(session, claimed.id)
    if delivery is None or delivery.status != DeliveryStatus.PENDING:
        return None
    if outcome.verdict is not Verdict.DELIVERED and delivery.next_attempt_at != claimed.lease:
        return None
    at = now(session)
    delivery.attempts += 1
    delivery.error = outcome.error_code
    became, again = _became(outcome), at
    if became is Verdict.FAILED:
        pause = schedule.next_attempt(delivery.attempts, random, retry_after=outcome.retry_after)
        became, again = (became, at + pause) if pause is not None else (DeliveryStatus.DEAD, at)
    if became is Verdict.FAILED:
        delivery.next_attempt_at = again
    else:
        delivery.status, delivery.ended_at = became, at
    session.flush()
    if became is Verdict.GONE:
        error = outcome.error_code or became
        repository.end_all(session, tenant_id=claimed.tenant_id, url=claimed.url, status=became, error=error, at=at)
    else:
        repository.put_off(session, request_id=claimed.request_id, url=claimed.url, since=claimed.lease, until=again)
    return became


def _became(outcome: SendResult) -> Verdict | DeliveryStatus:
    is_hopeless = outcome.verdict is Verdict.FAILED and outcome.error_code in _HOPELESS
    return DeliveryStatus.DEAD if is_hopeless else outcome.verdict
