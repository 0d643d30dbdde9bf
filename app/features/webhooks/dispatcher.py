"""Dispatcher of a gateway: a thread that claims due deliveries, has a thread pool send them, and records the results.

Each delivery is leased to one dispatcher at a time. No transaction is open during a send. If the process dies in the
meantime, its lease expires and any dispatcher sends the delivery again, under the same id.

A delivery is sent only as a POST to a checked address, within a time that the receiver cannot extend. httpcore follows
no redirects, keeps no cookies, ignores proxies from the environment and does not decompress responses. This module
makes the underlying connection.
"""

import contextlib
import datetime
import email.utils
import enum
import re
import socket
import ssl
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from random import Random, SystemRandom
from types import MappingProxyType

import httpcore
import httpx
import prometheus_client
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

from app import config, periodic, telemetry
from app.db import EVER, Database, now
from app.features.webhooks import receiver as receivers, repository, service
from app.features.webhooks.receiver import Address, Network, Receiver, ReceiverRefused, Resolve
from app.keys import Keys
from lethe.contract.problems import SealedTextDamaged
from lethe.features.webhooks import contract, signatures as signature

_MAX_ANSWER_BYTES = 64 * 1024
_MAX_ADDRESSES = 4
_MAX_RETRY_AFTER = datetime.timedelta(days=1)
_HEADERS = {"user-agent": "lethe-webhooks", "content-type": "application/json", "connection": "close"}


class DeliveryVerdict(enum.StrEnum):
    DELIVERED = "delivered"
    GONE = "gone"
    """The receiver responded with 410: it wants no further deliveries."""
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class SendResult:
    """Result of one attempt. `error_code` is stable: None if and only if the delivery succeeded, otherwise
    `url_invalid`, `refused_address`, `not_resolved`, `not_connected`, `tls_failed`, `timeout`, `connection_lost`,
    `answer_malformed`, `answer_too_large`, `redirected` or `http_<status>`."""

    verdict: DeliveryVerdict
    error_code: str | None = None
    status: int | None = None
    retry_after: datetime.timedelta | None = None
    """Delay requested by the receiver."""


def send(
    url: str,
    body: bytes,
    headers: Mapping[str, str],
    *,
    allowed: Sequence[Network],
    timeout_seconds: float,
    resolve: Resolve = receivers.look_up,
    tls: ssl.SSLContext | None = None,
) -> SendResult:
    """POST `body` once. Every failure outside this process is returned as a result, within `timeout_seconds`.

    `allowed` networks may be called even if they are not public, and without TLS. The result depends only on the
    status; the rest of the response is read, up to 64 KiB and within the time limit, and discarded. `tls` verifies
    certificates; the default context trusts certifi's or SSL_CERT_FILE's authorities and reads them at each call, so
    frequent callers should pass their own context.
    """
    # Outside the try block, because a missing file here is not a failure of the receiver.
    tls = tls or httpx.create_ssl_context()
    deadline = _Deadline(timeout_seconds)
    try:
        receiver = receivers.parse(url, allowed)
        addresses = receivers.addresses(receiver, allowed, resolve=resolve, seconds=deadline.left())
        connections = _Connections(addresses, deadline)
        return _post(receiver, body, headers, connections, tls)
    except (ReceiverRefused, _Broken) as error:
        return _failed(error.code)
    except TimeoutError:
        return _failed("timeout")
    except (OSError, httpcore.NetworkError):
        return _failed("connection_lost")
    except httpcore.ProtocolError:
        return _failed("answer_malformed")


def _post(
    receiver: Receiver, body: bytes, headers: Mapping[str, str], connections: "_Connections", tls: ssl.SSLContext
) -> SendResult:
    scheme = b"https" if receiver.encrypted else b"http"
    url = httpcore.URL(scheme=scheme, host=receiver.host.encode(), port=receiver.port, target=receiver.target)
    sent = [(name.encode(), value.encode()) for name, value in ({**headers, **_HEADERS}).items()]
    with (
        httpcore.ConnectionPool(ssl_context=tls, network_backend=connections) as pool,
        pool.stream("POST", url, headers=[(b"host", receiver.authority), *sent], content=body) as answer,
    ):
        outcome = _outcome(answer.status, answer.headers)
        with contextlib.suppress(OSError, httpcore.ProtocolError, _Broken):
            for _ in answer.iter_stream():
                pass
        return outcome


def _outcome(status: int, headers: Iterable[tuple[bytes, bytes]]) -> SendResult:
    if 200 <= status < 300:
        return SendResult(verdict=DeliveryVerdict.DELIVERED, status=status)
    if status == 410:
        return SendResult(verdict=DeliveryVerdict.GONE, error_code="http_410", status=status)
    return SendResult(
        verdict=DeliveryVerdict.FAILED,
        error_code="redirected" if 300 <= status < 400 else f"http_{status}",
        status=status,
        retry_after=_retry_after(headers),
    )


def _retry_after(headers: Iterable[tuple[bytes, bytes]]) -> datetime.timedelta | None:
    """Return the pause requested in `Retry-After` (RFC 9110: seconds or a date), up to a day; None if malformed."""
    text = next((value.decode("latin-1") for name, value in headers if name.lower() == b"retry-after"), "")
    try:
        if re.fullmatch("[0-9]+", text):
            seconds = float(text)
        elif date := email.utils.parsedate_tz(text):
            seconds = email.utils.mktime_tz(date) - time.time()
        else:
            return None
    except (ValueError, OverflowError):
        return None
    return datetime.timedelta(seconds=min(max(seconds, 0.0), _MAX_RETRY_AFTER.total_seconds()))


def _failed(code: str) -> SendResult:
    return SendResult(verdict=DeliveryVerdict.FAILED, error_code=code)


class _Broken(Exception):
    """Failure of a delivery attempt; `code` names the stage that failed."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


class _Deadline:
    """Time limit for a whole attempt; a limit per read would restart with every byte."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    def left(self) -> float:
        """Return the remaining seconds. Raises `TimeoutError` after the deadline."""
        seconds = self._end - time.monotonic()
        if seconds <= 0:
            raise TimeoutError
        return seconds


class _Connections(httpcore.NetworkBackend):
    """Backend that connects to the checked addresses only, regardless of the name that httpcore requests."""

    def __init__(self, addresses: Sequence[Address], deadline: _Deadline) -> None:
        self._addresses = addresses[:_MAX_ADDRESSES]
        self._deadline = deadline

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: object = None,
    ) -> httpcore.NetworkStream:
        for untried, address in zip(range(len(self._addresses), 0, -1), self._addresses, strict=True):
            share = self._deadline.left() / untried
            with contextlib.suppress(OSError):
                return _Stream(socket.create_connection((str(address), port), timeout=share), self._deadline)
        self._deadline.left()
        raise _Broken("not_connected")


class _Stream(httpcore.NetworkStream):
    """Connection that is closed at the deadline or after 64 KiB of the response."""

    def __init__(self, connection: socket.socket, deadline: _Deadline) -> None:
        self._connection = connection
        self._deadline = deadline
        self._received = 0

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        if self._received >= _MAX_ANSWER_BYTES:
            raise _Broken("answer_too_large")
        self._connection.settimeout(self._deadline.left())
        data = self._connection.recv(min(max_bytes, _MAX_ANSWER_BYTES - self._received))
        self._received += len(data)
        return data

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        while buffer:
            self._connection.settimeout(self._deadline.left())
            try:
                buffer = buffer[self._connection.send(buffer) :]
            # httpcore continues to read, because a receiver may respond and close before it has read the request.
            except OSError as error:
                raise httpcore.WriteError from error

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        self._connection.settimeout(self._deadline.left())
        try:
            self._connection = ssl_context.wrap_socket(self._connection, server_hostname=server_hostname)
        except TimeoutError:
            self.close()
            raise
        except OSError:
            self.close()
            raise _Broken("tls_failed") from None
        return self

    def close(self) -> None:
        self._connection.close()


_PAUSES = tuple(
    datetime.timedelta(seconds=seconds)
    for seconds in (5, 300, 1800, 2 * 3600, 5 * 3600, 10 * 3600, 14 * 3600, 20 * 3600, 24 * 3600)
)
"""Standard Webhooks' example schedule: ten attempts in about three days."""

MAX_PAUSE = 2 * _PAUSES[-1]

_attempts = prometheus_client.Counter(
    "lethe_webhook_deliveries", "Attempts to call back, by what came of them", ["outcome"], registry=telemetry.registry
)


def next_attempt(
    attempts: int, random: Random, *, retry_after: datetime.timedelta | None = None
) -> datetime.timedelta | None:
    """Return the pause after `attempts` failed attempts; None if no attempts remain.

    The pause is uniform between zero and twice the scheduled pause (full jitter), so that simultaneous failures spread
    out and the schedule holds on average. It is at least the receiver's `retry_after`, up to `MAX_PAUSE`.
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
    of_tenants: Mapping[str, int] = MappingProxyType({}),
    latest: Mapping[str, int] = MappingProxyType({}),
) -> list[ClaimedDelivery]:
    """Claim due deliveries, which are hidden from other dispatchers during the lease. Only the first delivery per
    request and receiver is claimed, and at most `max_per_host` deliveries per host, counting those `under_way`.

    Tenants share fairly: the next delivery is from the tenant with the fewest in progress (`of_tenants`) and, in a tie,
    from the one whose `latest` claim is oldest. A tenant gets a slot only while more slots are free than it occupies,
    so that it takes at most half of what the other tenants leave.
    """
    at = now(session)
    lease, counts, shares = at + lease_for, Counter(under_way), Counter(of_tenants)
    waiting: dict[str, deque[repository.Due]] = {}
    claimed_deliveries: list[ClaimedDelivery] = []
    besides = busy(under_way, max_per_host)
    # A page may have one tenant's deliveries alone, so each page leaves out the tenants found so far.
    while rows := repository.due(
        session, at=at, besides=besides, besides_tenants={*busy(shares, limit), *waiting}, limit=limit
    ):
        for row in rows:
            waiting.setdefault(row[0].tenant_id, deque()).append(row)
    while waiting:
        tenant_id = min(waiting, key=lambda name: (shares[name], latest.get(name, 0)))
        if shares[tenant_id] >= limit - len(claimed_deliveries):
            break
        delivery, source, generation, rotated_at, waits_for = waiting[tenant_id].popleft()
        if not waiting[tenant_id]:
            del waiting[tenant_id]
        if delivery.letter.is_damaged:
            delivery.status, delivery.error, delivery.ended_at = (
                contract.DeliveryStatus.DEAD,
                SealedTextDamaged.code,
                at,
            )
        elif waits_for is not None:
            delivery.next_attempt_at = waits_for
        elif counts[delivery.host] < max_per_host:
            counts[delivery.host] += 1
            shares[tenant_id] += 1
            delivery.next_attempt_at = lease
            claimed_deliveries.append(
                ClaimedDelivery(
                    **{name: getattr(delivery, name) for name in ("id", "tenant_id", "request_id", "event", "host")},
                    url=delivery.letter.url,
                    body=delivery.letter.body,
                    source=source,
                    generation=generation,
                    rotated_at=rotated_at,
                    at=at,
                    lease=lease,
                )
            )
    return claimed_deliveries


def busy(under_way: Mapping[str, int], maximum: int) -> Collection[str]:
    """Return the hosts or tenants that have reached their maximum of concurrent calls."""
    return [name for name, count in under_way.items() if count >= maximum]


def record(session: Session, delivery: ClaimedDelivery, outcome: SendResult, random: Random) -> str | None:
    """Record the result of an attempt and return it: delivered, gone, failed (to be retried) or dead. Return None, and
    do not count the attempt, if the delivery has ended or its lease was lost."""
    row = repository.delivery(session, delivery.id)
    if row is None or row.status != contract.DeliveryStatus.PENDING:
        return None
    # A success counts even after the lease, because another attempt would deliver the message again.
    if outcome.verdict is not DeliveryVerdict.DELIVERED and row.next_attempt_at != delivery.lease:
        return None
    at = now(session)
    row.attempts += 1
    row.error = outcome.error_code
    result, retry_at = _result(outcome), at
    if result is DeliveryVerdict.FAILED:
        pause = next_attempt(row.attempts, random, retry_after=outcome.retry_after)
        result, retry_at = (result, at + pause) if pause is not None else (contract.DeliveryStatus.DEAD, at)
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


def _result(outcome: SendResult) -> DeliveryVerdict | contract.DeliveryStatus:
    is_hopeless = outcome.verdict is DeliveryVerdict.FAILED and outcome.error_code in _HOPELESS
    return contract.DeliveryStatus.DEAD if is_hopeless else outcome.verdict


Dialect = Callable[[bytes], Mapping[str, str]]
"""Function that maps a callback's body to the headers that a protocol requires."""

_AT_ONCE = 32
"""Maximum number of concurrent calls, of which a single tenant gets at most half."""
_MAX_CALLS_PER_HOST = 4
"""Maximum number of concurrent calls to one host, so that a slow receiver does not delay the others."""
_POLL_SECONDS = 1.0
_LEASE_MARGIN = datetime.timedelta(seconds=20)
"""Maximum time that an attempt takes in addition to the sending itself."""


class Dispatcher:
    """Thread that sends due deliveries until `close`. `dialects` maps the source of a request to its protocol's
    dialect."""

    def __init__(
        self, database: Database, keys: Keys, settings: config.Settings, *, dialects: Mapping[str, Dialect]
    ) -> None:
        self._database = database
        self._keys = keys
        self._allowed = settings.webhook_networks()
        self._timeout_seconds = settings.webhook_timeout_seconds
        self._dialects = dialects
        self._random = SystemRandom()
        self._away = False
        self._under_way: dict[str, ClaimedDelivery] = {}
        self._num_claimed = 0
        self._latest: dict[str, int] = {}
        self._finished: deque[tuple[ClaimedDelivery, SendResult]] = deque()
        self._senders = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="webhooks")
        self._working = periodic.Periodic("dispatcher", self._work, seconds=_POLL_SECONDS).start()
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
        """Record finished attempts and claim due deliveries. Return True if more may be due."""
        finished = [*self._finished]
        ended = {delivery.id for delivery, _ in finished}
        under_way = [delivery for delivery in self._under_way.values() if delivery.id not in ended]
        hosts, tenants = Counter(d.host for d in under_way), Counter(d.tenant_id for d in under_way)
        free = 0 if self._working.is_stopping else _AT_ONCE - len(under_way)
        if not finished and not (free and self._is_any_due(hosts, tenants, free)):
            return False
        with self._database.writing() as session:
            results = [record(session, delivery, outcome, self._random) for delivery, outcome in finished]
            deliveries = claim(
                session,
                limit=free,
                lease_for=datetime.timedelta(seconds=self._timeout_seconds) + _LEASE_MARGIN,
                under_way=hosts,
                max_per_host=_MAX_CALLS_PER_HOST,
                of_tenants=tenants,
                latest=self._latest,
            )
            # A round may do no more than postpone deliveries that wait for an earlier one.
            has_moved = bool(session.dirty)
        for (delivery, outcome), result in zip(finished, results, strict=True):
            self._finished.popleft()
            del self._under_way[delivery.id]
            _log(delivery, outcome, result)
        for delivery in deliveries:
            self._under_way[delivery.id] = delivery
            self._num_claimed += 1
            self._latest[delivery.tenant_id] = self._num_claimed
            self._senders.submit(self._send, delivery)
        return has_moved

    def _is_any_due(self, hosts: Mapping[str, int], tenants: Mapping[str, int], free: int) -> bool:
        if self._database.is_ruled_out(repository.is_any_due, at=EVER, besides=()):
            return False
        besides, besides_tenants = busy(hosts, _MAX_CALLS_PER_HOST), busy(tenants, free)
        with self._database.reading() as session:
            return repository.is_any_due(session, at=now(session), besides=besides, besides_tenants=besides_tenants)

    def _send(self, delivery: ClaimedDelivery) -> None:
        try:
            body = delivery.body.encode()
            outcome = send(
                delivery.url,
                body,
                self._headers(delivery, body),
                allowed=self._allowed,
                timeout_seconds=self._timeout_seconds,
                tls=self._tls,
            )
        # This is a fault of the service; a later attempt may succeed.
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
        if dialect is not None and delivery.event == service.protocol_event(delivery.source):
            return dialect(body)
        secrets = service.signing(
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
    """Log the result of an attempt, using only ids and fixed codes: a URL may contain a secret, and hosts do not belong
    in a log."""
    if result is None:
        return
    _attempts.labels(result).inc()
    log = telemetry.logger()
    fields = {"delivery": delivery.id, "event_type": delivery.event, "error": outcome.error_code}
    match result:
        case contract.DeliveryStatus.DEAD:
            log.warning("webhooks.delivery_given_up", **fields)
        case contract.DeliveryStatus.DELIVERED:
            log.debug("webhooks.delivered", **fields)
        case _:
            log.info("webhooks.delivery_failed", **fields)
