"""`lethe up` and `lethe serve` as processes: start, calls, exit, and one-line errors."""

import asyncio
import contextlib
import fcntl
import gc
import os
import signal
import socket
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest
import uvicorn
from fastapi import FastAPI

from app import supervisor
from app.config import Settings
from tests.conftest import FORM, npz
from tests.faults import processes
from tests.faults.processes import wait_until
from tests.threads import apart

pytestmark = pytest.mark.service


def _run(*command: str | Path, data: Path, **settings: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        env=processes.environment_of(data, **settings),
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        yield taken.getsockname()[1]


def test_up_replaces_a_killed_worker_until_sigterm(tmp_path: Path) -> None:
    """`lethe up` prints its address, accepts calls there, replaces a killed worker, and on SIGTERM exits with code 0
    after its worker has exited. Its data folder is closed to other users."""
    data = tmp_path / "data"
    with processes.up(data) as up:
        address = up.address()
        assert httpx.get(f"{address}/healthz", timeout=120).json() == {"status": "ok"}
        assert httpx.get(f"{address}/readyz", timeout=120).json()["status"] == "ready"
        assert up.process.stdout
        assert up.process.stdout.readline() == f"Admin key:  {data / 'keys' / 'admin.key'}\n"
        wait_until(lambda: up.log.read_text().count('"worker.started"') == 1)
        first = up.worker()
        first.terminate()
        wait_until(lambda: up.log.read_text().count('"worker.started"') == 2)
        worker = up.worker()
        assert worker.pid != first.pid
        assert httpx.get(f"{address}/healthz", timeout=120).status_code == 200
        assert up.end(signal.SIGTERM) == 0
        assert not worker.is_running()
    assert "Traceback" not in up.log.read_text()
    assert stat.S_IMODE(data.stat().st_mode) == 0o700


def test_a_failed_set_up_ends_workers_that_ignore_sigterm(tmp_path: Path) -> None:
    """`lethe up` exits with code 1 when its set-up fails, even if SIGTERM is ignored where it was started, which its
    forked worker inherits."""
    ignoring = f'trap "" TERM; exec {processes.LETHE} up'
    failed = _run("sh", "-c", ignoring, data=tmp_path / "data", database_url="mysql://localhost/lethe")
    assert (failed.returncode, failed.stdout) == (1, "")
    assert "LETHE_DATABASE_URL" in failed.stderr


@pytest.mark.soak
def test_up_restarts_on_its_data_folder(tmp_path: Path) -> None:
    """A `lethe up` with two workers, the second for deletions only, replaces both under their names when they end, and
    is not disturbed by a second `lethe up`. On Ctrl-C, it exits with code 0 after both workers have exited. When
    restarted on the same data folder, it has the same keys. On SIGTERM during a run, it lets the worker publish the run
    before it exits."""
    data = tmp_path / "data"
    with processes.up(data, workers="2") as up:
        address = up.address()
        wait_until(lambda: up.log.read_text().count('"worker.started"') == 2)
        for first in psutil.Process(up.process.pid).children():
            first.terminate()
        wait_until(lambda: up.log.read_text().count('"worker.started"') == 4)
        workers = psutil.Process(up.process.pid).children()
        names = sorted(worker.cmdline()[1:] for worker in workers)
        host = socket.gethostname()
        assert names == [
            ["-m", "worker", f"embedded-2@{host}", "--deletions-only"],
            ["-m", "worker", f"embedded@{host}"],
        ]
        assert all(up.log.read_text().count(f'"worker": "{name[2]}", "event": "worker.started"') == 2 for name in names)
        second = _run(processes.LETHE, "up", data=data)
        assert (second.returncode, second.stdout) == (1, "")
        assert second.stderr.startswith("error: already_running: ")
        assert second.stderr.count("\n") == 1
        keys = httpx.get(f"{address}/.well-known/jwks.json", timeout=120).json()
        admin_key = (data / "keys" / "admin.key").read_text()
        assert up.end(signal.SIGINT) == 0
        assert not any(worker.is_running() for worker in workers)
    with processes.up(data) as up:
        address = up.address()
        assert httpx.get(f"{address}/.well-known/jwks.json", timeout=120).json() == keys
        assert (data / "keys" / "admin.key").read_text() == admin_key
        headers = {"Authorization": f"Bearer {admin_key.strip()}"}
        with httpx.Client(base_url=address, headers=headers, timeout=120) as client:
            dataset = client.post("/v1/datasets", data=FORM, files={"file": ("d.npz", npz(rows=2000))}).json()
            asked = {"name": "m", "dataset_id": dataset["id"], "l2": 5e-5, "noise_scale": 5e-4}
            model = client.post("/v1/models", json=asked).json()
            wait_until(lambda: client.get(f"/v1/models/{model['id']}").json()["progress"])
        assert up.end() == 0
    assert "unlearning.run_ended" in up.log.read_text()
    assert up.log.read_text().count('"worker.died"') == 2
    assert "Traceback" not in up.log.read_text()


def test_one_process_per_data_folder(tmp_path: Path) -> None:
    """A second process for the same data folder prints a one-line error and exits with code 1."""
    lock = os.open(tmp_path / "lethe.lock", os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    done = _run(processes.LETHE, "up", data=tmp_path)
    os.close(lock)
    refusal = f"error: already_running: Another lethe serves {tmp_path}; stop it or set LETHE_DATA_DIR.\n"
    assert (done.returncode, done.stdout, done.stderr) == (1, "", refusal)
    assert not (tmp_path / "lethe.db").exists()


@pytest.mark.parametrize("command", ["up", pytest.param("serve", marks=pytest.mark.soak)])
def test_a_port_in_use_is_reported(command: str, tmp_path: Path, taken_port: int) -> None:
    """If the port is in use, the start fails with exit code 1 and a one-line error that names the settings to
    change."""
    done = _run(processes.LETHE, command, data=tmp_path / "data", port=str(taken_port))
    refusal = (
        f"error: address_in_use: Cannot listen on 127.0.0.1:{taken_port} (Address already in use);"
        " set LETHE_PORT or LETHE_HOST.\n"
    )
    assert (done.returncode, done.stdout, done.stderr) == (1, "", refusal)


@pytest.mark.soak
def test_memory_is_cleaned_once_calls_pause() -> None:
    """Memory is cleaned at the first tick with no calls since the previous tick, and at every fifth tick after that. If
    calls arrive between all ticks, it is cleaned at the eleventh tick."""
    server = uvicorn.Server(uvicorn.Config(FastAPI()))
    forgetting, cleaned = supervisor._Forgetting(server), []

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "stop" and info["generation"] == 2:
            cleaned.append(tick)

    gc.callbacks.append(note)
    try:
        for tick in range(40):
            server.server_state.total_requests += tick in {0, *range(12, 36)}
            apart(lambda: asyncio.run(forgetting()))
    finally:
        gc.callbacks.remove(note)
    assert {1, 6, 11, 22, 33, 36} <= set(cleaned)
    assert len(set(cleaned)) < 15  # the collector may also run by itself


_KEYLESS = (
    "/healthz",
    "/readyz",
    "/.well-known/jwks.json",
    "/openapi.json",
    "/docs",
    "/docs/swagger-ui-bundle.js",
    "/admin/login",
    "/metrics",
    "/v1/models",
    "/nothing",
)
"""Paths that answer callers without a key, if only with a refusal."""


def _answers(connection: socket.socket) -> int:
    """Read until the server closes the connection, and return the number of responses."""
    content = bytearray()
    with contextlib.suppress(ConnectionResetError):
        while part := connection.recv(1 << 20):
            content += part
    return content.count(b"HTTP/1.1 ")


def test_pipelined_calls_without_a_key_are_bounded(settings: Settings) -> None:
    """Sixteen pipelined calls are served in addition to the current one. A connection with more calls is closed after
    at most that many responses, and a call on another connection is served in the meantime."""
    with processes.gateway(settings) as (_, url):
        address = httpx.URL(url)
        for path in _KEYLESS:
            call = f"GET {path} HTTP/1.1\r\nHost: lethe\r\n\r\n".encode()
            with socket.create_connection((address.host, address.port), timeout=240) as few:
                few.sendall(call * 16 + call.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
                assert _answers(few) == 17, path
            with socket.create_connection((address.host, address.port), timeout=240) as many:
                many.sendall(call * 500)
                assert httpx.get(address.join("/healthz"), timeout=240).status_code == 200
                assert _answers(many) <= 17, path
