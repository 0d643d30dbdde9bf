"""A worker, a gateway or the whole installation is killed with SIGKILL at a hop and restarted."""

import contextlib
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
import sqlalchemy as sa

from app.config import Settings
from app.db.tables import DeletionRequest, Erasure, RequestEvent, RequestModel, Run, Version
from app.installations import Installation
from tests.conftest import FORM
from tests.faults import hops, processes
from tests.faults.checks import assert_all_done_once
from tests.faults.processes import wait_until
from tests.tables import at_length

Make = Callable[..., dict[str, Any]]
Get = Callable[[str], Any]
KILLED = -signal.SIGKILL

AT_DEATH = {
    "heard": (0, 0, 2),
    "claim not committed": (0, 0, 2),
    "claimed": (1, 0, 2),
    "key of a new block put": (1, 0, 2),
    "new block put": (1, 0, 2),
    "rows written beside": (1, 0, 2),
    "rows not committed": (1, 0, 2),
    "about to destroy the old rows": (1, 0, 2),
    "a key of the old rows zeroed": (1, 0, 2),
    "old rows destroyed": (1, 0, 2),
    "confirmation not committed": (1, 0, 2),
    "confirmed": (1, 1, 2),
    "mid-chain": (1, 1, 2),
    "key of the weights put": (1, 1, 2),
    "weights put": (1, 1, 2),
    "publication not committed": (1, 1, 2),
    "published": (0, 1, 2),
    "about to destroy": (0, 1, 2),
    "old key zeroed": (0, 1, 2),
    "old weights gone": (0, 1, 2),
}
"""Expected state of the database after a worker was killed at each hop: running runs, confirmed erasures and published
versions.

The dataset has two models, or one if the hop comes after publication, so that no other work remains."""


@pytest.mark.parametrize(
    "hop", at_length(hops.INSTALL, besides=("claimed", "old rows destroyed", "mid-chain", "publication not committed"))
)
def test_worker_killed_while_unlearning(
    hop: str,
    settings: Settings,
    installation: Installation,
    new_dataset: Make,
    new_model: Make,
    forget: Make,
    get: Get,
    work: Callable[[], int],
) -> None:
    """If a worker is killed at any step of an unlearning run, another worker completes the same request exactly once,
    for every model of the dataset."""
    dataset = new_dataset(rows=60, rows_each=2)
    models = 1 if AT_DEATH[hop][0] == 0 and AT_DEATH[hop][1] == 1 else 2
    for _ in range(models):
        new_model(dataset["id"], noise_scale=0.02)
    assert work() == models
    request = forget("p3")
    with processes.worker(settings, name="first", hop=hop) as first:
        assert first.died() == KILLED, first.log.read_text()
    with installation.database.reading() as session:
        running = sa.select(sa.func.count()).where(Run.status == "running")
        confirmed = sa.select(sa.func.count()).where(Erasure.nulled_at.is_not(None))
        published = sa.select(sa.func.count()).select_from(Version)
        assert tuple(session.scalar(query) for query in (running, confirmed, published)) == AT_DEATH[hop]
    _another_completes(settings, get, request)
    assert_all_done_once(installation)
    assert get(f"/datasets/{dataset['id']}")["num_records"] == 58
    assert get(f"/datasets/{dataset['id']}")["revision"] == 1
    assert [owed["version"] for owed in get(f"/deletion-requests/{request['id']}")["models"]] == [2] * models


@pytest.mark.parametrize("hop", at_length(hops.OF_LEARNING, besides=("mid-chain",)))
def test_worker_killed_while_training(
    hop: str, settings: Settings, installation: Installation, new_dataset: Make, new_model: Make, forget: Make, get: Get
) -> None:
    """If a worker is killed at any step of a first run, another worker takes over. The model is trained once and can
    then forget people."""
    dataset = new_dataset(rows=60)
    model = new_model(dataset["id"])
    with processes.worker(settings, name="first", hop=hop) as first:
        assert first.died() == KILLED, first.log.read_text()
    request = forget("p3")
    _another_completes(settings, get, request)
    assert_all_done_once(installation)
    assert get(f"/models/{model['id']}")["status"] == "live"
    published = [run["kind"] for run in get("/runs")["items"] if run["status"] == "published"]
    learned_before = hop in ("published", "about to destroy")
    assert published == (["unlearn", "learn"] if learned_before else ["learn"])


def _another_completes(settings: Settings, get: Get, request: dict[str, Any]) -> None:
    with processes.worker(settings, name="second") as second:
        wait_until(lambda: second.logged("worker.started"))
        wait_until(lambda: get(f"/deletion-requests/{request['id']}")["status"] == "completed")
        assert second.stop() == 0


@pytest.mark.parametrize(
    "victims", at_length([("worker",), ("run",), ("worker", "run"), ("server",)], besides=[("worker",), ("run",)])
)
def test_kill_within_a_chain_leaves_no_process(
    victims: tuple[str, ...],
    settings: Settings,
    installation: Installation,
    new_dataset: Make,
    new_model: Make,
    forget: Make,
    get: Get,
    work: Callable[[], int],
) -> None:
    """If the worker, the process or the fork server of a run is killed, all its processes and files are gone within a
    second, and the same worker or another one repeats the run."""
    new_model(new_dataset(rows=60)["id"], noise_scale=0.02)
    assert work() == 1
    before = _files(settings)
    request = forget("p3")
    with processes.worker(settings, name="first", hop="mid-chain", act=hops.linger) as first:
        wait_until(lambda: first.logged("hops.lingers"))
        worker = psutil.Process(first.process.pid)
        [server] = worker.children()
        [run] = server.children()
        there = {"worker": worker, "server": server, "run": run}
        for victim in victims:
            there[victim].kill()
        dead = {"worker": (worker, server, run), "server": (server, run), "run": (run,)}[victims[0]]
        wait_until(lambda: all(_gone(process) for process in dead), seconds=60)
        if victims[0] == "worker":
            assert first.died() == KILLED
            assert _files(settings) == before | {Path("bell"): 1}
            _another_completes(settings, get, request)
        else:
            wait_until(lambda: get(f"/deletion-requests/{request['id']}")["status"] == "completed")
            assert first.stop() == 0
    assert_all_done_once(installation)
    with installation.database.reading() as session:
        runs = session.execute(sa.select(Run.status, Run.error_code).order_by(Run.started_at)).all()
    failed = ("abandoned", "lease_expired") if victims[0] == "worker" else ("failed", "run_process_died")
    assert runs == [("published", None), failed, ("published", None)]


def _gone(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.status() == psutil.STATUS_ZOMBIE
    return True


def _files(settings: Settings) -> Counter[Path]:
    """Count the files, except those of the database and the heartbeat that a worker writes after five seconds. Blocks
    of rows are counted by kind, because each edit renames them."""
    there = (path.relative_to(settings.data_dir) for path in settings.data_dir.rglob("*"))
    kept = (path for path in there if not path.name.startswith("lethe.db") and "workers" not in path.parts)
    return Counter(path.parent / (path.suffix if "blocks" in path.parts else path.name) for path in kept)


@pytest.mark.soak
def test_repeated_deaths_end_in_one_version(
    settings: Settings,
    installation: Installation,
    new_dataset: Make,
    new_model: Make,
    forget: Make,
    get: Get,
    work: Callable[[], int],
) -> None:
    """If three workers die in a row, each at a later point of the run, the result is still one version, one
    certificate and one completion."""
    dataset = new_dataset(rows=60)
    new_model(dataset["id"], noise_scale=0.02)
    assert work() == 1
    request = forget("p3")
    for number, hop in enumerate(("rows written beside", "mid-chain", "weights put")):
        with processes.worker(settings, name=f"mortal{number}", hop=hop) as mortal:
            assert mortal.died() == KILLED, mortal.log.read_text()
    _another_completes(settings, get, request)
    assert_all_done_once(installation)
    runs = [(run["status"], run["repeated"]) for run in get("/runs")["items"]]
    assert runs == [("published", 0), ("abandoned", 1), ("abandoned", 0), ("published", 0)]


def test_requests_while_no_worker_runs_complete(
    settings: Settings,
    installation: Installation,
    new_dataset: Make,
    new_model: Make,
    forget: Make,
    get: Get,
    work: Callable[[], int],
) -> None:
    """Requests made between a worker's death and the start of the next worker complete once each, including a second
    request for the same person."""
    dataset = new_dataset(rows=60)
    new_model(dataset["id"], noise_scale=0.02)
    assert work() == 1
    made = [forget("p3")]
    with processes.worker(settings, name="first", hop="mid-chain") as first:
        assert first.died() == KILLED, first.log.read_text()
    made += [forget("p3"), forget("p4")]
    with processes.worker(settings, name="second") as second:
        for request in made:
            wait_until(lambda path=f"/deletion-requests/{request['id']}": get(path)["status"] == "completed")
        assert second.stop() == 0
    with installation.database.reading() as session:
        completed = session.scalars(sa.select(RequestEvent.request_id).where(RequestEvent.status == "completed"))
        assert sorted(completed) == sorted(request["id"] for request in made)
    assert get(f"/datasets/{dataset['id']}")["num_records"] == 58


def test_gateway_killed_while_accepting_loses_no_request(
    settings: Settings,
    installation: Installation,
    admin_key: str,
    new_dataset: Make,
    new_model: Make,
    work: Callable[[], int],
) -> None:
    """If a gateway is killed with SIGKILL, every request for which it had returned 202 is stored completely, and
    repeating all requests with their idempotency keys creates no duplicate."""
    dataset = new_dataset(rows=400)
    new_model(dataset["id"], noise_scale=0.02)
    assert work() == 1
    answered: dict[int, str] = {}
    people = iter(range(400))
    headers = {"Authorization": f"Bearer {admin_key}"}

    def submit(client: httpx.Client, person: int) -> str:
        named = {"Idempotency-Key": f"key-{person}"}
        answer = client.post("/v1/deletion-requests", json={"subject_id": f"p{person}"}, headers=named)
        assert answer.status_code == 202, answer.text
        found: str = answer.json()["id"]
        return found

    def submit_all(address: str) -> None:
        with (
            httpx.Client(base_url=address, headers=headers, timeout=120) as client,
            contextlib.suppress(httpx.HTTPError),
        ):
            for person in people:
                answered[person] = submit(client, person)

    with processes.gateway(settings) as (gateway, address):
        threads = [threading.Thread(target=submit_all, args=(address,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        wait_until(lambda: len(answered) >= 10)
        gateway.kill()
        for thread in threads:
            thread.join()
    asked = next(people)
    assert 10 <= len(answered) <= asked < 400

    def assert_whole() -> set[str]:
        with installation.database.reading() as session:
            ids = set(session.scalars(sa.select(DeletionRequest.id)))
            for table, column in (
                (sa.select(Erasure.request_id), ["one"]),
                (sa.select(RequestModel.request_id), ["one"]),
                (sa.select(RequestEvent.request_id), ["received", "accepted"]),
            ):
                assert sorted(session.scalars(table)) == sorted(list(ids) * len(column))
        return ids

    there = assert_whole()
    assert set(answered.values()) <= there
    with (
        processes.gateway(settings) as (_, address),
        httpx.Client(base_url=address, headers=headers, timeout=120) as client,
    ):
        again = {person: submit(client, person) for person in range(asked)}
    assert again | answered == again
    assert assert_whole() == set(again.values()) >= there
    assert work() >= 1
    assert_all_done_once(installation)


@pytest.mark.soak
def test_up_killed_and_restarted_completes_the_request(tmp_path: Path, upload: bytes) -> None:
    """If `lethe up` is killed with SIGKILL during a run, its worker ends too, and the request completes after a
    restart."""
    data = tmp_path / "data"
    with processes.forked_up(data, lease_seconds="600") as up, _client(up, data) as client:
        model = _learned_model(client, upload)
        request = _running_request(client)
        worker = up.worker()
        up.end(signal.SIGKILL)
        wait_until(lambda: not worker.is_running() or worker.status() == psutil.STATUS_ZOMBIE, seconds=60)
    with processes.forked_up(data, lease_seconds="600") as up, _client(up, data) as client:
        _completed(client, request)
        assert client.get(f"/v1/models/{model['id']}").json()["live_version"] == 2
        assert up.end() == 0
    _assert_ledger_verifies(data)


@pytest.mark.soak
def test_up_restarts_a_killed_worker(tmp_path: Path, upload: bytes) -> None:
    """If a worker is killed with SIGKILL during a run, it is restarted at once, and its run is handed back long before
    the lease expires."""
    data = tmp_path / "data"
    with processes.forked_up(data, lease_seconds="600") as up, _client(up, data) as client:
        _learned_model(client, upload)
        request = _running_request(client)
        killed = up.worker()
        killed.kill()

        def statuses() -> list[str]:
            return [run["status"] for run in client.get("/v1/runs").json()["items"]]

        wait_until(lambda: "abandoned" in statuses(), seconds=60)
        _completed(client, request)
        assert statuses() == ["published", "abandoned", "published"]
        assert up.worker().pid != killed.pid
        assert up.end() == 0
    _assert_ledger_verifies(data)


@pytest.mark.soak
def test_up_wipes_uploads_of_a_killed_gateway(tmp_path: Path) -> None:
    """If an upload is interrupted by SIGKILL, its files are removed the next time `lethe up` starts."""
    data = tmp_path / "data"
    big = b"x,y\n" + b"0.5,a\n0.25,b\n" * 500_000
    schema = '{"columns": {"x": {"kind": "numeric", "min": 0, "max": 1}, "y": {"role": "label", "values": ["a", "b"]}}}'
    with processes.forked_up(data) as up, _client(up, data) as client:

        def send() -> None:
            with contextlib.suppress(httpx.HTTPError):
                client.post("/v1/datasets", data={"name": "big", "schema": schema}, files={"file": ("big.csv", big)})

        sending = threading.Thread(target=send)
        sending.start()
        wait_until(lambda: list((data / "blocks").glob("*.sealed")))
        up.end(signal.SIGKILL)
        sending.join()
    assert list((data / "blocks").glob("*.sealed"))
    assert not list((data / "tmp").glob("*"))
    assert not any(b"0.25,b" in path.read_bytes() for path in data.rglob("*") if path.is_file())
    with processes.forked_up(data) as up:
        up.address()
        assert not list((data / "tmp").glob("*"))
        assert not list((data / "datasets").glob("*"))


@contextlib.contextmanager
def _client(up: processes.ForkedUp, data: Path) -> Iterator[httpx.Client]:
    address = up.address()
    headers = {"Authorization": f"Bearer {(data / 'keys' / 'admin.key').read_text().strip()}"}
    with httpx.Client(base_url=address, headers=headers, timeout=240) as client:
        yield client


def _learned_model(client: httpx.Client, upload: bytes) -> dict[str, Any]:
    """Return a model whose runs take long enough to be observed."""
    dataset = client.post("/v1/datasets", data=FORM, files={"file": ("d.npz", upload)}).json()
    asked = {"name": "m", "dataset_id": dataset["id"], "l2": 5e-5, "noise_scale": 5e-4}
    model: dict[str, Any] = client.post("/v1/models", json=asked).json()
    wait_until(lambda: client.get(f"/v1/models/{model['id']}").json()["status"] == "live", seconds=600)
    return model


def _running_request(client: httpx.Client) -> dict[str, Any]:
    request: dict[str, Any] = client.post("/v1/deletion-requests", json={"subject_id": "p3"}).json()
    wait_until(lambda: client.get(f"/v1/deletion-requests/{request['id']}").json()["status"] == "running")
    return request


def _completed(client: httpx.Client, request: dict[str, Any]) -> None:
    path = f"/v1/deletion-requests/{request['id']}"
    wait_until(lambda: client.get(path).json()["status"] == "completed")
    events = [event["status"] for event in client.get(f"{path}/events").json()["items"]]
    assert events.count("completed") == 1
    assert len(client.get(f"{path}/certificate").json()["certificates"]) == 1


def _assert_ledger_verifies(data: Path) -> None:
    done = processes.ended("lethe", "ledger", "verify", environment=processes.environment_of(data))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("valid  2 entries of 1 models")
