"""What operators and their tools look at: alive, ready, the public keys, metrics."""

from typing import Any

from fastapi import APIRouter, Request
from fastapi.encoders import jsonable_encoder
from fastapi.responses import JSONResponse, PlainTextResponse
from prometheus_client import CONTENT_TYPE_LATEST

from app import telemetry
from app.accounting import certificates
from app.api import problems
from app.api.calls import At
from app.api.schemas import HealthOut, ReadyOut
from app.db import migrate
from app.errors import Busy, Unavailable
from app.operations import service as operations
from app.operations.service import Metrics

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


@router.get("/readyz", response_model=ReadyOut, responses=_NOT_READY)
def readyz(at: At) -> JSONResponse:
    """Whether this process can serve: the database answers, is whole, and has this release's schema; keys and stores
    are those of the database; there is room to store what comes. If not, 503.

    What else may need somebody's attention is told, with 200: old or late requests, workers that do not work.
    """
    with at.database.looking() as connection:
        is_current = migrate.is_current_there(connection)
    if not is_current:
        return JSONResponse(jsonable_encoder(ReadyOut(status="database_not_migrated")), 503)
    with at.database.reading() as session:
        found = operations.state(session, at)
    if not at.database.read_only and not operations.is_any_room(at.settings):
        raise problems.storage_full()
    ready = ReadyOut(
        status="ready",
        queue_age_seconds=round(found.queue_age_seconds, 3),
        at_risk=found.at_risk,
        overdue=found.overdue,
        workers=found.workers,
        worker_seen_at=found.seen_at,
    )
    return JSONResponse(jsonable_encoder(ready))


@router.get("/.well-known/jwks.json", responses=problems.declared(Busy))
def jwks(at: At) -> dict[str, Any]:
    """The public keys that certificates are verified with."""
    return certificates.public_keys(at.keys)


@router.get("/metrics", response_class=PlainTextResponse)
def metrics(request: Request) -> PlainTextResponse:
    """Prometheus metrics: calls by route and status, the queue, the runs, the workers; nothing about anybody."""
    installed: Metrics = request.app.state.metrics
    return PlainTextResponse(telemetry.exposition() + installed.exposition(), media_type=CONTENT_TYPE_LATEST)
