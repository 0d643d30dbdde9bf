"""The production deployment under fire: everything is killed at random, again and again, while people keep asking."""

import contextlib
import os
import random
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
import sqlalchemy as sa
from pydantic import SecretStr

from app import installation
from app.config import Settings
from app.db.tables import Certificate, DeletionRequest, Run, Version
from tests.conftest import npz
from tests.faults import deployment, processes
from tests.faults.checks import assert_all_done_once
from tests.faults.deployment import Deployment, Service
from tests.faults.processes import wait_until
from tests.postgres import server

pytestmark = [pytest.mark.postgres, pytest.mark.redis, pytest.mark.slow]

KILLS = 100
ROWS = 800
VICTIMS = {"worker": 30, "run": 28, "gateway": 14, "redis": 10, "postgres": 8, "accounting": 5, "beat": 5}
"""What is killed, and how often in a hundred."""
LEASE_SECONDS = 2.0


@pytest.fixture
def whole(tmp_path: Path) -> Iterator[Deployment]:
    with server.running() as database, database.database() as name:
        url = SecretStr(database.url(name))
        settings = Settings(
            data_dir=tmp_path / "data", database_url=url, lease_seconds=LEASE_SECONDS, poll_seconds=0.1, threads=1
        )
        with deployment.deployed(settings, database, tmp_path) as whole:
            yield whole
        if not database.answers():
            database.start()


class Clients:
    """People who ask, each until they are answered 202 and then once more; and an auditor who reads meanwhile."""

    def __init__(self, whole: Deployment, admin_key: str, models: list[str], moments: random.Random) -> None:
        self.accepted: dict[str, str] = {}  # from person to request
        self.answers: Counter[Any] = Counter()
        self.read: Counter[Any] = Counter()
        self._whole = whole
        self._models = models
        self._headers = {"Authorization": f"Bearer {admin_key}"}
        self._ended = threading.Event()
        self._failures: list[BaseException] = []
        asking = [(self._ask, first, random.Random(moments.random())) for first in range(2)]
        self._threads = [
            threading.Thread(target=self._watched, args=what) for what in (*asking, (self._audit, moments))
        ]
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        """Wait until whoever has asked has been answered. Raises what went wrong in asking."""
        self._ended.set()
        for thread in self._threads:
            thread.join(120)
        if self._failures:
            raise self._failures[0]

    def _watched(self, what: Callable[..., None], *arguments: Any) -> None:
        try:
            with httpx.Client(headers=self._headers, timeout=30) as client:
                what(client, *arguments)
        except BaseException as error:
            self._failures.append(error)

    def _ask(self, client: httpx.Client, first: int, moments: random.Random) -> None:
        for person in range(first, ROWS, 2):
            if self._ended.wait(moments.uniform(0.1, 1.5)):
                return
            asked = {"subject_id": f"p{person}"}
            named = {"Idempotency-Key": f"key-{person}"}
            said = [self._until_accepted(client, moments, json=asked, headers=named) for _ in range(2)]
            assert said[0] == said[1]
            self.accepted[f"p{person}"] = said[0]["id"]

    def _until_accepted(self, client: httpx.Client, moments: random.Random, **call: Any) -> Any:
        while True:
            address = moments.choice(self._whole.gateways).address()
            try:
                answer = client.post(f"{address}/v1/deletion-requests", **call)
            except httpx.TransportError as error:
                self.answers[type(error).__name__] += 1
                time.sleep(0.05)
                continue
            self.answers[answer.status_code] += 1
            if answer.status_code == 202:
                return answer.json()
            assert answer.status_code == 503, answer.text
            time.sleep(0.1)

    def _audit(self, client: httpx.Client, moments: random.Random) -> None:
        while not self._ended.wait(0.5):
            path = f"/v1/accounting/models/{moments.choice(self._models)}"
            try:
                answer = client.get(self._whole.accounting.address() + path)
            except httpx.TransportError as error:
                self.read[type(error).__name__] += 1
                continue
            self.read[answer.status_code] += 1
            assert answer.status_code in (200, 503), answer.text


class Chaos:
    """Whoever kills."""

    def __init__(self, whole: Deployment, moments: random.Random) -> None:
        self.killed: Counter[str] = Counter()
        self.ended: Counter[str] = Counter()
        """Services that ended by themselves, which a supervisor starts again."""
        self._whole = whole
        self._moments = moments
        self._asleep: list[tuple[float, psutil.Process]] = []

    def round(self) -> None:
        """Kill one thing or two at once, and start it again; stop a worker for longer than its lease now and then."""
        moments = self._moments
        time.sleep(moments.uniform(0, 0.9))
        kinds = moments.sample(list(VICTIMS), counts=VICTIMS.values(), k=moments.choice((1, 1, 2)))
        again = [start for kind in dict.fromkeys(kinds) if (start := self._kill(kind))]
        time.sleep(moments.uniform(0, 0.3))
        for start in again:
            start()
        if moments.random() < 0.1:
            self._stop(moments.choice(self._whole.workers))
        self._wake()
        self.supervise()

    def supervise(self) -> None:
        """Start again what has ended by itself."""
        for service in self._whole.services:
            self.ended[service.name] += service.restart_if_ended()

    def calm(self) -> None:
        """Whoever was stopped goes on."""
        while self._asleep:
            self._wake()
            time.sleep(0.1)

    def _kill(self, kind: str) -> Callable[[], None] | None:
        """Kill -9; what starts it again, None if there was nothing to kill."""
        whole = self._whole
        match kind:
            case "run":
                for run in whole.runs()[:1]:
                    with contextlib.suppress(psutil.NoSuchProcess):
                        run.kill()
                        self.killed[kind] += 1
                return None
            case "redis":
                whole.broker.kill()
                start = whole.broker.start
            case "postgres":
                whole.database.stop(signal.SIGQUIT)
                start = whole.database.start
            case _:
                service = self._moments.choice([one for one in whole.services if one.name.startswith(kind)])
                service.kill()
                start = service.start
        self.killed[kind] += 1
        return start

    def _stop(self, worker: Service) -> None:
        with contextlib.suppress(psutil.NoSuchProcess):
            process = worker.process()
            process.suspend()
            self._asleep.append((time.monotonic() + 1.5 * LEASE_SECONDS, process))
            self.killed["stopped"] += 1

    def _wake(self) -> None:
        due = [(at, process) for at, process in self._asleep if at <= time.monotonic()]
        for at, process in due:
            self._asleep.remove((at, process))
            with contextlib.suppress(psutil.NoSuchProcess):  # it was killed meanwhile
                process.resume()


def test_everything_is_killed_at_random(whole: Deployment, tmp_path: Path) -> None:
    """After a hundred kills every request that was accepted is completed once, and nothing else is left of them."""
    seed = int(os.environ.get("SOAK_SEED", random.randrange(2**32)))
    moments = random.Random(seed)
    print(f"SOAK_SEED={seed}")
    admin_key = whole.settings.resolved_admin_key_file().read_text().strip()
    with httpx.Client(headers={"Authorization": f"Bearer {admin_key}"}, timeout=60) as client:
        models = _learned(client, whole)
        began = time.monotonic()
        clients, chaos = Clients(whole, admin_key, models, moments), Chaos(whole, moments)
        while chaos.killed.total() - chaos.killed["stopped"] < KILLS:
            chaos.round()
        clients.end()
        chaos.calm()
        ended = time.monotonic()
        print(f"{ended - began:.0f} s of chaos: killed {chaos.killed}, ended by themselves {chaos.ended}")
        print(f"asked {clients.answers}, read {clients.read}")

        def all_completed() -> bool:
            chaos.supervise()
            return not _open(whole)

        wait_until(all_completed, seconds=120)
        print(f"{time.monotonic() - ended:.0f} s more to complete the rest")
    for service in (*whole.gateways, whole.accounting):  # the database may go while one migrates: it says so, and ends
        assert chaos.ended[service.name] == service.log().count("error: database_unreadable")
    assert whole.zombies() == []
    assert [service.child.stop() for service in whole.services] == [0] * len(whole.services)
    assert whole.left() == []
    _assert_nothing_lost(whole, clients.accepted)
    _assert_proofs_verify(whole, tmp_path)


def _learned(client: httpx.Client, whole: Deployment) -> list[str]:
    """Two live models of each of two datasets with the same people; their runs take long enough to be hit."""
    api = f"{whole.gateways[0].address()}/v1"
    models = []
    for seed, name in enumerate(("one", "two")):
        files = {"file": ("people.npz", npz(rows=ROWS, seed=seed))}
        dataset = client.post(f"{api}/datasets", data={"name": name}, files=files).json()
        asked = {"name": "model", "dataset_id": dataset["id"], "l2": 2e-4, "noise_scale": 0.002}
        models += [client.post(f"{api}/models", json=asked).json()["id"] for _ in range(2)]
    wait_until(lambda: all(client.get(f"{api}/models/{one}").json()["status"] == "live" for one in models))
    return models


def _open(whole: Deployment) -> int:
    with installation.opened(whole.settings) as at, at.database.reading() as session:
        still = sa.select(sa.func.count()).where(DeletionRequest.status != "completed")
        retired = sa.select(sa.func.count()).where(Version.status == "retired")
        return session.scalars(still).one() + session.scalars(retired).one()


def _assert_nothing_lost(whole: Deployment, accepted: dict[str, str]) -> None:
    """Every person who was told 202 has that request and no other; all is done once; no file is left that was
    half written."""
    assert len(accepted) >= 20
    with installation.opened(whole.settings) as at:
        assert_all_done_once(at)
        with at.database.reading() as session:
            stored = {request.id: request for request in session.scalars(sa.select(DeletionRequest))}
            runs = Counter((run.status, run.error_code) for run in session.scalars(sa.select(Run)))
        assert {at.keys.subject_ref(person): request for person, request in accepted.items()} == {
            request.subject_ref: request.id for request in stored.values()
        }
        assert len(stored) == len(accepted)
        assert {request.outcome for request in stored.values()} == {"forgotten"}
        print(f"{len(accepted)} requests, runs {runs}")
        assert runs["abandoned", "lease_expired"]
        assert runs["failed", "run_process_died"]
    files = [path.relative_to(whole.settings.data_dir) for path in whole.settings.data_dir.rglob("*")]
    assert [path for path in files if path.name.startswith(".") or path.parent.name == "tmp"] == []


def _assert_proofs_verify(whole: Deployment, tmp_path: Path) -> None:
    """An auditor recomputes the ledger and every certificate from what is in the database."""
    with installation.opened(whole.settings) as at, at.database.reading() as session:
        signed = list(session.scalars(sa.select(Certificate.jws)))
        versions = session.scalars(sa.select(sa.func.count()).select_from(Version)).one()
    assert whole.settings.database_url
    environment = processes.environment_of(
        whole.settings.data_dir, database_url=whole.settings.database_url.get_secret_value()
    )
    command = [processes.LETHE, "ledger", "verify"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"valid  {versions} entries of 4 models")
    print(f"{versions} versions, {len(signed)} certificates")
