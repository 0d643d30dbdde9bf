"""The gateway: `create_app(settings)` is the whole HTTP surface."""

import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from fastapi.concurrency import run_in_threadpool

from app import installation, telemetry, tracing
from app.api import (
    accounting,
    api_keys,
    certificates,
    datasets,
    deletion_requests,
    models,
    operations,
    pressure,
    problems,
    runs,
)
from app.api.intake import Intake
from app.api.middleware import BodyLimit, CallLog
from app.config import Settings
from app.operations.service import Metrics

DESCRIPTION = """Ask for a person to be forgotten; get a certificate that the models did.

Every call needs `Authorization: Bearer <API key>`. Errors are `application/problem+json` with a stable `code`."""


def create_app(settings: Settings) -> FastAPI:
    """The gateway over the installation that `settings` name, which must have been set up."""

    @asynccontextmanager
    async def lifespan(gateway: FastAPI) -> AsyncIterator[None]:
        telemetry.configure(settings.log_level)
        pressure.limit_threads()
        telemetry.trace_to(settings.otlp_endpoint, service="lethe-gateway")
        private = settings.data_dir / "tmp"
        private.mkdir(mode=0o700, exist_ok=True)
        usual, tempfile.tempdir = tempfile.tempdir, str(private)  # where uploads are spooled
        with installation.opened(settings) as gateway.state.installation:
            gateway.state.metrics = Metrics(gateway.state.installation)
            gateway.state.intake = Intake(gateway.state.installation)
            try:
                yield
            finally:
                await run_in_threadpool(gateway.state.intake.close)
        tempfile.tempdir = usual
        tracing.close()

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
    gateway.add_middleware(pressure.Pressure)
    gateway.add_middleware(CallLog)
    return gateway
