"""The worker behind a broker: a real Redis or RabbitMQ and a real Celery worker, either of which can die."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from app.config import Settings
from app.installations import Installation
from app.journal import verification
from tests.faults import hops, processes
from tests.faults.checks import assert_all_done_once
from tests.faults.deployment import Service
from tests.faults.processes import wait_until
from tests.features.brokers.brokers import BOTH_AT_LENGTH, BOTH_BROKERS, is_completed, runs_of

pytestmark = pytest.mark.redis
Make = Callable[..., dict[str, Any]]
Get = Callable[[str], Any]
Worker = Callable[..., Service]
Broker = processes.Redis | processes.RabbitMQ


@pytest.mark.soak
@BOTH_AT_LENGTH
def test_a_notified_worker_completes_a_request(
    settings: Settings,
    broker: Broker,
    installation: Installation,
    tmp_path: Path,
    new_dataset: Make,
    new_model: Make,
    forget: Make,
    get: Get,
) -> None:
    """When notified, a Celery worker trains a model and completes a request even if no periodic sweep runs."""
    command = [sys.executable, "-m", "celery", "-A", "worker.celery_app", "worker", "--pool", "solo"]
    environment = processes.environment_of(settings.data_dir, broker_url=broker.url)
    with (
        (tmp_path / "celery.log").open("ab") as log,
        subprocess.Popen(command, env=environment, cwd=tmp_path, stdout=log, stderr=log) as started,
    ):
        try:
            model = new_model(new_dataset()["id"], noise_scale=0.02)
            wait_until(lambda: get(f"/models/{model['id']}")["status"] == "live")
            request = forget("p3")
            wait_until(lambda: is_completed(get, request))
            started.terminate()
            assert started.wait(120) == 0
        finally:
            started.kill()
    assert_all_done_once(installation)


@pytest.mark.soak
@BOTH_BROKERS
def test_a_late_worker_finds_earlier_work(
    worker: Worker,
    beat: Service,
    broker: Broker,
    installation: Installation,
    new_dataset: Make,
    new_model: Make,
    forget: Make,
    get: Get,
) -> None:
    """A worker that starts after the broker has lost every message finds the requested work in the database."""
    new_model(new_dataset()["id"], noise_scale=0.02)
    request = forget("p3")
    broker.kill()
    broker.start()
    one = worker("one")
    beat.start()
    wait_until(lambda: is_completed(get, request))
    assert one.child.stop() == 0
    assert_all_done_once(installation)


@BOTH_AT_LENGTH
@pytest.mark.parametrize("how", ["gone", "silent"])
def test_requests_are_accepted_without_the_broker(
    how: str,
    worker: Worker,
    beat: Service,
    broker: Broker,
    installation: Installation,
    live: dict[str, Any],
    forget: Make,
    get: Get,
) -> None:
    """Requests are accepted within 5 s even if the broker is down or silent. They complete once the broker is back,
    even if the worker had exited and was restarted."""
    one = worker("one")
    one.ready()
    if how == "gone":
        broker.kill()
    else:
        broker.send(signal.SIGSTOP)
    made, waits = [], []
    for person in range(3):
        started = time.monotonic()
        made.append(forget(f"p{person}"))
        waits.append(time.monotonic() - started)
    # One call may be slow because the machine is busy.
    assert sorted(waits)[1] < 5
    if how == "gone":
        broker.start()
    else:
        broker.send(signal.SIGCONT)
    beat.start()

    def all_completed() -> bool:
        for service in (one, beat):
            service.restart_if_ended()
        return all(is_completed(get, request) for request in made)

    wait_until(all_completed)
    assert one.child.stop() == 0
    assert_all_done_once(installation)


def test_the_run_of_a_killed_worker_is_repeated(
    worker: Worker, beat: Service, installation: Installation, live: dict[str, Any], forget: Make, get: Get
) -> None:
    """If a Celery worker is killed with SIGKILL, another worker repeats its run exactly once after the lease has
    expired."""
    one = worker("one", hop="mid-chain", act=hops.die)
    request = forget("p3")
    assert one.child.died() == -signal.SIGKILL
    two = worker("two")
    beat.start()
    wait_until(lambda: is_completed(get, request))
    assert two.child.stop() == 0
    assert runs_of(get) == [("unlearn", "published"), ("unlearn", "abandoned"), ("learn", "published")]
    assert_all_done_once(installation)


def test_a_starting_worker_verifies_the_tombstones(settings: Settings, worker: Worker) -> None:
    """A worker verifies the tombstones at startup, so that damage is reported before any run, even without a
    gateway."""
    settings.resolved_tombstones().write_text("no line of ours\n")
    worker("first")
    wait_until(lambda: (verdict := verification.last_verdict(settings)) is not None and verdict.found == "damaged")


def test_a_worker_without_a_broker_names_the_setting(tmp_path: Path) -> None:
    """A Celery worker without LETHE_BROKER_URL exits with a message that names the missing setting."""
    command = [sys.executable, "-c", "import worker.celery_app"]
    done = subprocess.run(
        command, env=processes.environment_of(tmp_path), cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr.startswith("LETHE_BROKER_URL is not set")
