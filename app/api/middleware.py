"""What wraps every call: a limit on bodies, and a log that knows routes, not paths."""

import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app import telemetry, tracing
from app.api import problems
from app.errors import UploadTooLarge


class BodyLimit:
    """Refuses a body larger than `max_bytes`: by its declared length before reading, else as soon as it is too long."""

    def __init__(self, app: ASGIApp, *, max_bytes: int) -> None:
        self._app = app
        self._max_bytes = max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        refusal = UploadTooLarge(
            f"This server accepts at most {self._max_bytes} bytes (LETHE_MAX_UPLOAD_BYTES). Nothing was stored."
        )
        declared = dict(scope["headers"]).get(b"content-length", b"0")
        if declared.isdigit() and int(declared) > self._max_bytes:
            await problems.problem(refusal)(scope, receive, send)
            return
        received = 0

        async def counted() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > self._max_bytes:
                raise refusal
            return message

        async def watched(message: Message) -> None:
            if received <= self._max_bytes:
                await send(message)

        await self._app(scope, counted, watched)
        if received > self._max_bytes:  # whatever the framework made of the refusal was not sent
            await problems.problem(refusal)(scope, receive, send)


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
            route = getattr(scope.get("route"), "path", "(none)")
            seconds = time.perf_counter() - started
            telemetry.call_answered(method=scope["method"], route=route, status=status or 500, seconds=seconds)
            span.update_name(f"{telemetry.known_method(scope['method'])} {route}")
            span.set_attribute("http.route", route)
            span.set_attribute("http.response.status_code", status or 500)


def _traceparent(scope: Scope) -> str | None:
    """The caller's place in its own trace: numbers, by the standard; whatever else it sends is not read."""
    found: bytes | None = dict(scope["headers"]).get(b"traceparent")
    return found.decode("latin-1") if found else None
