"""Endpoints for operators and their tools: liveness, readiness, public keys, metrics, and the overview."""

import asyncio
import contextlib
import datetime
import json
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Annotated, Any

from fastapi import APIRouter, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.encoders import jsonable_encoder
from fastapi.responses import JSONResponse, PlainTextResponse
from prometheus_client import CONTENT_TYPE_LATEST

from app import heartbeat, telemetry
from app.accounting import certificates
from app.api import calls, problems
from app.api.calls import At, Call, call_with
from app.api.gateway import serves
from app.api.places import FULL
from app.config import Settings
from app.db import migrate
from app.deletion.status import OPEN
from app.errors import AddressInUse
from app.installations import Installation
from app.journal import repository as backup_repository
from app.operations import repository
from app.operations import service as operations
from app.operations.service import Metrics, ModelStanding
from app.unlearning import repository as unlearning_repository
from lethe.contract import overview as contract
from lethe.contract.overview import COUNTED, BackupsOut, HealthOut, HostOut, ModelsCountOut, OverviewOut, ReadyOut
from lethe.contract.problems import Busy, Unavailable
from lethe.contract.sets import DeliveryStatus, Scope, WorkerState

router = APIRouter()
probes = APIRouter(tags=["Operations"])

_NOT_READY: dict[int | str, dict[str, Any]] = {
    503: problems.declared(Unavailable)[503]
    | {
        "model": ReadyOut,
        "description": "Not ready, `unavailable`, `storage_full`, `database_damaged` or `installation_mismatch`",
    }
}


@probes.get("/healthz")
async def healthz() -> HealthOut:
    """Answer while this process is alive."""
    return HealthOut(status="ok")


class Readiness:
    """Readiness check shared by concurrent calls, which are neither authenticated nor limited in number."""

    def __init__(self, installation: Installation) -> None:
        self._installation = installation
        self._looking: asyncio.Task[JSONResponse] | None = None

    async def look(self) -> JSONResponse:
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(run_in_threadpool(ready, self._installation))
        return await asyncio.shield(self._looking)


@probes.get("/readyz", response_model=ReadyOut, responses=_NOT_READY)
async def readyz(request: Request) -> JSONResponse:
    """Answer 200 if this process can serve, and 503 otherwise. It can serve if the database answers, is intact and has
    this release's schema; keys and stores belong to the database; the disk has room; and calls can be taken.

    With a key that has the scope `metrics:read` the answer also has the age of the queue, the numbers of requests at
    risk and overdue, and the state of workers. Without a key it does not tell whether there is work to do.
    """
    if request.scope.get(FULL):
        return JSONResponse(jsonable_encoder(ReadyOut(status="full")), 503)
    readiness: Readiness = request.app.state.readiness
    answer = await readiness.look()
    if answer.status_code == 200 and "authorization" in request.headers:
        await calls.let_in(request.app.state.known, request.scope, [Scope.METRICS_READ])
        return answer
    status = json.loads(bytes(answer.body))["status"]
    return JSONResponse(jsonable_encoder(ReadyOut(status=status)), answer.status_code)


def ready(installation: Installation) -> JSONResponse:
    """Return the answer of `/readyz`, without regard to the call limits of this process."""
    with installation.database.looking() as connection:
        is_current = migrate.is_current_there(connection)
    if not is_current:
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
def jwks(installation: At) -> dict[str, Any]:
    """Return the public keys that verify certificates, as a JSON Web Key Set."""
    return certificates.public_keys(installation.keys)


@probes.get("/metrics", response_class=PlainTextResponse, responses=problems.responses())
def metrics(request: Request, call: Annotated[Call, call_with(Scope.METRICS_READ)]) -> PlainTextResponse:
    """Return Prometheus metrics of calls, the queue, runs and workers. They contain no personal data."""
    return PlainTextResponse(exposition(request.app.state.metrics), media_type=CONTENT_TYPE_LATEST)


def exposition(installed: Metrics) -> bytes:
    """Return the metrics of this process and of the installation in the Prometheus text format."""
    return telemetry.exposition() + installed.exposition()


_SECONDS = 10.0
"""Seconds after which a silent client of the metrics port is disconnected."""


@contextlib.contextmanager
def scraped(settings: Settings, installed: Metrics) -> Iterator[int | None]:
    """Serve metrics on the port in the settings while the block lasts. Yield the port; None if none is set.

    Raises `AddressInUse`.
    """
    if settings.metrics_port is None:
        yield None
        return
    try:
        server = ThreadingHTTPServer((settings.metrics_host, settings.metrics_port), _handler(installed))
    except OSError as error:
        where = f"{settings.metrics_host}:{settings.metrics_port}"
        raise AddressInUse(f"Cannot listen on {where} ({error.strerror}); set LETHE_METRICS_PORT.") from error
    thread = threading.Thread(target=server.serve_forever, name="metrics", daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _handler(installed: Metrics) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = _SECONDS

        def do_GET(self) -> None:
            if self.path != "/metrics":
                self.send_error(404)
                return
            body = exposition(installed)
            self.send_response(200)
            self.send_header("Content-Type", CONTENT_TYPE_LATEST)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Log nothing, because paths may name people."""

    return Handler


@serves(router, contract.GET)
def get_overview(call: Call) -> OverviewOut:
    with call.reading() as session:
        state = operations.state(session, call.installation)
        ended = repository.ended_requests(session, at_most=COUNTED)
        models = call.find_once(session, operations.standings)
        unresolved = unlearning_repository.unresolved_runs(session)
        undelivered = operations.undelivered(session, at_most=COUNTED)
        backup_at, first_start = backup_repository.last_backup_at(session), backup_repository.first_start(session)
    failed_runs: Counter[str] = Counter()
    for _, code, count in unresolved:
        failed_runs[code or "unknown"] += count
    patience = datetime.timedelta(days=call.installation.settings.backup_days)
    waiting = {status.value: 0 for status in sorted(OPEN)}
    for group in state.waiting:
        waiting[group.status] += group.count
    return OverviewOut.of(
        state,
        open=waiting,
        ended=ended,
        queue_age_seconds=round(state.queue_age_seconds, 3),
        worker_seen_at=state.seen_at,
        hosts=[
            _host(name, seen_at, state.at)
            for name, seen_at in heartbeat.hosts(call.installation.settings.data_dir).items()
        ],
        models=_counted(models),
        failed_runs=failed_runs,
        undelivered={DeliveryStatus(status): count for status, count in undelivered.items()},
        backups=BackupsOut(last_at=backup_at, is_late=state.at - (backup_at or first_start or state.at) > patience),
    )


def _counted(models: Sequence[ModelStanding]) -> ModelsCountOut:
    return ModelsCountOut(
        total=len(models),
        waiting=sum(standing.first_due_at is not None for standing in models),
        failed=sum(standing.has_failed for standing in models),
        audits_passed=sum(standing.refused is False for standing in models),
        audits_refused=sum(standing.refused is True for standing in models),
        degraded=sum(standing.degraded for standing in models),
        held=sum(standing.held for standing in models),
        first_due_at=min((at for standing in models if (at := standing.first_due_at)), default=None),
    )


def _host(name: str, seen_at: datetime.datetime, at: datetime.datetime) -> HostOut:
    workers = WorkerState.SILENT if at - seen_at > heartbeat.SILENT_AFTER else WorkerState.ALIVE
    return HostOut(name=name, workers=workers, seen_at=seen_at)
