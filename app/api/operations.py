"""Endpoints for operators and their tools: liveness, readiness and public keys."""

import asyncio
import json
import time
from typing import Any

from fastapi import APIRouter, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.encoders import jsonable_encoder
from fastapi.responses import JSONResponse

from app.accounting import certificates
from app.api import calls, document, places, problems
from app.db import migrate
from app.installations import Installation
from app.operations import service as operations
from lethe.contract.problems import Busy, Unavailable
from lethe.contract.readiness import HealthOut, ReadyOut
from lethe.contract.sets import Scope

probes = APIRouter(tags=["Operations"], generate_unique_id_function=document.operation_id)

_NOT_READY: dict[int | str, dict[str, Any]] = {
    503: problems.declared(Unavailable)[503]
    | {
        "model": ReadyOut,
        "description": "Not ready, `unavailable`, `storage_full`, `database_damaged`, `database_put_back` or "
        "`installation_mismatch`",
    }
}


@probes.get("/healthz")
async def healthz() -> HealthOut:
    """Respond as long as this process is alive."""
    return HealthOut(status="ok")


_MAX_PAUSE_SECONDS = 1.0


class Readiness:
    """Readiness check shared by concurrent calls, which are neither authenticated nor limited in number. The pause
    after a check is nine times as long as the check, but at most a second. A flood of calls therefore takes at most a
    tenth of the processor, and every response reflects a check that ended after the call arrived."""

    def __init__(self, installation: Installation) -> None:
        self._installation = installation
        self._looking: asyncio.Task[JSONResponse] | None = None
        self._next_at = 0.0

    async def look(self) -> JSONResponse:
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look())
        return await asyncio.shield(self._looking)

    async def _look(self) -> JSONResponse:
        await asyncio.sleep(self._next_at - time.monotonic())
        started = time.monotonic()
        try:
            return await run_in_threadpool(ready, self._installation)
        finally:
            took = time.monotonic() - started
            self._next_at = time.monotonic() + min(9 * took, _MAX_PAUSE_SECONDS)


@probes.get("/readyz", response_model=ReadyOut, responses=_NOT_READY)
async def readyz(request: Request) -> JSONResponse:
    """Return 200 if this process can serve, and 503 otherwise. It can serve if the database responds, is intact and has
    a schema that this release can use; the keys and stores belong to it; the disk has room; and calls can be accepted.

    With a key that has the scope `metrics:read`, the response also includes the queue's age, the numbers of requests at
    risk and overdue, and the state of workers. Without a key it does not disclose whether there is work to do.
    """
    if request.scope.get(places.FULL):
        return JSONResponse(jsonable_encoder(ReadyOut(status="full")), 503)
    readiness: Readiness = request.app.state.readiness
    answer = await readiness.look()
    if answer.status_code == 200 and "authorization" in request.headers:
        await calls.let_in(request.app.state.known, request.scope, [Scope.METRICS_READ])
        return answer
    status = json.loads(bytes(answer.body))["status"]
    return JSONResponse(jsonable_encoder(ReadyOut(status=status)), answer.status_code)


def ready(installation: Installation) -> JSONResponse:
    """Return the `/readyz` response, ignoring this process's call limits."""
    with installation.database.looking() as connection:
        is_usable = migrate.is_usable_there(connection)
    if not is_usable:
        return JSONResponse(jsonable_encoder(ReadyOut(status="database_not_migrated")), 503)
    installation.database.require_served()
    with installation.database.reading() as session:
        state = operations.state(session, installation)
    if not installation.database.read_only and not operations.is_any_room(installation.settings):
        raise problems.storage_full()
    ready = ReadyOut.of(
        state,
        status="ready",
        queue_age_seconds=round(state.queue_age_seconds, 3),
        worker_seen_at=state.seen_at,
        texts_damaged=operations.known_damage.get(installation.settings.data_dir, 0),
    )
    return JSONResponse(jsonable_encoder(ready))


@probes.get("/.well-known/jwks.json", responses=problems.declared(Busy))
def jwks(installation: calls.At) -> dict[str, Any]:
    """Return the public keys that verify certificates, as a JSON Web Key Set."""
    return certificates.public_keys(installation.keys)
