"""Endpoint for metrics, and the port that serves them without a key."""

import contextlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Annotated

from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import PlainTextResponse
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from app import errors, installations, telemetry
from app.api import calls, gateway, problems
from app.features.monitoring.metrics import Metrics
from lethe.contract.sets import Scope

router = APIRouter(tags=["Operations"])


@router.get("/metrics", response_class=PlainTextResponse, responses=problems.responses())
def metrics(request: Request, call: Annotated[calls.Call, calls.call_with(Scope.METRICS_READ)]) -> PlainTextResponse:
    """Return Prometheus metrics of calls, the queue, runs and workers. They contain no personal data."""
    return PlainTextResponse(exposition(request.app.state.metrics), media_type=CONTENT_TYPE_LATEST)


def exposition(installed: Metrics) -> bytes:
    """Return the metrics of this process and of the installation in the Prometheus text format."""
    return generate_latest(telemetry.registry) + installed.exposition()


_SECONDS = 10.0
"""Seconds after which a silent client is disconnected from the metrics port."""


@contextlib.contextmanager
def scraped(app: FastAPI) -> Iterator[None]:
    """Provide the metrics to `/metrics` and, if the settings name a port, also serve them there during the block.

    Raises `AddressInUse`.
    """
    installation: installations.Installation = app.state.installation
    settings, app.state.metrics = installation.settings, Metrics(installation)
    if settings.metrics_port is None:
        yield
        return
    try:
        server = ThreadingHTTPServer((settings.metrics_host, settings.metrics_port), _handler(app.state.metrics))
    except OSError as error:
        where = f"{settings.metrics_host}:{settings.metrics_port}"
        raise errors.AddressInUse(f"Cannot listen on {where} ({error.strerror}); set LETHE_METRICS_PORT.") from error
    thread = threading.Thread(target=server.serve_forever, name="metrics", daemon=True)
    thread.start()
    try:
        yield
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
            """Log nothing, because paths may identify people."""

    return Handler


LIFESPANS: tuple[gateway.Lifespan, ...] = (scraped,)
MOUNTS: tuple[gateway.Mount, ...] = (gateway.Mount(router=router, prefix="", by_accounting=True),)
