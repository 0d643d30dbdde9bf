"""What a gateway does when more is asked than it can do: it says so at once, and collapses under nothing."""

import anyio.to_thread
from starlette.types import ASGIApp, Receive, Scope, Send

from app.api import problems
from app.errors import Busy

THREADS = 12
"""Calls that work at the same time: fewer than either database's pool has connections (15), so that none waits for one
in vain and intake has one of its own."""
CALLS = 200
"""Calls in progress, with those that wait for a thread or for their commit: about half a second of work."""
_FREE = frozenset({"/healthz", "/readyz", "/metrics"})


class Pressure:
    """Refuses calls beyond `most` in progress with 503 and Retry-After; who asks whether the process lives gets in."""

    def __init__(self, app: ASGIApp, *, most: int = CALLS) -> None:
        self._app = app
        self._most = most
        self._calls = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in _FREE:
            await self._app(scope, receive, send)
            return
        if self._calls >= self._most:
            refusal = Busy("Nothing was done. Repeat the call in a second, with its Idempotency-Key if it has one.")
            await problems.problem(refusal)(scope, receive, send)
            return
        self._calls += 1
        try:
            await self._app(scope, receive, send)
        finally:
            self._calls -= 1


def limit_threads() -> None:
    """Let `THREADS` endpoints work at the same time. To be called in the event loop."""
    anyio.to_thread.current_default_thread_limiter().total_tokens = THREADS
