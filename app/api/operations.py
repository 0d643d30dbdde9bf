"""What operators and their tools look at: alive, ready, the public keys, metrics."""

from typing import Any

from fastapi import APIRouter
from fastapi.responses import JSONResponse, PlainTextResponse
from prometheus_client import CONTENT_TYPE_LATEST

from app import telemetry
from app.accounting import certificates
from app.api.calls import At
from app.api.schemas import HealthOut, ReadyOut
from app.db import migrate, now
from app.unlearning import repository

router = APIRouter(tags=["Operations"])


@router.get("/healthz")
def healthz() -> HealthOut:
    """This process answers."""
    return HealthOut(status="ok")


@router.get("/readyz", response_model=ReadyOut, responses={503: {"model": ReadyOut}})
def readyz(at: At) -> JSONResponse:
    """The database answers, has this release's schema, and how long the oldest open request has waited."""
    with at.database.reading() as session:
        current = migrate.is_current(at.database.engine)
        oldest = repository.oldest_waiting(session) if current else None
        age = (now(session) - oldest).total_seconds() if oldest else 0.0
    ready = ReadyOut(status="ready" if current else "database_not_migrated", queue_age_seconds=round(age, 3))
    return JSONResponse(ready.model_dump(), 200 if current else 503)


@router.get("/.well-known/jwks.json")
def jwks(at: At) -> dict[str, Any]:
    """The public keys that certificates are verified with."""
    return certificates.public_keys(at.keys)


@router.get("/metrics", response_class=PlainTextResponse)
def metrics() -> PlainTextResponse:
    """Prometheus metrics of this process: calls by route and status; nothing about anybody."""
    return PlainTextResponse(telemetry.exposition(), media_type=CONTENT_TYPE_LATEST)
