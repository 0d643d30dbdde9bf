"""Dispatcher of a gateway: a thread that claims due deliveries, has a pool send them, and records the results.

Each delivery is leased to one dispatcher at a time. No transaction is open during a send. If the process dies
meanwhile, its lease expires and any dispatcher sends the delivery again, under the same id.
"""

import datetime
import ssl
from collections import Counter, deque
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from random import Random, SystemRandom

import httpx
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

from app import telemetry
from app.config import Settings
from app.db import Database, now
from app.features.webhooks import repository, secret, sender, service
from app.features.webhooks.sender import DeliveryVerdict, SendResult
from app.keys import Keys
from app.periodic import Periodic
from lethe.contract.problems import SealedTextDamaged
from lethe.contract.sets import DeliveryStatus
from lethe.features.webhooks import signatures as signature

_PAUSES = tuple(
    datetime.timedelta(seconds=seconds)
    for seconds in (5, 300, 1800, 2 * 3600, 5 * 3600, 10 * 3600, 14 * 3600, 20 * 3600, 24 * 3600)
)
"""Example schedule of Standard Webhooks: ten attempts in about three days."""

MAX_PAUSE = 2 * _PAUSES[-1]


def next_attempt(
    attempts: int, random: Random, *, retry_after: datetime.timedelta | None = None
) -> datetime.timedelta | None:
    """Return the pause after `attempts` failed attempts; None if there is no further attempt.

    The pause is uniform between zero and twice the scheduled pause (full jitter), so that simultaneous failures spread
    and the schedule holds on average. It is at least the receiver's `retry_after`, up to `MAX_PAUSE`.
    """
    if attempts < 1:
        raise ValueError(f"Expected attempts={attempts} >= 1")
    if attempts > len(_PAUSES):
        return None
    pause = random.uniform(0, 2) * _PAUSES[attempts - 1]
    return pause if retry_after is None else min(max(pause, retry_after), MAX_PAUSE)


_HOPELESS = frozenset({"url_invalid"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedDelivery:
    """Delivery leased to a dispatcher from `at` until `lease`."""

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
    max_per_host: int,
) -> list[ClaimedDelivery]:
    """Claim due deliveries, hidden from other dispatchers during the lease. Only the first of each request and receiver
    is claimed, and no more than `max_per_host` per host, including those `under_way`."""
    at = now(session)
    lease, counts = at + lease_for, dict(under_way)
    claimed_deliveries = []
    rows = repository.due(session, at=at, besides=busy(under_way, max_per_host), limit=limit)
    for delivery, source, generation, rotated_at, waits_for in rows:
        if delivery.letter.is_damaged:
            delivery.status, delivery.error, delivery.ended_at = DeliveryStatus.DEAD, SealedTextDamaged.code, at
        elif waits_for is not None:
            delivery.next_attempt_at = waits_for
        elif counts.get(delivery.host, 0) < max_per_host:
            counts[delivery.host] = counts.get(delivery.host, 0) + 1
            delivery.next_attempt_at = lease
            claimed_deliveries.append(
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
    return claimed_deliveries


def busy(under_way: Mapping[str, int], max_per_host: int) -> Collection[str]:
    """Return the hosts that have reached their maximum of concurrent calls."""
    return [host for host, count in under_way.items() if count >= max_per_host]


def record(session: Session, delivery: ClaimedDelivery, outcome: SendResult, random: Random) -> str | None:
    """Record the result of an attempt and return it: delivered, gone, failed (to be retried) or dead. Returns None if
    the delivery ended or its lease was lost meanwhile; the attempt then does not count."""
    row = repository.delivery(session, delivery.id)
    if row is None or row.status != DeliveryStatus.PENDING:
        return None
    if outcome.verdict is not DeliveryVerdict.DELIVERED and row.next_attempt_at != delivery.lease:
        return None
    at = now(session)
    row.attempts += 1
    row.error = outcome.error_code
    result, retry_at = _result(outcome), at
    if result is DeliveryVerdict.FAILED:
        pause = next_attempt(row.attempts, random, retry_after=outcome.retry_after)
        result, retry_at = (result, at + pause) if pause is not None else (DeliveryStatus.DEAD, at)
    if result is DeliveryVerdict.FAILED:
        row.next_attempt_at = retry_at
    else:
        row.status, row.ended_at = result, at
    session.flush()
    if result is DeliveryVerdict.GONE:
        error = outcome.error_code or result
        repository.end_all(session, tenant_id=delivery.tenant_id, url=delivery.url, status=result, error=error, at=at)
    else:
        repository.put_off(
            session, request_id=delivery.request_id, url=delivery.url, since=delivery.lease, until=retry_at
        )
    return result


def _result(outcome: SendResult) -> DeliveryVerdict | DeliveryStatus:
    is_hopeless = outcome.verdict is DeliveryVerdict.FAILED and outcome.error_code in _HOPELESS
    return DeliveryStatus.DEAD if is_hopeless else outcome.verdict


Dialect = Callable[[bytes], Mapping[str, str]]
"""Function from a callback's body to the headers that a protocol requires."""

_AT_ONCE = 16
_MAX_CALLS_PER_HOST = 4
"""Maximum number of concurrent calls to a host, so that a slow receiver does not delay the others."""
_POLL_SECONDS = 1.0
_LEASE_MARGIN = datetime.timedelta(seconds=20)
"""Maximum time that an attempt takes in addition to sending."""


class Dispatcher:
    """Sends due deliveries until `close`. `dialects` are by source of the request, for callbacks of external
    protocols."""

    def __init__(self, database: Database, keys: Keys, settings: Settings, *, dialects: Mapping[str, Dialect]) -> None:
        self._database = database
        self._keys = keys
        self._allowed = settings.webhook_networks()
        self._timeout_seconds = settings.webhook_timeout_seconds
        self._dialects = dialects
        self._random = SystemRandom()
        self._away = False
        self._under_way: Counter[str] = Counter()
        self._finished: deque[tuple[ClaimedDelivery, SendResult]] = deque()
        self._senders = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="webhooks")
        self._working = Periodic("dispatcher", self._work, seconds=_POLL_SECONDS).start()
        service.listen(self._working.wake)

    def close(self) -> None:
        """Stop claiming, wait for attempts in progress, and record their results."""
        service.stop_listening(self._working.wake)
        self._working.stop()
        self._senders.shutdown()
        self._work()

    def _work(self) -> None:
        try:
            while self._round():
                pass
            self._away = False
        except OperationalError as error:
            if not self._away:
                telemetry.logger().warning("webhooks.database_unavailable", error=type(error.orig).__name__)
            self._away = True
        # The next round may succeed.
        except Exception as error:  # noqa: BLE001
            places = telemetry.places(error.__traceback__)
            telemetry.logger().error("webhooks.round_failed", error=type(error).__name__, places=places)

    def _round(self) -> bool:
        """Record finished attempts and claim due deliveries. Return True if there may be more."""
        finished = [*self._finished]
        free = 0 if self._working.is_stopping else _AT_ONCE - self._under_way.total()
        if not finished and not (free and self._is_any_due()):
            return False
        with self._database.writing() as session:
            results = [record(session, delivery, outcome, self._random) for delivery, outcome in finished]
            deliveries = claim(
                session,
                limit=free,
                lease_for=datetime.timedelta(seconds=self._timeout_seconds) + _LEASE_MARGIN,
                under_way=self._under_way - Counter(delivery.host for delivery, _ in finished),
                max_per_host=_MAX_CALLS_PER_HOST,
            )
        for (delivery, outcome), result in zip(finished, results, strict=True):
            self._finished.popleft()
            self._under_way -= Counter([delivery.host])
            _log(delivery, outcome, result)
        for delivery in deliveries:
            self._under_way[delivery.host] += 1
            self._senders.submit(self._send, delivery)
        return bool(deliveries)

    def _is_any_due(self) -> bool:
        besides = busy(self._under_way, _MAX_CALLS_PER_HOST)
        with self._database.reading() as session:
            return repository.is_any_due(session, at=now(session), besides=besides)

    def _send(self, delivery: ClaimedDelivery) -> None:
        try:
            body = delivery.body.encode()
            outcome = sender.send(
                delivery.url,
                body,
                self._headers(delivery, body),
                allowed=self._allowed,
                timeout_seconds=self._timeout_seconds,
                tls=self._tls,
            )
        # A fault of this service; a later attempt may succeed.
        except Exception as error:  # noqa: BLE001
            places = telemetry.places(error.__traceback__)
            telemetry.logger().error(
                "webhooks.sending_failed", delivery=delivery.id, error=type(error).__name__, places=places
            )
            outcome = SendResult(verdict=DeliveryVerdict.FAILED, error_code="internal_error")
        self._finished.append((delivery, outcome))
        self._working.wake()

    def _headers(self, delivery: ClaimedDelivery, body: bytes) -> Mapping[str, str]:
        dialect = self._dialects.get(delivery.source or "")
        if dialect is not None:
            return dialect(body)
        secrets = secret.signing(
            self._keys,
            tenant_id=delivery.tenant_id,
            generation=delivery.generation,
            rotated_at=delivery.rotated_at,
            at=delivery.at,
        )
        return signature.sign(body, message_id=delivery.id, sent_at=delivery.at, secrets=secrets)

    @cached_property
    def _tls(self) -> ssl.SSLContext:
        return httpx.create_ssl_context()


def _log(delivery: ClaimedDelivery, outcome: SendResult, result: str | None) -> None:
    """Log the result of an attempt by ids and closed words only: a URL may hold a secret, and hosts do not belong in a
    log."""
    if result is None:
        return
    telemetry.delivery_attempted(result)
    log = telemetry.logger()
    fields = {"delivery": delivery.id, "event_type": delivery.event, "error": outcome.error_code}
    match result:
        case DeliveryStatus.DEAD:
            log.warning("webhooks.delivery_given_up", **fields)
        case DeliveryStatus.DELIVERED:
            log.debug("webhooks.delivered", **fields)
        case _:
            log.info("webhooks.delivery_failed", **fields)
