"""Gateway: `create_app(settings)` serves the whole HTTP API."""

import contextlib
import functools
from collections.abc import AsyncIterator, Sequence

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.concurrency import run_in_threadpool
from sqlalchemy.exc import SQLAlchemyError
from starlette.routing import BaseRoute

from app import config, installations, telemetry, tracing
from app.api import (
    accounting,
    calls,
    datasets,
    deletion_requests,
    document,
    forms,
    middleware,
    models,
    operations,
    problems,
    runs,
    tenants,
)
from app.api.gateway import Mount, lifespans_of_features, limit_threads, of_features
from app.api.intake import Intake
from app.journal import tombstones, verification
from app.operations import periodic_jobs
from lethe import sockets
from lethe.contract.problems import Problem

DESCRIPTION = """Ask for a person to be forgotten; get a certificate that the models did.

Every call needs `Authorization: Bearer <API key>`. Errors are `application/problem+json` with a stable `code`."""


def create_app(settings: config.Settings) -> FastAPI:
    """Return the gateway for the installation that `settings` describes, which must already be set up."""

    @contextlib.asynccontextmanager
    async def lifespan(gateway: FastAPI) -> AsyncIterator[None]:
        telemetry.configure(settings.log_level)
        limit_threads()
        telemetry.trace_to(settings.otlp_endpoint, service="lethe-gateway")
        forms.folder(settings).mkdir(mode=0o700, exist_ok=True)
        with (
            installations.opened(settings) as gateway.state.installation,
            calls.known(gateway.state.installation) as gateway.state.known,
        ):
            gateway.state.readiness = operations.Readiness(gateway.state.installation)
            gateway.state.intake = Intake(gateway.state.installation)
            installation = gateway.state.installation
            await run_in_threadpool(verification.verify_at_start, installation)
            # A failure here is reported by the periodic job a second later.
            with contextlib.suppress(Problem, OSError, SQLAlchemyError):
                await run_in_threadpool(periodic_jobs.record_tombstones, installation, tombstones.require_same_database)
            services = [start(installation) for start in sockets.plugs("app.features", "jobs", "GATEWAY_SERVICES")]
            remembering = periodic_jobs.PeriodicJobs(settings, periodic_jobs.of_gateways()).start()
            try:
                with lifespans_of_features(gateway):
                    yield
            finally:
                await run_in_threadpool(remembering.stop)
                await run_in_threadpool(gateway.state.intake.close)
                for service in services:
                    await run_in_threadpool(service.close)
        tracing.close()

    gateway = document.new_app(title="Lethe", description=DESCRIPTION, lifespan=lifespan)
    gateway.router.routes[:0] = _routes()
    middleware.install(gateway, settings, answered=_refused)
    return gateway


@functools.cache
def _routes() -> Sequence[BaseRoute]:
    """Return the routes, which are the same for all settings. The framework analyses them on first use, which takes
    0.25 s, so all applications in a process share them."""
    api = APIRouter(generate_unique_id_function=document.operation_id)
    # The core's routes are matched first.
    core = [*(Mount(router=router) for router in _ROUTERS), Mount(router=operations.probes, prefix="")]
    api.routes.extend(route for mount in (*core, *of_features()) for route in mount.routes())
    for install in sockets.plugs("app.features", "endpoints", "INSTALLERS"):
        install(api)
    return api.routes


def _refused(request: Request, error: Problem) -> Response:
    """Return the response to a call that was refused before its route was known: a page if the path belongs to a
    feature that provides one, otherwise a problem document."""
    for prefix, refused in sockets.plugs("app.features", "endpoints", "REFUSALS"):
        if f"{request.url.path}/".startswith(f"{prefix}/"):
            page: Response = refused(request, error)
            return page
    return problems.problem(error)


_ROUTERS = (
    # The most frequent calls are matched first.
    deletion_requests.router,
    datasets.router,
    models.router,
    accounting.router,
    runs.router,
    tenants.router,
)
