"""The gateway: `create_app(settings)` is the whole HTTP surface."""

import functools
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from fastapi import APIRouter, FastAPI
from fastapi.concurrency import run_in_threadpool
from starlette.routing import BaseRoute

from app import installations, telemetry, tracing
from app.api import (
    accounting,
    additions,
    agents,
    api_keys,
    assignees,
    audit_log,
    batches,
    bounds,
    calls,
    certificates,
    curves,
    datasets,
    decisions,
    deletion_requests,
    docs,
    document,
    drp,
    encodings,
    forms,
    identity_issuers,
    leaving_reasons,
    ledger,
    lineage,
    models,
    networks,
    opendsr,
    operations,
    overview,
    plans,
    predictions,
    pressure,
    previews,
    problems,
    quality,
    rehearsals,
    replies,
    request_attachments,
    request_notes,
    request_previews,
    runs,
    saved_views,
    scraping,
    serving,
    suppressions,
    tenants,
    users,
    webhook_deliveries,
)
from app.api.callbacks import dialects
from app.api.compression import Compression
from app.api.intake import Intake
from app.api.middleware import BodyLimit, CallLog, Headers, KeyFirst, allow_origins
from app.backup import verification
from app.config import Settings
from app.dashboard import site
from app.operations import periodic_jobs
from app.operations.service import Metrics
from app.webhooks.dispatcher import Dispatcher

DESCRIPTION = """Ask for a person to be forgotten; get a certificate that the models did.

Every call needs `Authorization: Bearer <API key>`. Errors are `application/problem+json` with a stable `code`."""


def create_app(settings: Settings) -> FastAPI:
    """The gateway over the installation that `settings` name, which must have been set up."""

    @asynccontextmanager
    async def lifespan(gateway: FastAPI) -> AsyncIterator[None]:
        telemetry.configure(settings.log_level)
        pressure.limit_threads()
        telemetry.trace_to(settings.otlp_endpoint, service="lethe-gateway")
        forms.folder(settings).mkdir(mode=0o700, exist_ok=True)
        with (
            installations.opened(settings) as gateway.state.installation,
            calls.known(gateway.state.installation) as gateway.state.known,
        ):
            gateway.state.metrics = Metrics(gateway.state.installation)
            gateway.state.readiness = operations.Readiness(gateway.state.installation)
            gateway.state.intake = Intake(gateway.state.installation)
            installation = gateway.state.installation
            await run_in_threadpool(verification.verify_at_start, installation)
            dispatcher = Dispatcher(installation.database, installation.keys, settings, dialects=dialects(settings))
            remembering = periodic_jobs.PeriodicJobs(settings, periodic_jobs.OF_GATEWAYS).start()
            try:
                with scraping.served(settings, functools.partial(operations.exposition, gateway.state.metrics)):
                    yield
            finally:
                await run_in_threadpool(remembering.stop)
                await run_in_threadpool(gateway.state.intake.close)
                await run_in_threadpool(dispatcher.close)
        tracing.close()

    gateway = FastAPI(
        title="Lethe",
        version="0.1.0",
        description=DESCRIPTION,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        generate_unique_id_function=document.operation_id,
    )
    document.install(gateway)
    docs.install(gateway)
    problems.install(gateway)
    gateway.router.routes += _routes()
    gateway.add_middleware(Compression)
    gateway.add_middleware(BodyLimit, max_bytes=settings.max_upload_bytes, answered=site.refused)
    gateway.add_middleware(pressure.Pressure)
    gateway.add_middleware(KeyFirst, guarded=_guarded())
    allow_origins(gateway, settings.cors_origins)
    gateway.add_middleware(CallLog)
    gateway.add_middleware(Headers)
    return gateway


@functools.cache
def _routes() -> Sequence[BaseRoute]:
    """The routes that are served under all settings: the first call of an application lets the framework analyse them,
    which takes a quarter of a second, and is done once for all applications of a process."""
    api = APIRouter(generate_unique_id_function=document.operation_id)
    for router in _ROUTERS:
        api.include_router(router, prefix="/v1")
    api.include_router(operations.router)
    for prefix in _OPENDSR:  # documents of their own describe these, not ours
        api.include_router(opendsr.router, prefix=prefix, include_in_schema=False)
    api.include_router(drp.router, prefix=_DRP, include_in_schema=False)
    site.install(api)
    return api.routes


def _guarded() -> list[tuple[str, APIRouter]]:
    return [
        *(("/v1", router) for router in _ROUTERS),
        ("", operations.router),
        *((prefix, opendsr.router) for prefix in _OPENDSR),
        (_DRP, drp.router),
    ]


_OPENDSR = ("/opendsr/v2", "/opendsr")
_DRP = "/drp/v1"
_ROUTERS = (
    batches.router,
    deletion_requests.router,  # what is called most is matched first
    decisions.router,
    assignees.router,
    replies.router,
    request_attachments.router,
    request_notes.router,
    request_previews.router,
    datasets.router,
    encodings.router,
    additions.router,
    networks.router,
    models.router,
    predictions.router,
    quality.router,
    rehearsals.router,
    serving.router,
    lineage.router,
    saved_views.router,
    suppressions.router,
    leaving_reasons.router,
    identity_issuers.router,
    certificates.router,
    accounting.router,
    ledger.router,
    curves.router,
    previews.router,
    plans.router,
    bounds.router,
    runs.router,
    api_keys.router,
    tenants.router,
    users.router,
    audit_log.router,
    webhook_deliveries.router,
    overview.router,
    agents.router,
)
