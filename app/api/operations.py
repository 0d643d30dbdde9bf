"""Endpoints for operators and their tools: alive, ready, the public keys, metrics."""

import asyncio
import json
from typing import Annotated, Any

from fastapi import APIRouter, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.encoders import jsonable_encoder
from fastapi.responses import JSONResponse, PlainTextResponse
from prometheus_client import CONTENT_TYPE_LATEST

from app import telemetry
from app.accounting import certificates
from app.api import calls, problems
from app.api.calls import At, Call, call_with
from app.api.pressure import FULL
from app.db import migrate
from app.installations import Installation
from app.operations import service as operations
from app.operations.service import Metrics
from lethe.contract.operations import HealthOut, ReadyOut
from lethe.contract.problems import Busy, Unavailable
from lethe.contract.sets import Scope

router = APIRouter(tags=["Operations"])

_NOT_READY: dict[int | str, dict[str, Any]] = {
    503: problems.declared(Unavailable)[503]
    | {
        "model": ReadyOut,
        "description": "Not ready, `unavailable`, `storage_full`, `database_damaged` or `installation_mismatch`",
    }
}


@router.get("/healthz")
async def healthz() -> HealthOut:
    """This process answers."""
    return HealthOut(status="ok")


class Readiness:
    """Look once for all who ask at the same time: nobody needs a key to ask, or a place."""

    def __init__(self, installation: Installation) -> None:
        self._installation = installation
        self._looking: asyncio.Task[JSONResponse] | None = None

    async def look(self) -> JSONResponse:
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(run_in_threadpool(ready, self._installation))
        return await asyncio.shield(self._looking)


@router.get("/readyz", response_model=ReadyOut, responses=_NOT_READY)
async def readyz(request: Request) -> JSONResponse:
    """Whether this process can serve: the database answers, is whole, and has this release's schema; keys and stores
    are those of the database; there is room to store what comes, and there are places for calls. If not, 503.

    With a key that has metrics:read it tells what else may need somebody's attention: old or late requests, workers
    that do not work. Without one it tells nothing of that: by it one sees whether there is work to do.
    """
    if request.scope.get(FULL):
        return JSONResponse(jsonable_encoder(ReadyOut(status="full")), 503)
    readiness: Readiness = request.app.state.readiness
    found = await readiness.look()
    if found.status_code == 200 and "authorization" in request.headers:
        await calls.let_in(request.app.state.known, request.scope, [Scope.METRICS_READ])
        return found
    status = json.loads(bytes(found.body))["status"]
    return JSONResponse(jsonable_encoder(ReadyOut(status=status)), found.status_code)


def ready(installation: Installation) -> JSONResponse:
    """The answer of `/readyz`, but for what waits in this process."""
    with installation.database.looking() as connection:
        is_current = migrate.is_current_there(connection)
    if not is_current:
        return JSONResponse(jsonable_encoder(ReadyOut(status="database_not_migrated")), 503)
    with installation.database.reading() as session:
        found = operations.state(session, installation)
    if not installation.database.read_only and not operations.is_any_room(installation.settings):
        raise problems.storage_full()
    ready = ReadyOut(
        status="ready",
        queue_age_seconds=round(found.queue_age_seconds, 3),
        at_risk=found.at_risk,
        overdue=found.overdue,
        workers=found.workers,
        worker_seen_at=found.seen_at,
        tombstones=found.tombstones,
    )
    return JSONResponse(jsonable_encoder(ready))


@router.get("/.well-known/jwks.json", responses=problems.declared(Busy))
def jwks(installation: At) -> dict[str, Any]:
    """The public keys that certificates are verified with."""
    return certificates.public_keys(installation.keys)


@router.get("/metrics", response_class=PlainTextResponse, responses=problems.responses())
def metrics(request: Request, call: Annotated[Call, call_with(Scope.METRICS_READ)]) -> PlainTextResponse:
    """Prometheus metrics: calls by route and status, the queue, the runs, the workers; nothing about anybody."""
    return PlainTextResponse(exposition(request.app.state.metrics), media_type=CONTENT_TYPE_LATEST)


def exposition(installed: Metrics) -> bytes:
    """The metrics of this process and of the installation."""
    return telemetry.exposition() + installed.exposition()
