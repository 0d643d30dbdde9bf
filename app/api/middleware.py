"""Middleware of every call: authentication before the body, the size limit, the log by route, and security headers."""

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
from app.access.rates import RateWindow
from app.api import calls, problems
from app.api.calls import WINDOW
from app.api.places import Places
from app.config import Settings
from lethe.contract import sets
from lethe.contract.problems import ContentEncodingUnsupported, Problem, UploadTooLarge

_MAX_BODY_BYTES = 32 * 2**20
"""Limit for bodies other than files, which are read into memory."""


_ROUTE = "lethe.route"
"""ASGI scope key of a call's route, also set for calls that are refused before routing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Guard:
    """Route and the scopes that it requires of a key."""

    route: str
    pattern: re.Pattern[str]
    methods: frozenset[str]
    scopes: frozenset[sets.Scope]


class _CallMiddleware:
    """Middleware whose `_serve` handles HTTP calls; lifespan events pass through unchanged."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await (self._serve if scope["type"] == "http" else self._app)(scope, receive, send)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        raise NotImplementedError


class KeyFirst(_CallMiddleware):
    """Middleware that authenticates the key and checks its scopes before the body is read and `Places` counts the call.

    `guarded` lists routers with their prefixes.
    """

    def __init__(self, app: ASGIApp, *, guarded: Iterable[tuple[str, APIRouter]]) -> None:
        super().__init__(app)
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

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        guard = self._guard(scope)
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
        return next((guard for guard in self._guards if method in guard.methods and guard.pattern.match(path)), None)


Refused = Callable[[Request, Problem], Response]


class BodyLimit(_CallMiddleware):
    """Middleware that refuses encoded bodies, and large ones: by their declared length, or as soon as they exceed the
    limit.

    `max_bytes` bounds multipart bodies; all others are also bounded by 32 MiB. `answered` renders the refusal.
    """

    def __init__(self, app: ASGIApp, *, max_bytes: int, answered: Refused) -> None:
        super().__init__(app)
        self._max_bytes = max_bytes
        self._answered = answered

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = dict(scope["headers"])
        is_file = headers.get(b"content-type", b"").lower().startswith(b"multipart/")
        max_bytes = self._max_bytes if is_file else min(self._max_bytes, _MAX_BODY_BYTES)
        named = " (LETHE_MAX_UPLOAD_BYTES)" if max_bytes == self._max_bytes else " of a body that is no file"
        refusal = UploadTooLarge(f"This server accepts at most {max_bytes} bytes{named}. Nothing was stored.")
        declared = headers.get(b"content-length", b"0")
        if declared.isdigit() and int(declared) > max_bytes:
            await self._answered(Request(scope), refusal)(scope, receive, send)
            return
        coding = headers.get(b"content-encoding", b"identity").strip().lower()
        if coding != b"identity" and (declared != b"0" or b"transfer-encoding" in headers):
            expected = "Send the body without Content-Encoding, uncompressed. Nothing was stored."
            await self._answered(Request(scope), ContentEncodingUnsupported(expected))(scope, receive, send)
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
        # `watched` dropped the framework's answer, so send the refusal now.
        if received > max_bytes:
            await self._answered(Request(scope), refusal)(scope, receive, send)


class CallLog(_CallMiddleware):
    """Middleware that counts, logs and traces calls by their route, and answers unexpected errors.

    Paths, queries and texts of errors may name people and are not stored.
    """

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        with tracing.span(
            "(none)", parent=_traceparent(scope), **{"http.request.method": telemetry.known_method(scope["method"])}
        ) as span:
            await self._measured(scope, receive, send, span)

    async def _measured(self, scope: Scope, receive: Receive, send: Send, span: tracing.TraceSpan) -> None:
        started, status = time.perf_counter(), None

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, watched)
        # The server would log the text of the error, which may name people.
        except Exception as error:
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


def install(
    app: FastAPI, settings: Settings, *, guarded: Iterable[tuple[str, APIRouter]], answered: Refused | None = None
) -> None:
    """Add the middleware of every service to `app`, innermost first. `answered` renders refusals of large bodies."""
    app.add_middleware(BodyLimit, max_bytes=settings.max_upload_bytes, answered=answered or _problem)
    app.add_middleware(Places)
    app.add_middleware(KeyFirst, guarded=guarded)
    _allow_origins(app, settings.cors_origins)
    app.add_middleware(CallLog)
    app.add_middleware(Headers)


def _problem(_request: Request, error: Problem) -> Response:
    return problems.problem(error)


_ALWAYS = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
)


def _allow_origins(app: FastAPI, origins: str) -> None:
    """Allow web pages of the comma-separated `origins`, or of any with `*`, to call `app` from browsers."""
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
"""Prefixes of paths whose answers may be cached."""


class Headers(_CallMiddleware):
    """Middleware that adds security headers, the rate limit of the key, and `no-store` to all but public answers."""

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:

        async def dressed(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = list(message.get("headers", ()))
                names = {name for name, _ in headers}
                message["headers"] = headers + [header for header in _headers(scope) if header[0] not in names]
            await send(message)

        await self._app(scope, receive, dressed)


def _headers(scope: Scope) -> list[tuple[bytes, bytes]]:
    headers = list(_ALWAYS)
    if not scope["path"].startswith(_FOR_ALL):
        headers.append((b"cache-control", b"no-store"))
    if scope["scheme"] == "https":
        headers.append((b"strict-transport-security", b"max-age=31536000"))
    window: RateWindow | None = scope.get(WINDOW)
    if window is not None:
        headers.append((b"ratelimit-policy", b'"minute";q=%d;w=60' % window.quota))
        headers.append((b"ratelimit", b'"minute";r=%d;t=%d' % (window.remaining, window.seconds)))
    return headers


def _traceparent(scope: Scope) -> str | None:
    """Return the header `traceparent`, which has only numbers; None without one."""
    header: bytes | None = dict(scope["headers"]).get(b"traceparent")
    return header.decode("latin-1") if header else None
