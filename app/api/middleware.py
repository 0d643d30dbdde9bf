"""Middleware for every call: authentication before the body is read, a size limit, per-route logs, security headers."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass

from fastapi import FastAPI, Request, Response
from fastapi.routing import APIRoute
from sqlalchemy.exc import OperationalError
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app import config, telemetry, tracing
from app.access import rates, service
from app.api import calls, places, problems
from lethe.contract import fields, sets
from lethe.contract.problems import ContentEncodingUnsupported, Problem, UploadTooLarge

_BODY = "lethe.body"
"""ASGI scope key of the `Body` that limits a call's body; absent on routes that do not require a key."""

_WRITES = "lethe.writes"
"""ASGI scope key, True if the call may take the database's write lock on behalf of an app."""
_WRITING = frozenset({sets.Scope.REQUESTS_WRITE, sets.Scope.MODELS_WRITE, sets.Scope.AGENT})

_ROUTE = "lethe.route"
"""ASGI scope key of a call's route, which is set even for calls that are refused before routing."""

_INTERVAL_SECONDS = 0.1
"""Interval at which discreet callers get responses, so that only longer work affects the response time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Guard:
    """Route, with the scopes that a caller needs and the type whose limits apply to the body."""

    route: APIRoute
    scopes: frozenset[sets.Scope]
    body: type[fields.Body]


class _CallMiddleware:
    """Middleware whose `_serve` handles HTTP calls; lifespan events pass through unchanged."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        return (self._serve if scope["type"] == "http" else self._app)(scope, receive, send)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        raise NotImplementedError


class KeyFirst(_CallMiddleware):
    """Middleware that authenticates the key and checks its scopes before the body is read and `Places` counts the call.

    `routes` are all routes that may require a key."""

    def __init__(self, app: ASGIApp, *, routes: Iterable[BaseRoute]) -> None:
        super().__init__(app)
        self._guards = [
            _Guard(route=route, scopes=scopes, body=_body_of(route))
            for route in routes
            if isinstance(route, APIRoute) and (scopes := calls.scopes_of(route.dependant))
        ]

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        guard = self._guard(scope)
        if guard is not None:
            scope[_ROUTE] = guard.route.path
            scope[_BODY] = guard.body
            scope[_WRITES] = guard.route.methods != {"GET"} and not _WRITING.isdisjoint(guard.scopes)
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
        return next(
            (g for g in self._guards if method in (g.route.methods or ()) and g.route.path_regex.match(path)), None
        )


def _body_of(route: APIRoute) -> type[fields.Body]:
    body = route.body_field.field_info.annotation if route.body_field else None
    return body if isinstance(body, type) and issubclass(body, fields.Body) else _AnyBody


class _AnyBody(fields.Body):
    """Body of a route that declares no body type, such as a file upload."""

    MAX_BYTES = MAX_MEMBERS = fields.MAX_BODY_BYTES


Refused = Callable[[Request, Problem], Response]


class BodyLimit(_CallMiddleware):
    """Middleware that refuses encoded bodies and oversized bodies, the latter by their declared length or as soon as
    they exceed the limit.

    `max_bytes` bounds multipart bodies; JSON is also bounded by `MAX_DEPTH` and by the `MAX_BYTES` and `MAX_MEMBERS` of
    its type, and anything else by 32 MiB. `answered` renders the refusal."""

    def __init__(self, app: ASGIApp, *, max_bytes: int, answered: Refused) -> None:
        super().__init__(app)
        self._max_bytes = max_bytes
        self._answered = answered

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = dict(scope["headers"])
        is_file = headers.get(b"content-type", b"").lower().startswith(b"multipart/")
        body: type[fields.Body] = scope.get(_BODY, _AnyBody)
        max_bytes = self._max_bytes if is_file else min(self._max_bytes, body.MAX_BYTES)
        too_large = UploadTooLarge.file if max_bytes == self._max_bytes else UploadTooLarge.body
        declared = headers.get(b"content-length", b"0")
        if declared.isdigit() and int(declared) > max_bytes:
            await self._answered(Request(scope), too_large(max_bytes=max_bytes))(scope, receive, send)
            return
        coding = headers.get(b"content-encoding", b"identity").strip().lower()
        if coding != b"identity" and (declared != b"0" or b"transfer-encoding" in headers):
            expected = "Send the body without Content-Encoding, uncompressed. Nothing was stored."
            await self._answered(Request(scope), ContentEncodingUnsupported(expected))(scope, receive, send)
            return
        received = members = 0
        text = bytearray()
        refused: Problem | None = None

        async def counted() -> Message:
            nonlocal received, members, refused
            message = await receive()
            content = message.get("body", b"")
            received += len(content)
            if received > max_bytes:
                refused = too_large(max_bytes=max_bytes)
            elif not is_file and body is not _AnyBody:
                members += sum(map(content.count, (b",", b"[", b"{")))
                text.extend(content)
                if members > body.MAX_MEMBERS:
                    refused = UploadTooLarge.members(max_members=body.MAX_MEMBERS)
                elif not message.get("more_body") and fields.is_deep(text):
                    refused = UploadTooLarge.depth(max_depth=fields.MAX_DEPTH)
            if refused is not None:
                raise refused
            return message

        async def watched(message: Message) -> None:
            if refused is None:
                await send(message)

        await self._app(scope, counted, watched)
        # `watched` dropped the framework's answer, so send the refusal now.
        if refused is not None:
            await self._answered(Request(scope), refused)(scope, receive, send)


class Unhurried(_CallMiddleware):
    """Middleware that responds to discreet callers' write calls after a random delay, counted from receipt of the body.
    The response time then does not reveal work done for this call or by a run for an earlier call.

    The delay is between one and two intervals; a response that is not ready by then waits for further whole intervals.
    """

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        caller: service.Caller | None = scope.get(calls.CALLER)
        if caller is None or not caller.discreet or not scope[_WRITES]:
            await self._app(scope, receive, send)
            return
        received_at = time.monotonic()
        answer: list[Message] = []

        async def timed() -> Message:
            nonlocal received_at
            message = await receive()
            if message["type"] == "http.request":
                received_at = time.monotonic()
            return message

        async def kept(message: Message) -> None:
            answer.append(message)

        try:
            await self._app(scope, timed, kept)
        finally:
            # A predictable delay could be subtracted from the response time.
            until = random.SystemRandom().uniform(1.0, 2.0) - (time.monotonic() - received_at) / _INTERVAL_SECONDS
            await asyncio.sleep(_INTERVAL_SECONDS * (until if until > 0 else until % 1.0))
        for message in answer:
            await send(message)


class CallLog(_CallMiddleware):
    """Middleware that counts, logs and traces calls by route, and handles unexpected errors.

    Paths, queries and error texts may name people and are not stored."""

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        started, status, method = time.perf_counter(), None, telemetry.known_method(scope["method"])

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        parent = Request(scope).headers.get(tracing.TRACEPARENT)
        with tracing.span("(none)", parent=parent, **{"http.request.method": method}) as span:
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
                telemetry.call_answered(method=method, route=route, status=status or 500, seconds=seconds)
                span.update_name(f"{method} {route}")
                span.set_attribute("http.route", route)
                span.set_attribute("http.response.status_code", status or 500)


def install(app: FastAPI, settings: config.Settings, *, answered: Refused | None = None) -> None:
    """Add all services' shared middleware to `app`, innermost first. `answered` renders refusals of large bodies."""
    app.add_middleware(
        BodyLimit,
        max_bytes=settings.max_upload_bytes,
        answered=answered or (lambda _request, error: problems.problem(error)),
    )
    app.add_middleware(places.Places)
    app.add_middleware(Unhurried)
    app.add_middleware(KeyFirst, routes=app.routes)
    _allow_origins(app, settings.cors_origins)
    app.add_middleware(CallLog)
    app.add_middleware(Headers)


_ALWAYS = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
)


def _allow_origins(app: FastAPI, origins: str) -> None:
    """Allow web pages of the comma-separated `origins`, or of all origins with `*`, to call `app` from browsers."""
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
"""Prefixes of paths whose responses may be cached."""


class Headers(_CallMiddleware):
    """Middleware that adds security headers, the key's rate limit, and `no-store` to all but public responses."""

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
    # RFC 6797, 7.2, forbids this header over plain HTTP.
    if scope["scheme"] == "https":
        headers.append((b"strict-transport-security", b"max-age=31536000"))
    window: rates.RateWindow | None = scope.get(calls.WINDOW)
    if window is not None:
        headers.append((b"ratelimit-policy", b'"minute";q=%d;w=60' % window.quota))
        headers.append((b"ratelimit", b'"minute";r=%d;t=%d' % (window.remaining, window.seconds)))
    return headers
