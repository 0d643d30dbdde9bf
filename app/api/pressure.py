"""Load shedding: every caller gets a share of what the gateway can do, and the rest is refused at once.

A place is taken by who has shown a key, or by an address, of which few have one. A small body is read before its call
has its turn: nobody who sends slowly keeps others waiting.
"""

from collections import Counter

import anyio.to_thread
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.access.service import Caller
from app.api import calls, problems
from app.api.turns import Turns, Who, busy
from lethe.contract.problems import Busy, UploadTooLarge

THREADS = 12
"""Calls that work at the same time: fewer than either database's pool has connections (15), so that none waits for one
in vain and intake has one of its own."""
CALLS = 200
"""Calls in progress, with those that wait for a turn, a thread or their commit: about half a second of work."""
FULL = "lethe.full"
"""The key in the scope of a call that takes no place: it says whether calls with a key may be refused."""
_FREE = frozenset({"/healthz", "/readyz", "/metrics"})
_INTAKE = ("POST", "/v1/deletion-requests")
_PAGES = "/admin/"
"""They read what is larger only once they know who sends it."""
_SMALL = 64 * 1024
"""Such a body is kept until its call has its turn."""
_READING_OF_ADDRESS = 16
_READING_OF_UNKNOWN = 128


class Pressure:
    """Lets calls in by turns, beside callers who ask whether the process lives; refuses those that have no place with
    503 and Retry-After."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._intake = Turns(at_once=CALLS // 2, of_one=CALLS // 2 - 10, places=CALLS)
        self._known = Turns(at_once=THREADS + 4, of_one=THREADS, places=CALLS)
        self._large = Turns(at_once=8, of_one=4, places=32)
        self._unknown = Turns(at_once=8, of_one=8, of_key=4, places=64)
        self._reading: Counter[Who] = Counter()
        self._reading_unknown = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in _FREE:
            scope[FULL] = self.is_full()
            await self._app(scope, receive, send)
            return
        caller: Caller | None = scope.get(calls.CALLER)
        who = Who(caller.tenant_id, caller.id) if caller else Who("", calls.address_of(scope))
        size = _declared(scope)
        is_large = size is None or size > _SMALL
        if is_large and caller is None and not scope["path"].startswith(_PAGES):
            refusal = UploadTooLarge(f"Without a key a body has {_SMALL} bytes at most, and says how many.")
            await problems.problem(refusal)(scope, receive, send)
            return
        turns = self._turns(scope, caller, is_large=is_large)
        try:
            whole = await self._read(who, receive) if size and not is_large else receive
            if whole is None:  # the caller has gone
                return
            await turns.enter(who)
        except Busy as refusal:
            await problems.problem(refusal)(scope, receive, send)
            return
        try:
            await self._app(scope, whole, send)
        finally:
            turns.leave(who)

    def is_full(self) -> bool:
        """Return True if calls of those who have a key may be refused."""
        return self._known.is_full or self._intake.is_full or self._large.is_full

    def _turns(self, scope: Scope, caller: Caller | None, *, is_large: bool) -> Turns:
        if caller is None:
            return self._unknown
        if is_large:
            return self._large
        return self._intake if (scope["method"], scope["path"]) == _INTAKE else self._known

    async def _read(self, who: Who, receive: Receive) -> Receive | None:
        """The whole body, to be received once more; None if the caller goes. Raises `Busy`."""
        if who.tenant:
            has_place = self._reading[who] < CALLS
        else:
            has_place = self._reading[who] < _READING_OF_ADDRESS and self._reading_unknown < _READING_OF_UNKNOWN
        if not has_place:
            raise busy()
        parts: list[bytes] = []
        self._reading[who] += 1
        self._reading_unknown += not who.tenant
        try:
            while True:
                message = await receive()
                if message["type"] != "http.request":
                    return None
                parts.append(message.get("body", b""))
                if not message.get("more_body", False):
                    break
        finally:
            self._reading_unknown -= not who.tenant
            self._reading[who] -= 1
            if not self._reading[who]:
                del self._reading[who]

        async def again() -> Message:
            if not parts:
                return await receive()
            body = b"".join(parts)
            parts.clear()
            return {"type": "http.request", "body": body, "more_body": False}

        return again


def _declared(scope: Scope) -> int | None:
    """The declared length of the body; None if it is not declared."""
    headers = dict(scope["headers"])
    if b"transfer-encoding" in headers:
        return None
    declared = headers.get(b"content-length", b"0")
    return int(declared) if declared.isdigit() else None


def limit_threads() -> None:
    """Let `THREADS` endpoints work at the same time. To be called in the event loop."""
    anyio.to_thread.current_default_thread_limiter().total_tokens = THREADS
