"""Connections that nobody can hold for ever: how large a head may be, how long head, body and reader may take.

uvicorn bounds how long a connection idles after an answer, and nothing else: neither a head that never ends, nor one
that never goes on, nor a body that trickles, nor a caller who does not read. None of them has shown a key yet.
"""

import asyncio
import resource
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from app.api import problems
from lethe.contract.problems import HeadersTooLarge, Problem, RequestTimedOut

_DESCRIPTORS = 4096
_DRAIN_SECONDS = 10.0
"""A caller who was answered early may go on sending for so long: many read no answer before they have sent all."""
_LINGER_SECONDS = 2.0
"""Time for which what comes after a refusal is thrown away: closing at once would throw the refusal away."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits of a connection. `body_bytes`: of a body at least so many come in `body_seconds`; `idle`: connections
    without a request in progress, of which the oldest goes when there is another."""

    head_bytes: int = 32 * 1024
    headers: int = 100
    head_seconds: float = 10.0
    body_bytes: int = 20 * 1024
    body_seconds: float = 20.0
    answer_seconds: float = 30.0
    idle: int = 512


def protocol(limits: Limits | None = None) -> type[HttpToolsProtocol]:
    """The protocol that uvicorn is to speak on every connection of one server."""
    return type("Connection", (_Connection,), {"limits": limits or Limits(), "idle": {}})


def allow_many() -> None:
    """Let this process have as many connections as `Limits` and the calls in progress may need."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _DESCRIPTORS if hard == resource.RLIM_INFINITY else min(_DESCRIPTORS, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


class _Connection(HttpToolsProtocol):
    """A connection reads a head, or a body, or nothing; the one timer is of what it reads."""

    limits: ClassVar[Limits]
    idle: ClassVar[dict["_Connection", None]]

    _timer: asyncio.TimerHandle | None = None
    _unread: asyncio.TimerHandle | None = None
    _in_head = True
    _head_bytes = 0
    _body_bytes = 0
    _is_refused = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._rest()
        self._after(self.limits.head_seconds, self._head_is_late)

    def connection_lost(self, exc: Exception | None) -> None:
        self.idle.pop(self, None)
        self._stop_timer()
        if self._unread is not None:
            self._unread.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._is_refused:
            return
        if self._in_head:
            self._head_bytes += len(data)
            if self._timer is None:
                self._after(self.limits.head_seconds, self._head_is_late)
        else:
            self._body_bytes += len(data)
        super().data_received(data)
        if self._is_refused or self.transport.is_closing():
            return
        if self._in_head and self._head_bytes > self.limits.head_bytes:
            self._refuse_head()
        elif not self._in_head and self._timer is None:
            self._body_bytes = 0
            self._after(self.limits.body_seconds, self._look_at_body)

    def on_headers_complete(self) -> None:
        size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
        if size > self.limits.head_bytes or len(self.headers) > self.limits.headers:
            self._refuse_head()
        if self._is_refused:
            return
        self._in_head = False
        self._stop_timer()
        self.idle.pop(self, None)
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        if not self._is_refused:
            super().on_body(body)

    def on_message_complete(self) -> None:
        if self._is_refused:
            return
        self._in_head, self._head_bytes = True, 0
        self._stop_timer()
        super().on_message_complete()
        if self.cycle.response_complete:  # it was answered before it was read: uvicorn would wait for ever
            self._rest()
            self._after(self.limits.head_seconds, self._head_is_late)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.transport.is_closing():
            return
        if self._in_head and not self.pipeline:
            self._rest()
        elif not self._in_head:  # the rest of the body is not wanted: the connection may go on when it has come soon
            self._rest()
            self._stop_timer()
            self._after(_DRAIN_SECONDS, self.transport.abort)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unread = self.loop.call_later(self.limits.answer_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def _rest(self) -> None:
        """Wait for a request; where too many do, the one that waits longest goes."""
        self.idle.pop(self, None)
        self.idle[self] = None
        if len(self.idle) > self.limits.idle:
            oldest = next(iter(self.idle))
            del self.idle[oldest]
            oldest.transport.close()

    def _head_is_late(self) -> None:
        if self._head_bytes == 0:
            self.transport.close()
        else:
            self._refuse(RequestTimedOut(f"The head of a request must come within {self.limits.head_seconds:g} s."))

    def _look_at_body(self) -> None:
        """Close the connection unless enough has come, or it is not the caller who is slow."""
        is_waited_for = not self.flow.read_paused and not self.cycle.waiting_for_100_continue
        if is_waited_for and self._body_bytes < self.limits.body_bytes:
            self._refuse(
                RequestTimedOut(
                    f"Of a body at least {self.limits.body_bytes} bytes must come in {self.limits.body_seconds:g} s."
                )
            )
            return
        self._body_bytes = 0
        self._after(self.limits.body_seconds, self._look_at_body)

    def _refuse_head(self) -> None:
        limits = self.limits
        self._refuse(
            HeadersTooLarge(f"The head of a request has at most {limits.head_bytes} bytes and {limits.headers} fields.")
        )

    def _refuse(self, refusal: Problem) -> None:
        """Answer unless there is an answer under way, and close."""
        self._is_refused = True
        self._stop_timer()
        self.idle.pop(self, None)
        self._unset_keepalive_if_required()
        cycle = self.cycle
        if cycle is not None and not cycle.response_complete:
            is_answered = cycle.response_started or cycle.waiting_for_100_continue
            cycle.disconnected = True
            cycle.message_event.set()
            if is_answered or self._in_head:
                self.transport.abort()
                return
        answer = problems.problem(refusal)
        answer.headers["connection"] = "close"
        head = b"".join(name + b": " + value + b"\r\n" for name, value in answer.raw_headers)
        self.transport.write(STATUS_LINE[answer.status_code] + head + b"\r\n" + bytes(answer.body))
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self._after(_LINGER_SECONDS, self.transport.abort)

    def _after(self, seconds: float, act: Callable[[], None]) -> None:
        self._timer = self.loop.call_later(seconds, act)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
