"""Accounting service: `create_app(settings)` serves the accounting API from a database that it cannot modify."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI

from app import config, installations, telemetry, tracing
from app.api import accounting, calls, document, gateway, middleware, operations

DESCRIPTION = "Influence that records still have on models, the cost of the next request, and the theorems behind both."


def create_app(settings: config.Settings) -> FastAPI:
    """Return the accounting service for the installation in `settings`, which must already be set up."""

    @asynccontextmanager
    async def lifespan(service: FastAPI) -> AsyncIterator[None]:
        telemetry.configure(settings.log_level)
        gateway.limit_threads()
        telemetry.trace_to(settings.otlp_endpoint, service="lethe-accounting")
        with (
            installations.opened(settings, read_only=True) as service.state.installation,
            calls.known(service.state.installation, read_only=True) as service.state.known,
        ):
            service.state.readiness = operations.Readiness(service.state.installation)
            with gateway.lifespans_of_features(service):
                yield
        tracing.close()

    service = document.new_app(title="Lethe accounting", description=DESCRIPTION, lifespan=lifespan)
    core = [gateway.Mount(router=accounting.router), gateway.Mount(router=operations.probes, prefix="")]
    mounts = [*core, *(mount for mount in gateway.of_features() if mount.by_accounting)]
    service.router.routes += [route for mount in mounts for route in mount.routes()]
    middleware.install(service, settings)
    return service
