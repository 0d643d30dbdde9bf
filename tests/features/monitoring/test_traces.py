"""Traces: the spans that a collector gets, without personal data."""

import contextlib
import http.server
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from fastapi.testclient import TestClient
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from app import tracing
from app.config import Settings
from app.main import create_app
from tests.app.test_telemetry import NOTE, SECRETS, SUBJECT

Make = Callable[..., dict[str, Any]]


class Collector:
    """OTLP receiver on its own port; it keeps the received spans, parsed and as raw bytes."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.raw = b""
        self.services: set[str] = set()
        collector = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                content = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers["Content-Encoding"] == "gzip":
                    raise NotImplementedError
                collector.received(self.path, content)
                self.send_response(200)
                self.send_header("Content-Type", "application/x-protobuf")
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()
        self.endpoint = f"http://127.0.0.1:{self._server.server_address[1]}"

    def received(self, path: str, content: bytes) -> None:
        assert path == "/v1/traces"
        for resource in ExportTraceServiceRequest.FromString(content).resource_spans:
            self.services |= {pair.value.string_value for pair in resource.resource.attributes}
            self.spans += [span for scope in resource.scope_spans for span in scope.spans]
        self.raw += content

    def named(self, name: str) -> Span:
        return next(span for span in self.spans if span.name == name)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def attributes(span: Span) -> dict[str, Any]:
    return {pair.key: getattr(pair.value, str(pair.value.WhichOneof("value"))) for pair in span.attributes}


@pytest.fixture
def collector() -> Iterator[Collector]:
    opened = Collector()
    yield opened
    tracing.close()
    opened.close()


@pytest.fixture
def gateway(settings: Settings, admin_key: str, collector: Collector) -> Iterator[TestClient]:
    """Yield a client for a gateway that sends its traces to the collector."""
    app = create_app(settings.model_copy(update={"otlp_endpoint": collector.endpoint, "log_level": "debug"}))
    with TestClient(app, headers={"Authorization": f"Bearer {admin_key}"}, raise_server_exceptions=False) as client:
        yield client


def test_calls_are_traced(gateway: TestClient, collector: Collector, capsys: pytest.CaptureFixture[str]) -> None:
    """Each call produces a span that has the call's route and status and continues the caller's trace. Log lines name
    the trace."""
    trace_id, span_id = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
    parent = {"traceparent": f"00-{trace_id}-{span_id}-01", "tracestate": f"vendor={NOTE}", "baggage": f"who={NOTE}"}
    assert gateway.get(f"/v1/datasets/ds_0/subjects/{SUBJECT}?note={NOTE}", headers=parent).status_code == 422
    assert gateway.request("OPHELIA", "/v1/models").status_code == 405
    tracing.close()
    span = collector.named("GET /v1/datasets/{dataset_id}/subjects/{subject_id}")
    assert (span.trace_id.hex(), span.parent_span_id.hex(), span.kind) == (trace_id, span_id, Span.SPAN_KIND_SERVER)
    assert attributes(span) == {
        "http.request.method": "GET",
        "http.route": "/v1/datasets/{dataset_id}/subjects/{subject_id}",
        "http.response.status_code": 422,
    }
    assert f'"trace_id": "{trace_id}"' in capsys.readouterr().err
    assert "lethe-gateway" in collector.services
    for secret in SECRETS:
        assert secret.encode() not in collector.raw.lower()


def test_runs_are_traced(
    gateway: TestClient,
    collector: Collector,
    new_dataset: Make,
    new_model: Make,
    forget: Make,
    work: Callable[[], int],
) -> None:
    """Each run produces a span with the run's id, and each of its phases produces a child span."""
    model = new_model(new_dataset()["id"], noise_scale=0.02)
    assert work() == 1
    request = forget("p3")
    assert work() == 1
    run = gateway.get(f"/v1/deletion-requests/{request['id']}").json()["models"][0]["run_id"]
    tracing.close()
    whole = next(span for span in collector.spans if attributes(span).get("lethe.run_id") == run)
    assert whole.name == "run"
    found = attributes(whole)
    assert (found["lethe.kind"], found["lethe.model_id"], found["lethe.records"]) == ("unlearn", model["id"], 1)
    phases = [span for span in collector.spans if span.parent_span_id == whole.span_id]
    phases.sort(key=lambda span: span.start_time_unix_nano)
    assert [phase.name for phase in phases] == [
        "claim",
        "verify",
        "edit",
        "erase",
        "steps",
        "examine",
        "evaluate",
        "publish",
    ]
    assert all(phase.trace_id == whole.trace_id for phase in phases)


def test_failed_spans_record_the_error_class(gateway: TestClient, collector: Collector) -> None:
    """A span that ends with an exception records the exception's class but not its message."""
    with contextlib.suppress(ValueError), tracing.span("phase", number=1, nothing=None):
        raise ValueError(SUBJECT)
    tracing.close()
    span = collector.named("phase")
    assert attributes(span) == {"number": 1, "error.type": "ValueError"}
    assert not span.events
    assert SUBJECT.encode() not in collector.raw


def test_an_unreachable_collector_does_not_slow_calls(settings: Settings, collector: Collector) -> None:
    """Calls are not slowed down if the trace collector is unreachable."""
    collector.close()
    with TestClient(create_app(settings.model_copy(update={"otlp_endpoint": collector.endpoint}))) as client:
        took = sorted(client.get("/healthz").elapsed.total_seconds() for _ in range(20))
    # Some calls may be slow because the machine is busy.
    assert took[10] < 5


def test_tracing_names_its_missing_package() -> None:
    """If the tracing extra is not installed, the service still runs and logs the name of the package to install."""
    program = (
        "import sys\nsys.modules['opentelemetry'] = None\nfrom app import telemetry\n"
        "telemetry.configure('info')\ntelemetry.trace_to('http://127.0.0.1:1', service='s')\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert json.loads(ended.stderr)["needs"] == "pip install 'lethe-server[otel]'"
