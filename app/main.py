"""The gateway: `create_app(settings)` is the whole HTTP surface."""

import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app import installation, telemetry
from app.api import (
    accounting,
    api_keys,
    certificates,
    datasets,
    deletion_requests,
    models,
    operations,
    problems,
    runs,
)
from app.config import Settings
from app.errors import UploadTooLarge

DESCRIPTION = """Ask for a person to be forgotten; get a certificate that the models did.

Every call needs `Authorization: Bearer <API key>`. Errors are `application/problem+json` with a stable `code`."""


def create_app(settings: Settings) -> FastAPI:
    """The gateway over the installation that `settings` name, which must have been set up."""

    @asynccontextmanager
    async def lifespan(gateway: FastAPI) -> AsyncIterator[None]:
        telemetry.configure(settings.log_level)
        private = settings.data_dir / "tmp"
        private.mkdir(mode=0o700, exist_ok=True)
        tempfile.tempdir = str(private)  # where uploads are spooled
        with installation.opened(settings) as gateway.state.installation:
            yield

    gateway = FastAPI(title="Lethe", version="0.1.0", description=DESCRIPTION, lifespan=lifespan)
    problems.install(gateway)
    for router in (
        datasets.router,
        models.router,
        deletion_requests.router,
        certificates.router,
        accounting.router,
        runs.router,
        api_keys.router,
    ):
        gateway.include_router(router, prefix="/v1")
    gateway.include_router(operations.router)
    gateway.add_middleware(BodyLimit, max_bytes=settings.max_upload_bytes)
    gateway.add_middleware(CallLog)
    return gateway


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
    """Counts and logs each call by its route, and answers defects.

    Paths, queries and the texts of errors may name people: they are not kept anywhere.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
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
