"""The accounting service alone: `create_app(settings)` answers from a database that it cannot change."""

import functools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI

from app import installations, telemetry, tracing
from app.api import (
    accounting,
    bounds,
    calls,
    certificates,
    curves,
    docs,
    document,
    ledger,
    operations,
    plans,
    pressure,
    previews,
    problems,
    scraping,
)
from app.api.compression import Compression
from app.api.middleware import BodyLimit, CallLog, Headers, KeyFirst, allow_origins
from app.config import Settings
from app.operations.service import Metrics

_ROUTERS = (
    accounting.router,
    ledger.router,
    curves.router,
    previews.router,
    plans.router,
    bounds.router,
    certificates.router,
)
DESCRIPTION = (
    """How much of anybody is left in the models, what the next request will take, and every theorem behind it."""
)


def create_app(settings: Settings) -> FastAPI:
    """The accounting service over the installation that `settings` name, which must have been set up."""

    @asynccontextmanager
    async def lifespan(service: FastAPI) -> AsyncIterator[None]:
        telemetry.configure(settings.log_level)
        pressure.limit_threads()
        telemetry.trace_to(settings.otlp_endpoint, service="lethe-accounting")
        with (
            installations.opened(settings, read_only=True) as service.state.installation,
            calls.known(service.state.installation, read_only=True) as service.state.known,
        ):
            service.state.metrics = Metrics(service.state.installation)
            service.state.readiness = operations.Readiness(service.state.installation)
            with scraping.served(settings, functools.partial(operations.exposition, service.state.metrics)):
                yield
        tracing.close()

    service = FastAPI(
        title="Lethe accounting",
        version="0.1.0",
        description=DESCRIPTION,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        generate_unique_id_function=document.operation_id,
    )
    document.install(service)
    docs.install(service)
    problems.install(service)
    for router in _ROUTERS:
        service.include_router(router, prefix="/v1")
    service.include_router(operations.router)
    service.add_middleware(Compression)
    service.add_middleware(BodyLimit, max_bytes=settings.max_upload_bytes)
    service.add_middleware(pressure.Pressure)
    service.add_middleware(KeyFirst, guarded=[("", operations.router), *(("/v1", router) for router in _ROUTERS)])
    allow_origins(service, settings.cors_origins)
    service.add_middleware(CallLog)
    service.add_middleware(Headers)
    return service
