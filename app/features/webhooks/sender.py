"""Sending of one delivery: a POST to a checked address only, within a time that the receiver cannot extend.

httpcore follows no redirects, keeps no cookies, ignores proxies of the environment and does not decompress answers. The
connection below it is made here.
"""

import contextlib
import datetime
import email.utils
import enum
import re
import socket
import ssl
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import httpcore
import httpx

from app.features.webhooks import receiver as receivers
from app.features.webhooks.receiver import Address, Network, Receiver, ReceiverRefused, Resolve

_MAX_ANSWER_BYTES = 64 * 1024
_MAX_ADDRESSES = 4
_MAX_RETRY_AFTER = datetime.timedelta(days=1)
_HEADERS = {"user-agent": "lethe-webhooks", "content-type": "application/json", "connection": "close"}


class DeliveryVerdict(enum.StrEnum):
    DELIVERED = "delivered"
    GONE = "gone"
    """The receiver answered 410 and wants no further deliveries."""
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class SendResult:
    """Result of one attempt. `error_code` is stable, and None if and only if the delivery succeeded. `url_invalid`,
    `refused_address`, `not_resolved`, `not_connected`, `tls_failed`, `timeout`, `connection_lost`, `answer_malformed`,
    `answer_too_large`, `redirected`, `http_<status>`."""

    verdict: DeliveryVerdict
    error_code: str | None = None
    status: int | None = None
    retry_after: datetime.timedelta | None = None
    """Pause that the receiver asked for."""


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
    """POST `body` once. Every failure outside this process is a result, within `timeout_seconds`.

    `allowed` networks may be called although they are not public, also without TLS. The result depends on the status
    only; the rest of the answer is read within the time and 64 KiB, and discarded. `tls` verifies certificates, by
    default against the authorities of certifi or SSL_CERT_FILE, which are read at each call; frequent callers pass
    their own context.
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
    """Return the pause of the header `Retry-After` (RFC 9110: seconds, or a date), up to a day; None if malformed."""
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
    """Failure of the attempt; `code` names the stage."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


class _Deadline:
    """Time limit of a whole attempt; a limit per read would start again with every byte."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    def left(self) -> float:
        """Return the remaining seconds. Raises `TimeoutError` after the deadline."""
        seconds = self._end - time.monotonic()
        if seconds <= 0:
            raise TimeoutError
        return seconds


class _Connections(httpcore.NetworkBackend):
    """Backend that connects to the checked addresses only, whatever name httpcore requests."""

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
    """Connection that is closed at the deadline, and after 64 KiB of answer."""

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
            # httpcore continues to read, because a receiver may answer and close before it has read the request.
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
