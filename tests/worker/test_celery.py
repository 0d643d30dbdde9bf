"""The worker behind a broker: a real Redis, a real Celery worker, and either of them dying."""

import base64
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from pydantic import SecretStr

from app import dispatch
from app.config import Settings
from app.installation import Installation
from tests.faults import processes
from tests.faults.checks import assert_all_done_once
from tests.faults.processes import wait_until

pytestmark = pytest.mark.redis

Make = Callable[..., dict[str, Any]]
Get = Callable[[str], Any]
Start = Callable[..., contextlib.AbstractContextManager[subprocess.Popen[bytes]]]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[processes.Redis]:
    server = processes.Redis(tmp_path)
    yield server
    server.kill()


@pytest.fixture
def settings(settings: Settings, broker: processes.Redis) -> Iterator[Settings]:
    """An installation that rings through the broker, and whose leases are short."""
    yield settings.model_copy(update={"broker_url": SecretStr(broker.url), "lease_seconds": 1.5})
    dispatch.celery_client(broker.url).close()


@pytest.fixture
def celery(settings: Settings, broker: processes.Redis, tmp_path: Path) -> Start:
    """Start `celery -A worker.celery_app worker --pool solo` with these options more; killed when the block ends."""

    @contextlib.contextmanager
    def start(*options: str) -> Iterator[subprocess.Popen[bytes]]:
        command = [sys.executable, "-m", "celery", "-A", "worker.celery_app", "worker", "--pool", "solo", *options]
        environment = processes.environment_of(
            settings.data_dir, broker_url=broker.url, lease_seconds=str(settings.lease_seconds), poll_seconds="0.1"
        )
        with (tmp_path / "celery.log").open("ab") as log:
            process = subprocess.Popen(
                command, env=environment, cwd=tmp_path, stdout=log, stderr=log, start_new_session=True
            )
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    return start


@pytest.fixture
def long_runs(get: Get, new_model: Make, new_dataset: Make) -> Callable[[], dict[str, Any]]:
    """Ask for a model whose runs take long enough to be seen running."""
    return lambda: new_model(new_dataset(rows=400)["id"], l2=5e-5, noise_scale=5e-4)


def _completed(get: Get, request: dict[str, Any]) -> bool:
    return bool(get(f"/deletion-requests/{request['id']}")["status"] == "completed")


def test_message_says_nothing(
    broker: processes.Redis, new_dataset: Make, new_model: Make, forget: Make, work: Callable[[], int]
) -> None:
    """What waits in the broker names no person, request, model, dataset or run: its task has no arguments."""
    dataset = new_dataset()
    model = new_model(dataset["id"])
    work()
    request = forget("p3")
    with redis.Redis(port=broker.port) as client:
        messages = client.lrange("celery", 0, -1)
        everything = b"".join(client.dump(key) for key in client.scan_iter())
    assert len(messages) == 2
    for message in messages:
        body = json.loads(base64.b64decode(json.loads(message)["body"]))
        assert body == [[], {}, {"callbacks": None, "errbacks": None, "chain": None, "chord": None}]
        for name in (dataset["id"], model["id"], request["id"], request["subject_ref"], "p3"):
            assert name.encode() not in message
            assert name.encode() not in everything


@pytest.mark.slow
def test_request_completes(
    celery: Start, at: Installation, new_dataset: Make, new_model: Make, forget: Make, get: Get
) -> None:
    """A model is learned and a request completed by a Celery worker that hears the bell, without a sweeper."""
    with celery() as worker:
        model = new_model(new_dataset()["id"], noise_scale=0.02)
        wait_until(lambda: get(f"/models/{model['id']}")["status"] == "live")
        request = forget("p3")
        wait_until(lambda: _completed(get, request))
        worker.terminate()
        assert worker.wait(30) == 0
    assert_all_done_once(at)


@pytest.mark.slow
def test_work_from_before_any_worker_is_found(
    celery: Start, broker: processes.Redis, at: Installation, new_dataset: Make, new_model: Make, forget: Make, get: Get
) -> None:
    """A worker that starts last, on a broker that lost every message, finds what was asked for by itself."""
    new_model(new_dataset()["id"], noise_scale=0.02)
    request = forget("p3")
    broker.kill()
    broker.start()
    with celery("--beat") as worker:
        wait_until(lambda: _completed(get, request))
        worker.terminate()
        assert worker.wait(30) == 0
    assert_all_done_once(at)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["gone", "silent"])
def test_broker_away_while_submitting(
    how: str,
    celery: Start,
    broker: processes.Redis,
    at: Installation,
    new_model: Make,
    new_dataset: Make,
    forget: Make,
    get: Get,
) -> None:
    """Without a broker, or with one that does not answer, requests are accepted within 5 s; they are done once it is
    back."""
    with celery("--beat") as worker:
        model = new_model(new_dataset()["id"], noise_scale=0.02)
        wait_until(lambda: get(f"/models/{model['id']}")["status"] == "live")
        if how == "gone":
            broker.kill()
        else:
            broker.process.send_signal(signal.SIGSTOP)
        made = []
        for person in range(3):
            started = time.monotonic()
            made.append(forget(f"p{person}"))
            assert time.monotonic() - started < 5
        if how == "gone":
            broker.start()
        else:
            broker.process.send_signal(signal.SIGCONT)
        for request in made:
            wait_until(lambda request=request: _completed(get, request))
        worker.terminate()
        assert worker.wait(30) == 0
    assert_all_done_once(at)


@pytest.mark.slow
def test_worker_killed_in_a_run(
    celery: Start, at: Installation, long_runs: Callable[[], dict[str, Any]], forget: Make, get: Get
) -> None:
    """What a Celery worker held that was killed -9 is done by the next when its lease is over, once."""
    model = long_runs()
    with celery("--beat") as worker:
        wait_until(lambda: get(f"/models/{model['id']}")["status"] == "live")
        request = forget("p3")
        wait_until(lambda: get(f"/deletion-requests/{request['id']}")["status"] == "running")
        os.killpg(worker.pid, signal.SIGKILL)
    with celery("--beat") as worker:
        wait_until(lambda: _completed(get, request))
        worker.terminate()
        assert worker.wait(30) == 0
    assert [run["status"] for run in get("/runs")["items"]] == ["published", "abandoned", "published"]
    assert_all_done_once(at)


def test_celery_worker_without_a_broker_says_what_to_do(tmp_path: Path) -> None:
    """Without LETHE_BROKER_URL the Celery worker ends with a sentence that says which setting is missing."""
    command = [sys.executable, "-c", "import worker.celery_app"]
    done = subprocess.run(
        command, env=processes.environment_of(tmp_path), cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr.startswith("LETHE_BROKER_URL is not set")
