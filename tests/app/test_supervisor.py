"""`lethe up` and `lethe serve` as processes: they start, answer, end, and refuse in one line."""

import asyncio
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
from tests.conftest import FORM, npz
from tests.faults import processes
from tests.faults.processes import wait_until
from tests.threads import apart

pytestmark = pytest.mark.service


def _run(command: str, data: Path, **settings: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [processes.LETHE, command],
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


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.soak)])
def test_starts_answers_and_ends(tmp_path: Path, number: signal.Signals) -> None:
    """It says where it is, answers there, and ends with exit code 0 on SIGTERM and Ctrl-C, and its worker with it."""
    data = tmp_path / "data"
    with processes.up(data) as up:
        address = up.address()
        assert httpx.get(f"{address}/healthz", timeout=120).json() == {"status": "ok"}
        assert httpx.get(f"{address}/readyz", timeout=120).json()["status"] == "ready"
        assert up.process.stdout
        assert up.process.stdout.readline() == f"Admin key:  {data / 'keys' / 'admin.key'}\n"
        worker = up.worker()
        wait_until(lambda: '"worker.started"' in up.log.read_text())
        assert up.end(number) == 0
        assert not worker.is_running()
    assert "Traceback" not in up.log.read_text()
    assert stat.S_IMODE(data.stat().st_mode) == 0o700


@pytest.mark.soak
def test_ending_lets_the_run_finish(tmp_path: Path) -> None:
    """SIGTERM in the middle of a run lets the worker publish it first; the next start has nothing to take back."""
    data = tmp_path / "data"
    with processes.up(data) as up:
        address = up.address()
        headers = {"Authorization": f"Bearer {(data / 'keys' / 'admin.key').read_text().strip()}"}
        with httpx.Client(base_url=address, headers=headers, timeout=120) as client:
            dataset = client.post("/v1/datasets", data=FORM, files={"file": ("d.npz", npz(rows=2000))}).json()
            asked = {"name": "m", "dataset_id": dataset["id"], "l2": 5e-5, "noise_scale": 5e-4}
            model = client.post("/v1/models", json=asked).json()
            wait_until(lambda: client.get(f"/v1/models/{model['id']}").json()["progress"])
        assert up.end() == 0
    assert "unlearning.run_ended" in up.log.read_text()
    assert "worker.died" not in up.log.read_text()


@pytest.mark.soak
def test_data_folder_is_kept(tmp_path: Path) -> None:
    """Started again on its data folder, it has the same admin key and signs with the same key."""
    kept = []
    for _ in range(2):
        with processes.up(tmp_path / "data") as up:
            keys = httpx.get(f"{up.address()}/.well-known/jwks.json", timeout=120).json()
            kept.append((keys, (tmp_path / "data" / "keys" / "admin.key").read_text()))
            assert up.end() == 0
    assert kept[0] == kept[1]


def test_a_worker_that_is_told_to_end_is_started_again(tmp_path: Path) -> None:
    """A worker that somebody else ends is replaced while `lethe up` serves on."""
    with processes.up(tmp_path / "data") as up:
        address = up.address()
        first = up.worker()
        first.terminate()
        wait_until(lambda: not first.is_running() or first.status() == psutil.STATUS_ZOMBIE)
        wait_until(lambda: up.worker().pid != first.pid)
        assert httpx.get(f"{address}/healthz", timeout=120).status_code == 200
        assert up.end() == 0


@pytest.mark.soak
def test_several_workers(tmp_path: Path) -> None:
    """It runs as many workers as it is told, of which the second takes deletions alone, and ends with all of them."""
    data = tmp_path / "data"
    with processes.up(data, workers="2") as up:
        up.address()
        wait_until(lambda: up.log.read_text().count('"worker.started"') == 2)
        workers = [
            child for child in psutil.Process(up.process.pid).children() if child.cmdline()[1:3] == ["-m", "worker"]
        ]
        names = sorted(worker.cmdline()[3:] for worker in workers)
        host = socket.gethostname()
        assert names == [[f"embedded-2@{host}", "--deletions-only"], [f"embedded@{host}"]]
        assert up.end() == 0
        assert not any(worker.is_running() for worker in workers)


def test_one_process_per_data_folder(tmp_path: Path) -> None:
    """Where another process serves the data folder, it says so in one line and ends with exit code 1."""
    lock = os.open(tmp_path / "lethe.lock", os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    done = _run("up", tmp_path)
    os.close(lock)
    refusal = f"error: already_running: Another lethe serves {tmp_path}; stop it or set LETHE_DATA_DIR.\n"
    assert (done.returncode, done.stdout, done.stderr) == (1, "", refusal)
    assert not (tmp_path / "lethe.db").exists()


@pytest.mark.soak
def test_second_up_leaves_the_first_alone(tmp_path: Path) -> None:
    """A second `lethe up` on the data folder of one that runs is refused, and the first serves on."""
    with processes.up(tmp_path / "data") as up:
        address = up.address()
        done = _run("up", tmp_path / "data")
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.startswith("error: already_running: ")
        assert done.stderr.count("\n") == 1
        assert httpx.get(f"{address}/healthz", timeout=120).status_code == 200


@pytest.mark.parametrize("command", ["up", pytest.param("serve", marks=pytest.mark.soak)])
def test_port_in_use(command: str, tmp_path: Path, taken_port: int) -> None:
    """Where the port is taken, it says which and what to set, in one line, and ends with exit code 1."""
    done = _run(command, tmp_path / "data", port=str(taken_port))
    refusal = (
        f"error: address_in_use: Cannot listen on 127.0.0.1:{taken_port} (Address already in use);"
        " set LETHE_PORT or LETHE_HOST.\n"
    )
    assert (done.returncode, done.stdout, done.stderr) == (1, "", refusal)


@pytest.mark.soak
def test_a_busy_gateway_puts_off_what_an_idle_one_does_each_second() -> None:
    """Memory is cleaned at every tick without calls, and at the eleventh where calls come between all of them."""
    server = uvicorn.Server(uvicorn.Config(FastAPI()))
    forgetting, cleaned = supervisor._Forgetting(server), []

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "stop" and info["generation"] == 2:
            cleaned.append(tick)

    gc.callbacks.append(note)
    try:
        for tick in range(30):
            server.server_state.total_requests += tick >= 5
            apart(lambda: asyncio.run(forgetting()))
    finally:
        gc.callbacks.remove(note)
    assert {0, 1, 2, 3, 4, 15, 26} <= set(cleaned)
    assert len(set(cleaned)) < 15  # the collector may come by itself
