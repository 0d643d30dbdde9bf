"""Logs, traces and heartbeats: they report events and contain no personal data."""

import io
import json
import logging
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from app import heartbeat, telemetry
from app.config import Settings
from app.db import Database, migrate
from tests.faults import processes
from tests.faults.processes import wait_until

Make = Callable[..., dict[str, Any]]

SUBJECT = "ophelia.quixote@example.org"
VALUE = "61.53125"  # exact in float32, and unlike anything else
NOTE = "allergic-to-nuts"
TICKET = "ticket-of-ophelia"
SECRETS = (SUBJECT, "ophelia", VALUE, NOTE, TICKET)
SCHEMA = {
    "columns": {
        "age": {"kind": "numeric", "min": 0, "max": 100},
        "income": {"role": "label", "values": ["low", "high"]},
        "person": {"role": "subject"},
    }
}
CSV = f"age,income,person\n{VALUE},low,{SUBJECT}\n" + "".join(
    f"{20 + row},{('low', 'high')[row % 2]},p{row}\n" for row in range(30)
)


@pytest.fixture
def lines(capsys: pytest.CaptureFixture[str]) -> Callable[[], list[dict[str, Any]]]:
    """Return a function that returns the lines logged since its last call, at debug level and including those
    of libraries."""
    telemetry.configure("debug")
    capsys.readouterr()
    return lambda: [json.loads(line) for line in capsys.readouterr().err.splitlines()]


def parsed(log: Path) -> list[dict[str, Any]]:
    """Check that every line of a log is an event, and return the lines."""
    found = [json.loads(line) for line in log.read_text().splitlines()]
    assert all({"event", "level", "timestamp"} <= line.keys() for line in found)
    return found


# --- logs ------------------------------------------------------------------------------------------------------------


def test_library_messages_are_logged_without_arguments(lines: Callable[[], list[dict[str, Any]]]) -> None:
    """When a library logs a message, the log keeps the logger, the code location and the message template, but not the
    arguments."""
    library = logging.getLogger("library.part")
    library.info("Connected to %s", SUBJECT)
    library.warning(f"Refused {SUBJECT}")
    library.info("%s" % SUBJECT)  # noqa: UP031
    library.debug("Parsing %s", SUBJECT)
    first, second, third = lines()
    assert (first["event"], first["level"], first["logger"]) == ("library.logged", "info", "library.part")
    assert first["message"] == "Connected to %s"
    assert first["place"].startswith("test_telemetry.py:")
    assert second["level"] == "warning"
    assert "message" not in second
    assert "message" not in third


def test_exceptions_of_libraries_are_logged_by_class(lines: Callable[[], list[dict[str, Any]]]) -> None:
    """When a library logs an exception, the log keeps only its class and code locations."""
    try:
        raise ValueError(SUBJECT)
    except ValueError:
        logging.getLogger("library").exception("Failed: %s", SUBJECT)
    [line] = lines()
    assert (line["level"], line["error"], line["message"]) == ("error", "ValueError", "Failed: %s")
    assert [place.split(":")[0] for place in line["places"]] == ["test_telemetry.py"]
    assert SUBJECT not in json.dumps(line)


def test_a_log_line_is_one_write(monkeypatch: pytest.MonkeyPatch) -> None:
    """A log line and its line ending are written in a single write, so that lines from two processes sharing one log
    never interleave."""
    writes: list[str] = []

    class Log(io.StringIO):
        def write(self, text: str) -> int:
            writes.append(text)
            return len(text)

    monkeypatch.setattr(sys, "stderr", Log())
    telemetry.configure("info")
    telemetry.logger().info("worker.started")
    logging.getLogger("library").warning("Slow")
    assert [json.loads(write)["event"] for write in writes] == ["worker.started", "library.logged"]
    assert all(write.endswith("\n") for write in writes)


def test_libraries_log_only_warnings(lines: Callable[[], list[dict[str, Any]]]) -> None:
    """At level `info`, libraries log only warnings and errors."""
    telemetry.configure("info")
    logging.getLogger("library").info("Connected")
    logging.getLogger("library").warning("Slow")
    assert [line["message"] for line in lines()] == ["Slow"]


DEFECTS = {
    "of the main thread": "raise ValueError(secret)",
    "of a thread": "import threading\ndef fail():\n    raise ValueError(secret)\nthreading.Thread(target=fail).start()",
    "that nobody can catch": "class Odd:\n    def __del__(self):\n        raise ValueError(secret)\nOdd()",
    "that is a warning": "import warnings\nwarnings.warn(secret)",
}


@pytest.mark.parametrize("defect", DEFECTS)
def test_uncaught_errors_are_one_line(defect: str) -> None:
    """A warning, or an error that ends a process or thread, is logged as one line without its text."""
    program = f"from app import telemetry\ntelemetry.configure('info')\nsecret = {SUBJECT!r}\n{DEFECTS[defect]}"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    [line] = [json.loads(line) for line in ended.stderr.splitlines()]
    assert line["event"] == ("library.logged" if "warning" in defect else "process.failed")
    assert SUBJECT not in ended.stderr


def provoke(client: httpx.Client, dataset_id: str, model_id: str) -> None:
    """Make calls that name the person and are refused."""
    record = {"age": VALUE + "x", "person": SUBJECT}
    body = {"subject_id": [SUBJECT], "metadata": {"note": NOTE}, "external_id": TICKET}
    for answer in (
        client.post("/v1/deletion-requests", json=body),
        client.post("/v1/deletion-requests", content=f'{{"subject_id": "{SUBJECT}", {NOTE}'),
        client.post(f"/v1/models/{model_id}/predictions", json={"records": [record]}),
        client.get(f"/v1/datasets/{dataset_id}/subjects/x{SUBJECT}"),
        client.get(f"/v1/deletion-requests/{SUBJECT}"),
        client.get("/v1/deletion-requests", params={"status": SUBJECT, "cursor": NOTE, "limit": VALUE}),
        client.get(f"/v1/people/{SUBJECT}?note={NOTE}"),
        client.get("/v1/models", headers={"Authorization": f"Bearer {SUBJECT}"}),
        client.request("OPHELIA", f"/v1/{SUBJECT}"),
        client.post("/v1/datasets", data={"name": SUBJECT}, files={"file": (f"{SUBJECT}.csv", CSV)}),
        client.post(
            "/v1/datasets",
            content=f"--x\r\nContent-Disposition: {NOTE}\r\n\r\n{SUBJECT}",
            headers={"Content-Type": f"multipart/form-data; boundary={SUBJECT}"},
        ),
    ):
        assert 400 <= answer.status_code < 500, answer.text


@pytest.mark.service
def test_logs_contain_no_personal_data(tmp_path: Path) -> None:
    """The debug logs of the gateway and the worker are JSON. From upload to certificate, even with refused calls and a
    broken database, they contain neither a person's id nor any value, note, path or query about the person."""
    data = tmp_path / "data"
    with processes.forked_up(data, log_level="debug", poll_seconds="0.1") as up:
        log, address = up.child.log, up.address()
        key = {"Authorization": f"Bearer {(data / 'keys' / 'admin.key').read_text().strip()}"}
        with httpx.Client(base_url=address, headers=key, timeout=120) as client:
            form = {"name": "people", "schema": json.dumps(SCHEMA)}
            dataset = client.post("/v1/datasets", data=form, files={"file": ("p.csv", CSV)}).json()
            model = client.post("/v1/models", json={"name": "m", "dataset_id": dataset["id"], "l2": 0.05}).json()
            wait_until(lambda: client.get(f"/v1/models/{model['id']}").json()["status"] == "live")
            provoke(client, dataset["id"], model["id"])
            record = {"age": float(VALUE)}
            assert client.post(f"/v1/models/{model['id']}/predictions", json={"records": [record]}).is_success
            body = {"subject_id": SUBJECT, "metadata": {"note": NOTE}, "external_id": TICKET}
            made = client.post("/v1/deletion-requests", json=body).json()
            assert client.get("/v1/deletion-requests", params={"external_id": TICKET}).json()["items"]
            wait_until(lambda: client.get(f"/v1/deletion-requests/{made['id']}").json()["status"] == "completed")
            assert client.get(f"/v1/deletion-requests/{made['id']}/certificate").is_success
            database = Database(Settings(data_dir=data).resolved_database_url())
            migrate.downgrade(database.engine)
            for path in (f"/v1/deletion-requests/{SUBJECT}", f"/v1/datasets/{SUBJECT}/subjects/{SUBJECT}"):
                assert client.get(path).status_code == 503
            assert client.post("/v1/deletion-requests", json=body).status_code == 503
            wait_until(lambda: "worker.database_lost" in log.read_text())
            metrics = client.get("/metrics").text
            database.close()
        assert up.end() == 0
    events = {line["event"] for line in parsed(log)}
    assert {"gateway.call_answered", "unlearning.run_ended", "library.logged"} <= events
    assert {"gateway.database_unavailable", "worker.database_lost"} <= events
    for secret in SECRETS:
        assert secret not in (log.read_text() + metrics).lower()


@pytest.mark.soak
@pytest.mark.redis
def test_celery_logs_json(settings: Settings, tmp_path: Path) -> None:
    """A Celery worker with beat logs only JSON and writes heartbeats."""
    broker = processes.Redis(tmp_path)
    command = [sys.executable, "-m", "celery", "-A", "worker.celery_app", "worker", "--pool", "solo", "--beat"]
    environment = processes.environment_of(
        settings.data_dir, broker_url=broker.url, log_level="debug", poll_seconds="0.1"
    )
    log = tmp_path / "celery.log"
    try:
        with log.open("wb") as output:
            worker = subprocess.Popen(command, env=environment, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=output)
        wait_until(lambda: heartbeat.this_host_is_alive(settings.data_dir))
        wait_until(lambda: b" ready." in log.read_bytes())  # Celery does not handle the signal earlier
        worker.terminate()
        assert worker.wait(120) == 0
    finally:
        worker.kill()
        worker.wait()
        broker.kill()
    assert {line["logger"].split(".")[0] for line in parsed(log) if line["event"] == "library.logged"} >= {"celery"}


# --- signs of life ---------------------------------------------------------------------------------------------------


def test_only_recent_signs_of_life_count(tmp_path: Path) -> None:
    """A worker counts as alive while it writes heartbeats. A worker that has only just started, or ended long ago, does
    not."""
    assert not heartbeat.this_host_is_alive(tmp_path)
    with heartbeat.Heartbeat(tmp_path, seconds=60):
        time.sleep(0.05)
        assert heartbeat.last_seen(tmp_path) is None
    with heartbeat.Heartbeat(tmp_path, seconds=0.01):
        wait_until(lambda: heartbeat.this_host_is_alive(tmp_path), seconds=60)
    assert heartbeat.last_seen(tmp_path, host="another") is None
    [file] = (tmp_path / "workers").iterdir()
    assert file.read_bytes() == b""


@pytest.mark.service
def test_health_command_reports_a_live_worker(tmp_path: Path) -> None:
    """`lethe health worker` exits with code 0 while a worker on this host writes heartbeats, and otherwise with code
    1."""

    def healthy() -> int:
        environment = processes.environment_of(tmp_path)
        return processes.ended("lethe", "health", "worker", environment=environment).returncode

    assert healthy() == 1
    with heartbeat.Heartbeat(tmp_path, seconds=0.01):
        wait_until(lambda: heartbeat.last_seen(tmp_path), seconds=60)
        assert healthy() == 0


# --- traces ----------------------------------------------------------------------------------------------------------


def test_tracing_is_off_by_default(settings: Settings) -> None:
    """Tracing is off by default, and the OpenTelemetry packages are not imported."""
    program = (
        "import sys\nfrom app import tracing\nassert tracing.configure(None, service='s')\n"
        "with tracing.span('s') as span:\n    span.set_attribute('a', 1)\n"
        "assert tracing.trace_id() is None\n"
        "assert not any(name.startswith('opentelemetry') for name in sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
