"""Limits on concurrent calls: a call beyond a limit is refused immediately instead of delaying all others."""

import asyncio
from collections import Counter

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.api import calls, problems
from lethe.contract.problems import Busy, Problem, RequestTimedOut, UploadTooLarge

CALLS = 200
"""Maximum concurrent deletion requests and maximum other calls per tenant, each about half a second of work."""
LIMITS = {"intake": (CALLS, 250), "known": (CALLS, 250), "large": (24, 32), "unknown": (16, 64)}
"""Maximum number of concurrent calls by kind: per tenant (per address, for calls without a key) and in total."""
FULL = "lethe.full"
"""ASGI scope key, set for calls that are not limited: True if a call with a key could now be refused as `busy`."""
_FREE = frozenset({"/healthz", "/readyz", "/metrics"})
_MAX_SMALL_BYTES = 64 * 1024
_READ_SECONDS = 20.0


class Places:
    """Middleware that limits the calls in progress by kind: a call takes a place or is refused with 503 `busy`.

    Small bodies are read before a place is taken, so that slow senders do not occupy places.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._taken: Counter[str | tuple[str, str]] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in _FREE:
            scope[FULL] = any(self._taken[kind] >= LIMITS[kind][0] for kind in ("intake", "known", "large"))
            return await self._app(scope, receive, send)
        size, caller = _declared_bytes(scope), scope.get(calls.CALLER)
        is_large = size is None or size > _MAX_SMALL_BYTES
        is_intake = (scope["method"], scope["path"]) == ("POST", "/v1/deletion-requests")
        kind = "unknown" if caller is None else "large" if is_large else "intake" if is_intake else "known"
        share = kind, caller.tenant_id if caller else calls.address_of(scope)
        try:
            # Pages read a large body only after they have checked the session.
            if is_large and caller is None and not scope["path"].startswith("/admin/"):
                raise UploadTooLarge.keyless(max_bytes=_MAX_SMALL_BYTES)
            received = await _read(receive) if size and not is_large else receive
            if self._taken[share] >= LIMITS[kind][0] or self._taken[kind] >= LIMITS[kind][1]:
                raise Busy("Nothing was done. Repeat the call in a second, with its Idempotency-Key if it has one.")
        except Problem as refusal:
            return await problems.problem(refusal)(scope, receive, send)
        self._taken[kind] += 1
        self._taken[share] += 1
        try:
            await self._app(scope, received, send)
        finally:
            for name in (kind, share):
                self._taken[name] -= 1
                # Counts of zero would accumulate, one for each address.
                if not self._taken[name]:
                    del self._taken[name]


async def _read(receive: Receive) -> Receive:
    """Read a whole body, and return a `Receive` that replays it. Raises `RequestTimedOut`."""
    messages: list[Message] = []
    try:
        async with asyncio.timeout(_READ_SECONDS):
            while not messages or messages[-1].get("more_body", False):
                messages.append(await receive())
    except TimeoutError as error:
        raise RequestTimedOut(max_bytes=_MAX_SMALL_BYTES, seconds=_READ_SECONDS) from error

    async def received() -> Message:
        return messages.pop(0) if messages else await receive()

    return received


def _declared_bytes(scope: Scope) -> int | None:
    """Return the body's declared length (0 if there is no body), or None if no valid length is declared."""
    headers = dict(scope["headers"])
    declared = headers.get(b"content-length", b"0")
    return int(declared) if declared.isdigit() and b"transfer-encoding" not in headers else None
