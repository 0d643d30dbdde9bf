"""`/metrics` on a port of its own, for a Prometheus that has no key: by default it listens on the loopback alone."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from prometheus_client import CONTENT_TYPE_LATEST

from app.config import Settings
from app.errors import AddressInUse

_SECONDS = 10.0
"""Time after which a client that sends nothing is let go."""


@contextlib.contextmanager
def served(settings: Settings, exposition: Callable[[], bytes]) -> Iterator[int | None]:
    """Serve metrics while the block lasts, where the settings ask for it; the port. Raises `AddressInUse`."""
    if settings.metrics_port is None:
        yield None
        return
    try:
        server = ThreadingHTTPServer((settings.metrics_host, settings.metrics_port), _handler(exposition))
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


def _handler(exposition: Callable[[], bytes]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = _SECONDS

        def do_GET(self) -> None:
            if self.path != "/metrics":
                self.send_error(404)
                return
            body = exposition()
            self.send_response(200)
            self.send_header("Content-Type", CONTENT_TYPE_LATEST)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Nothing: paths may name people."""

    return Handler
