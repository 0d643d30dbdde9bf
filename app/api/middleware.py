"""The middleware of every call: a limit on bodies, a log that knows routes, not paths, and headers that browsers
obey."""

import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.routing import APIRoute
from sqlalchemy.exc import OperationalError
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import compile_path
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app import telemetry, tracing
from app.access.rates import Window
from app.api import calls, problems
from app.api.calls import WINDOW
from lethe.contract import sets
from lethe.contract.problems import Problem, UploadTooLarge

_MOST_IN_MEMORY = 32 * 2**20
"""The most of a body that is no file: it is read as a whole."""


_ROUTE = "lethe.route"
"""The key in the scope of a call for the route that it was for, if it was refused before it came there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Guard:
    """The scopes that a route asks of keys."""

    route: str
    pattern: re.Pattern[str]
    methods: frozenset[str]
    scopes: frozenset[sets.Scope]


class KeyFirst:
    """Asks whose key it is, and whether it has the scope, before anything of a body is read or a place is taken.

    `guarded`: the routes, with what is before their paths.
    """

    def __init__(self, app: ASGIApp, *, guarded: Iterable[tuple[str, APIRouter]]) -> None:
        self._app = app
        self._guards = [
            _Guard(
                route=prefix + route.path,
                pattern=compile_path(prefix + route.path)[0],
                methods=frozenset(route.methods or ()),
                scopes=scopes,
            )
            for prefix, router in guarded
            for route in router.routes
            if isinstance(route, APIRoute) and (scopes := calls.scopes_of(route.dependant))
        ]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        guard = self._guard(scope) if scope["type"] == "http" else None
        if guard is not None:
            scope[_ROUTE] = guard.route
            try:
                scope[calls.CALLER] = await calls.let_in(scope["app"].state.known, scope, guard.scopes)
            except Problem as refusal:
                if scope["path"].startswith("/v1/"):
                    await problems.problem(refusal)(scope, receive, send)
                    return
                scope[calls.REFUSAL] = refusal
            except OperationalError as error:
                await problems.problem(problems.unavailable(error))(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _guard(self, scope: Scope) -> _Guard | None:
        method, path = scope["method"], scope["path"]
        return next((one for one in self._guards if method in one.methods and one.pattern.match(path)), None)


Refused = Callable[[Request, Problem], Response]


class BodyLimit:
    """Refuses a body that is too large: by its declared length before reading, else as soon as it is too long.

    `max_bytes`: of files; any other body has 32 MiB at most. `answered`: how a refusal is told.
    """

    def __init__(
        self, app: ASGIApp, *, max_bytes: int, answered: Refused = lambda _, error: problems.problem(error)
    ) -> None:
        self._app = app
        self._max_bytes = max_bytes
        self._answered = answered

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        is_file = headers.get(b"content-type", b"").lower().startswith(b"multipart/")
        max_bytes = self._max_bytes if is_file else min(self._max_bytes, _MOST_IN_MEMORY)
        named = " (LETHE_MAX_UPLOAD_BYTES)" if max_bytes == self._max_bytes else " of a body that is no file"
        refusal = UploadTooLarge(f"This server accepts at most {max_bytes} bytes{named}. Nothing was stored.")
        declared = headers.get(b"content-length", b"0")
        if declared.isdigit() and int(declared) > max_bytes:
            await self._answered(Request(scope), refusal)(scope, receive, send)
            return
        received = 0

        async def counted() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > max_bytes:
                raise refusal
            return message

        async def watched(message: Message) -> None:
            if received <= max_bytes:
                await send(message)

        await self._app(scope, counted, watched)
        if received > max_bytes:  # whatever the framework made of the refusal was not sent
            await self._answered(Request(scope), refusal)(scope, receive, send)


class CallLog:
    """Counts, logs and traces each call by its route, and answers defects.

    Paths, queries and the texts of errors may name people: they are not kept anywhere.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        with tracing.span(
            "(none)", parent=_traceparent(scope), **{"http.request.method": telemetry.known_method(scope["method"])}
        ) as span:
            await self._measured(scope, receive, send, span)

    async def _measured(self, scope: Scope, receive: Receive, send: Send, span: tracing.Span) -> None:
        started, status = time.perf_counter(), None

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, watched)
        except Exception as error:  # a server would log the text of the error, which may name people
            if status is not None:
                raise
            await problems.unexpected(error)(scope, receive, watched)
        finally:
            route = getattr(scope.get("route"), "path", None) or scope.get(_ROUTE, "(none)")
            seconds = time.perf_counter() - started
            telemetry.call_answered(method=scope["method"], route=route, status=status or 500, seconds=seconds)
            span.update_name(f"{telemetry.known_method(scope['method'])} {route}")
            span.set_attribute("http.route", route)
            span.set_attribute("http.response.status_code", status or 500)


_ALWAYS = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
)


def allow_origins(app: FastAPI, origins: str) -> None:
    """Let the web pages of these origins (with commas; `*` for any) call `app`; browsers let no other."""
    allowed = [origin.strip() for origin in origins.split(",") if origin.strip()]
    if allowed:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=allowed,
            allow_methods=["GET", "POST", "PATCH", "PUT", "DELETE"],
            allow_headers=["Authorization", "Content-Type", "Idempotency-Key"],
            expose_headers=["Location", "Retry-After", "RateLimit", "RateLimit-Policy"],
        )


_FOR_ALL = ("/docs", "/openapi.json", "/.well-known/")
"""Paths of answers that anybody may keep."""


class Headers:
    """Headers that forbid browsers to do with an answer what it does not allow itself; and what is left to a key.

    Nobody keeps it but the documentation and the public keys.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def dressed(message: Message) -> None:
            if message["type"] == "http.response.start":
                given = list(message.get("headers", ()))
                names = {name for name, _ in given}
                message["headers"] = given + [header for header in _headers(scope) if header[0] not in names]
            await send(message)

        await self._app(scope, receive, dressed)


def _headers(scope: Scope) -> list[tuple[bytes, bytes]]:
    headers = list(_ALWAYS)
    if not scope["path"].startswith(_FOR_ALL):
        headers.append((b"cache-control", b"no-store"))
    if scope["scheme"] == "https":
        headers.append((b"strict-transport-security", b"max-age=31536000"))
    window: Window | None = scope.get(WINDOW)
    if window is not None:
        headers.append((b"ratelimit-policy", b'"minute";q=%d;w=60' % window.quota))
        headers.append((b"ratelimit", b'"minute";r=%d;t=%d' % (window.remaining, window.seconds)))
    return headers


def _traceparent(scope: Scope) -> str | None:
    """The caller's place in its own trace: numbers, by the standard; whatever else it sends is not read."""
    found: bytes | None = dict(scope["headers"]).get(b"traceparent")
    return found.decode("latin-1") if found else None
