"""A database server that has not started yet, stops, crashes or restarts."""

import functools
import signal
import statistics
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient
from pydantic import SecretStr

from app import installations
from app.config import Settings
from app.db.tables import DeletionRequest, Run
from app.installations import Installation
from app.main import create_app
from tests.conftest import FORM, npz
from tests.faults import hops, processes
from tests.faults.checks import assert_all_done_once
from tests.faults.processes import LETHE, environment_of, wait_until
from tests.postgres import server
from tests.postgres.server import Server

pytestmark = pytest.mark.postgres

Make = Callable[..., dict[str, Any]]
Get = Callable[[str], Any]


@pytest.fixture(scope="module")
def mortal() -> Iterator[Server]:
    """Start a server that these tests are allowed to stop."""
    with server.running() as started:
        yield started


@pytest.fixture
def settings(mortal: Server, tmp_path: Path) -> Iterator[Settings]:
    """Set up an installation on the server that these tests stop, and start the server again after a test that stopped
    it."""
    with mortal.database() as name:
        url = SecretStr(mortal.url(name))
        settings = Settings(data_dir=tmp_path / "data", database_url=url, lease_seconds=2.0, poll_seconds=0.1)
        installations.set_up(settings)
        yield settings
        if not mortal.answers():
            mortal.start()


def test_a_gateway_survives_an_outage_of_its_database(gateway: TestClient, mortal: Server) -> None:
    """While the database is unavailable, the gateway returns 503 with a retry time. Once the database is back, the
    gateway works again."""
    assert gateway.get("/v1/models").status_code == 200
    mortal.stop()
    for path in ("/v1/models", "/readyz"):
        answer = gateway.get(path)
        assert answer.status_code == 503
        assert answer.headers["content-type"] == "application/problem+json"
        assert int(answer.headers["retry-after"]) > 0
        assert answer.json()["code"] == "unavailable"
    assert gateway.get("/healthz").status_code == 200
    waited = []
    for _ in range(5):
        started = time.monotonic()
        assert gateway.post("/v1/deletion-requests", json={"subject_id": "p"}).status_code == 503
        waited.append(time.monotonic() - started)
    assert statistics.median(waited) < 1.9  # the gateway waits for an outage once, for two seconds
    mortal.start()
    assert gateway.get("/v1/models").status_code == 200
    assert gateway.get("/readyz").status_code == 200


@pytest.fixture
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make gateways wait for the database server for as long as it could take to start on a slow machine."""
    monkeypatch.setattr(installations, "opened", functools.partial(installations.opened, patience_seconds=60.0))


@pytest.mark.usefixtures("patience")
def test_a_call_during_a_short_restart_succeeds(gateway: TestClient, mortal: Server) -> None:
    """A call during a short restart of the database server takes longer but succeeds."""
    assert gateway.get("/v1/models").status_code == 200
    mortal.stop()
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(gateway.get, "/v1/models")
        time.sleep(0.5)
        assert not waiting.done()
        mortal.start()
        assert waiting.result().status_code == 200


def test_a_gateway_may_start_before_its_database(settings: Settings, admin_key: str, mortal: Server) -> None:
    """A gateway that is started before its database reports the database as unavailable until the database starts."""
    mortal.stop()
    with TestClient(create_app(settings), raise_server_exceptions=False) as gateway:
        gateway.headers["Authorization"] = f"Bearer {admin_key}"
        assert gateway.get("/v1/models").status_code == 503
        mortal.start()
        assert gateway.get("/v1/models").status_code == 200


@pytest.mark.soak
def test_setting_up_waits_for_the_database(settings: Settings, mortal: Server) -> None:
    """`lethe migrate` can be started before the database server and waits for it."""
    assert settings.database_url
    environment = environment_of(settings.data_dir, database_url=settings.database_url.get_secret_value())
    environment["PYTHONUNBUFFERED"] = "1"
    mortal.stop()
    with subprocess.Popen([LETHE, "migrate"], env=environment, stdout=subprocess.PIPE) as migrating:
        assert migrating.stdout
        assert b"database.unreachable" in migrating.stdout.readline()
        mortal.start()
        assert migrating.wait(120) == 0


def test_a_crash_under_load_loses_no_request(
    settings: Settings,
    admin_key: str,
    mortal: Server,
    installation: Installation,
    new_dataset: Make,
    new_model: Make,
    work: Any,
) -> None:
    """Every request accepted while the database server crashes and restarts is stored once and completes."""
    new_model(new_dataset()["id"], noise_scale=0.02)
    assert work() == 1
    ended = threading.Event()
    answers: list[int] = []
    accepted: dict[str, str] = {}

    def ask(address: str, first: int) -> None:
        with httpx.Client(base_url=address, headers={"Authorization": f"Bearer {admin_key}"}, timeout=120) as client:
            person = first
            while not ended.is_set():
                key = {"Idempotency-Key": f"key {person}"}
                answer = client.post("/v1/deletion-requests", json={"subject_id": f"p{person}"}, headers=key)
                answers.append(answer.status_code)
                if answer.status_code == 202:
                    accepted[f"p{person}"] = answer.json()["id"]
                    person += 3
                if person >= 60:
                    return
                time.sleep(0.05)

    with processes.gateway(settings) as (_, address):
        asking = [threading.Thread(target=ask, args=(address, first)) for first in range(3)]
        for thread in asking:
            thread.start()
        for _ in range(2):
            time.sleep(0.4)
            mortal.stop(signal.SIGQUIT)
            mortal.start()
        wait_until(lambda: len(accepted) >= 3)
        ended.set()
        for thread in asking:
            thread.join()
    assert set(answers) <= {202, 503}
    assert len(accepted) >= 3
    while work():
        pass
    with installation.database.reading() as session:
        stored = list(session.scalars(sa.select(DeletionRequest)))
        assert set(accepted.values()) <= {request.id for request in stored}
        assert len(stored) == len({request.subject_ref for request in stored})  # no request was stored twice
    assert_all_done_once(installation)


def test_a_run_survives_a_restart(
    settings: Settings,
    mortal: Server,
    installation: Installation,
    new_dataset: Make,
    new_model: Make,
    forget: Make,
    get: Get,
    work: Any,
) -> None:
    """A run in progress during a restart of the database server is published by the same worker."""
    new_model(new_dataset()["id"], noise_scale=0.02)
    assert work() == 1
    request = forget("p3")
    patient = settings.model_copy(update={"lease_seconds": 30.0})
    with processes.worker(patient, name="long", hop="mid-chain", act=hops.halt) as long:
        halted = long.halted_run()
        mortal.stop()
        mortal.start()
        halted.resume()
        wait_until(lambda: get(f"/deletion-requests/{request['id']}")["status"] == "completed")
        assert long.stop() == 0
    assert_all_done_once(installation)
    with installation.database.reading() as session:
        assert set(session.scalars(sa.select(Run.status))) == {"published"}


def test_an_idle_worker_survives_a_restart(
    settings: Settings, mortal: Server, installation: Installation, new_dataset: Make, new_model: Make, get: Get
) -> None:
    """A worker that is polling during a restart of the database server finds work that arrives after the restart."""
    with processes.worker(settings) as worker:
        wait_until(lambda: worker.logged("worker.started"))
        mortal.stop()
        time.sleep(0.5)
        mortal.start()
        model = new_model(new_dataset()["id"])
        wait_until(lambda: get(f"/models/{model['id']}")["status"] == "live")
        assert worker.stop() == 0
    assert_all_done_once(installation)


@pytest.mark.soak
def test_up_survives_an_outage(settings: Settings, mortal: Server, installation: Installation, admin_key: str) -> None:
    """During a long outage of PostgreSQL, `lethe up` returns 503, and its worker resumes once the server is back."""
    assert settings.database_url
    environment = {"database_url": settings.database_url.get_secret_value(), "poll_seconds": "0.1"}
    with processes.forked_up(settings.data_dir, **environment) as lethe:
        headers = {"Authorization": f"Bearer {admin_key}"}
        with httpx.Client(base_url=f"{lethe.address()}/v1", headers=headers, timeout=240) as client:
            files = {"file": ("people.npz", npz())}
            dataset = client.post("/datasets", data=FORM, files=files).json()
            lethe.worker()
            mortal.stop()
            time.sleep(4)
            assert client.get("/models").status_code == 503
            mortal.start()
            body = {"name": "model", "dataset_id": dataset["id"], "l2": 0.05}
            model = client.post("/models", json=body).json()
            wait_until(lambda: client.get(f"/models/{model['id']}").json()["status"] == "live")
        assert lethe.end() == 0
    assert_all_done_once(installation)
