"""The dispatcher of a gateway: a thread that takes what is due, has it sent by others, and notes what came of it.

No transaction is open while anything is sent. A process that dies in between leaves a lease behind: when it is over,
any dispatcher sends the delivery again, under the same id.
"""

import datetime
import ssl
from collections import Counter, deque
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from random import SystemRandom

import httpx
from sqlalchemy.exc import OperationalError

from app import telemetry
from app.config import Settings
from app.db import Database, now
from app.keys import Keys
from app.periodic import Periodic
from app.webhooks import claims, repository, secret, sender, service
from app.webhooks.claims import ClaimedDelivery
from app.webhooks.sender import SendResult, Verdict
from lethe.contract.sets import DeliveryStatus
from lethe.proof import webhooks as signature

Dialect = Callable[[bytes], Mapping[str, str]]
"""The headers that a protocol wants on a callback with this body."""

_AT_ONCE = 16
_MOST_PER_HOST = 4
"""A receiver that takes its time keeps nobody else waiting."""
_POLL_SECONDS = 1.0
_LEASE_MARGIN = datetime.timedelta(seconds=20)
"""Time for what an attempt takes besides sending."""


class Dispatcher:
    """Sends what is due, from now until `close`.

    `dialects`: by the source of a request, for those whose callbacks are not ours to design.
    """

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
        """Take nothing more, note what came of what is under way, and end."""
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
        except Exception as error:  # noqa: BLE001  the next round may do better
            places = telemetry.places(error.__traceback__)
            telemetry.logger().error("webhooks.round_failed", error=type(error).__name__, places=places)

    def _round(self) -> bool:
        """Note what came of attempts, and take what is due; whether there may be more."""
        finished = [*self._finished]
        free = 0 if self._working.is_stopping else _AT_ONCE - self._under_way.total()
        if not finished and not (free and self._is_any_due()):
            return False
        with self._database.writing() as session:
            became = [claims.record(session, claimed, outcome, self._random) for claimed, outcome in finished]
            claimed = claims.claim(
                session,
                limit=free,
                lease_for=datetime.timedelta(seconds=self._timeout_seconds) + _LEASE_MARGIN,
                under_way=self._under_way - Counter(claimed.host for claimed, _ in finished),
                most_per_host=_MOST_PER_HOST,
            )
        for (one, outcome), what in zip(finished, became, strict=True):
            self._finished.popleft()
            self._under_way -= Counter([one.host])
            _tell(one, outcome, what)
        for one in claimed:
            self._under_way[one.host] += 1
            self._senders.submit(self._send, one)
        return bool(claimed)

    def _is_any_due(self) -> bool:
        besides = claims.busy(self._under_way, _MOST_PER_HOST)
        with self._database.reading() as session:
            return repository.is_any_due(session, at=now(session), besides=besides)

    def _send(self, claimed: ClaimedDelivery) -> None:
        try:
            body = claimed.body.encode()
            outcome = sender.send(
                claimed.url,
                body,
                self._headers(claimed, body),
                allowed=self._allowed,
                timeout_seconds=self._timeout_seconds,
                tls=self._tls,
            )
        except Exception as error:  # noqa: BLE001  a fault of ours: the receiver may still get it later
            places = telemetry.places(error.__traceback__)
            telemetry.logger().error(
                "webhooks.sending_failed", delivery=claimed.id, error=type(error).__name__, places=places
            )
            outcome = SendResult(verdict=Verdict.FAILED, error_code="internal_error")
        self._finished.append((claimed, outcome))
        self._working.wake()

    def _headers(self, claimed: ClaimedDelivery, body: bytes) -> Mapping[str, str]:
        dialect = self._dialects.get(claimed.source or "")
        if dialect is not None:
            return dialect(body)
        secrets = secret.signing(
            self._keys,
            tenant_id=claimed.tenant_id,
            generation=claimed.generation,
            rotated_at=claimed.rotated_at,
            at=claimed.at,
        )
        return signature.sign(body, message_id=claimed.id, sent_at=claimed.at, secrets=secrets)

    @cached_property
    def _tls(self) -> ssl.SSLContext:
        return httpx.create_ssl_context()


def _tell(claimed: ClaimedDelivery, outcome: SendResult, became: str | None) -> None:
    """Log ids and words of ours alone: a URL may hold a secret, and names of hosts are no business of a log."""
    if became is None:
        return
    telemetry.delivery_attempted(became)
    log = telemetry.logger()
    given = {"delivery": claimed.id, "event_type": claimed.event, "error": outcome.error_code}
    match became:
        case DeliveryStatus.DEAD:
            log.warning("webhooks.delivery_given_up", **given)
        case DeliveryStatus.DELIVERED:
            log.debug("webhooks.delivered", **given)
        case _:
            log.info("webhooks.delivery_failed", **given)
