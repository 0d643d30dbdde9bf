"""The production deployment under random kills, repeatedly, while requests keep arriving."""

import contextlib
import json
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
import sqlalchemy as sa
from pydantic import SecretStr

from app import installations
from app.access.service import DEFAULT_TENANT
from app.config import Settings
from app.db import now
from app.db.tables import Certificate, Dataset, DeletionRequest, Record, Run, Version
from app.features.webhooks.tables import WebhookDelivery
from app.journal import verification
from tests import servers
from tests.conftest import FORM, npz
from tests.faults import deployment, processes
from tests.faults.checks import assert_all_done_once
from tests.faults.deployment import Deployment, Service
from tests.faults.processes import wait_until
from tests.postgres import server

pytestmark = [pytest.mark.postgres, pytest.mark.redis, pytest.mark.soak]

KILLS = 100
MIN_ACCEPTED = 20
"""Minimum number of accepted requests, below which so many kills prove little."""
ROWS = 800
VICTIMS = {"worker": 30, "run": 28, "gateway": 14, "redis": 10, "postgres": 8, "accounting": 5, "beat": 5}
"""Victims, and their share of the kills in per cent."""
LEASE_SECONDS = 2.0


@pytest.fixture
def whole(tmp_path: Path) -> Iterator[Deployment]:
    with server.running() as database, database.database() as name:
        url = SecretStr(database.url(name))
        settings = Settings(
            data_dir=tmp_path / "data",
            database_url=url,
            lease_seconds=LEASE_SECONDS,
            poll_seconds=0.1,
            threads=1,
            webhook_allowed_networks="127.0.0.0/8",
            audit_checkpoint_seconds=5.0,
        )
        with deployment.deployed(settings, database, tmp_path) as whole:
            yield whole
        if not database.answers():
            database.start()


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenant:
    id: str
    headers: dict[str, str]
    """Headers with the key of the tenant's admin."""
    models: list[str]


class Clients:
    """Clients that request deletions of the same people in each tenant, each until it is answered 202 and then once
    more, and an auditor that reads meanwhile. `receiver` gets the callbacks."""

    def __init__(
        self, whole: Deployment, tenants: Sequence[Tenant], receiver: servers.Server, moments: random.Random
    ) -> None:
        self.accepted: dict[tuple[str, str], str] = {}  # from tenant and person to request
        self.answers: Counter[Any] = Counter()
        self.read: Counter[Any] = Counter()
        self._whole = whole
        self._tenants = tenants
        self._url = f"http://127.0.0.1:{receiver.port}/hook"
        self._ended = threading.Event()
        self._failures: list[BaseException] = []
        asking = [(self._ask, tenant, random.Random(moments.random())) for tenant in tenants]
        self._threads = [
            threading.Thread(target=self._watched, args=what) for what in (*asking, (self._audit, moments))
        ]
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        """Wait until all clients have received their responses. Raises the clients' failures."""
        self._ended.set()
        for thread in self._threads:
            thread.join(240)
        self.assert_asking()

    def assert_asking(self) -> None:
        """Raise the first failure of a client."""
        if self._failures:
            raise self._failures[0]

    def _watched(self, what: Callable[..., None], *arguments: Any) -> None:
        try:
            with httpx.Client(timeout=120) as client:
                what(client, *arguments)
        except BaseException as error:
            self._failures.append(error)

    def _ask(self, client: httpx.Client, tenant: Tenant, moments: random.Random) -> None:
        for person in range(ROWS):
            if self._ended.wait(moments.uniform(0.1, 1.5)):
                return
            asked = {"subject_id": f"p{person}", "callback_url": self._url}
            headers = tenant.headers | {"Idempotency-Key": f"key-{person}"}
            said = [self._until_accepted(client, moments, json=asked, headers=headers) for _ in range(2)]
            assert said[0] == said[1]
            self.accepted[tenant.id, f"p{person}"] = said[0]["id"]

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
            tenant = moments.choice(self._tenants)
            path = f"/v1/accounting/models/{moments.choice(tenant.models)}"
            try:
                answer = client.get(self._whole.accounting.address() + path, headers=tenant.headers)
            except httpx.TransportError as error:
                self.read[type(error).__name__] += 1
                continue
            self.read[answer.status_code] += 1
            assert answer.status_code in (200, 503), answer.text


class Chaos:
    """Kills and stops processes of a deployment at random moments."""

    def __init__(self, whole: Deployment, moments: random.Random) -> None:
        self.killed: Counter[str] = Counter()
        self.ended: list[tuple[str, str]] = []
        """Services that ended by themselves, which a supervisor restarts, with their output."""
        self._whole = whole
        self._moments = moments
        self._asleep: list[tuple[float, psutil.Process]] = []

    def round(self) -> None:
        """Kill one or two processes at the same time and restart them. Sometimes stop a worker for longer than its
        lease."""
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
        """Restart services that have ended unexpectedly."""
        for service in self._whole.services:
            said = service.restart_if_ended()
            if said is not None:
                self.ended.append((service.name, said))

    def calm(self) -> None:
        """Wake all stopped processes."""
        while self._asleep:
            self._wake()
            time.sleep(0.1)

    def _kill(self, kind: str) -> Callable[[], None] | None:
        """Kill a process of this kind with SIGKILL, and return a function that restarts it, or None if no such process
        was running."""
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
            # The process may have been killed meanwhile.
            with contextlib.suppress(psutil.NoSuchProcess):
                process.resume()


@pytest.mark.timeout(1800)
def test_random_kills_lose_no_request(whole: Deployment, tmp_path: Path) -> None:
    """After a hundred random kills, every accepted request has been completed exactly once, and no partly written file
    is left."""
    seed = int(os.environ.get("SOAK_SEED", random.randrange(2**32)))
    moments = random.Random(seed)
    print(f"SOAK_SEED={seed}")
    with servers.serving(servers.status(200)) as receiver:
        tenants = _learned(whole)
        began = time.monotonic()
        clients, chaos = Clients(whole, tenants, receiver, moments), Chaos(whole, moments)
        while chaos.killed.total() - chaos.killed["stopped"] < KILLS or len(clients.accepted) < MIN_ACCEPTED:
            chaos.round()
            clients.assert_asking()
        clients.end()
        chaos.calm()
        ended = time.monotonic()
        by_themselves = Counter(name for name, _ in chaos.ended)
        print(f"{ended - began:.0f} s of chaos: killed {chaos.killed}, ended by themselves {by_themselves}")
        print(f"asked {clients.answers}, read {clients.read}")

        def all_completed() -> bool:
            chaos.supervise()
            return not _open(whole)

        wait_until(all_completed, seconds=600)
        print(f"{time.monotonic() - ended:.0f} s more to complete the rest")
        _deliver_what_the_dead_were_sending(whole)
        wait_until(lambda: not _pending(whole))
        print(f"{len(receiver.calls)} callbacks")
    migrating = {service.name for service in (*whole.gateways, whole.accounting)}
    # A service that migrates while the database goes away reports this and exits.
    for name, said in chaos.ended:
        assert name not in migrating or "error: database_unreadable" in said
    assert whole.zombies() == []
    assert [service.child.stop() for service in whole.services] == [0] * len(whole.services)
    wait_until(lambda: whole.left() == [])
    _assert_nothing_lost(whole, clients.accepted)
    _assert_all_told(whole, clients.accepted, receiver)
    _assert_proofs_verify(whole, tmp_path)


def _learned(whole: Deployment) -> list[Tenant]:
    """Create two tenants that hold the same people: one with two datasets and a live model on each, the other with one
    dataset and two models. Their runs take long enough to be interrupted."""
    admin_key = whole.settings.resolved_admin_key_file().read_text().strip()
    with httpx.Client(base_url=f"{whole.gateways[0].address()}/v1", headers=_bearer(admin_key), timeout=240) as client:
        other = client.post("/tenants", json={"name": "other"}).json()
        tenants = [
            _tenant(client, DEFAULT_TENANT, admin_key, num_models=(1, 1)),
            _tenant(client, other["id"], other["admin_key"], num_models=(2,)),
        ]
        for tenant in tenants:
            paths = [f"/models/{model}" for model in tenant.models]
            headers = tenant.headers
            wait_until(
                lambda paths=paths, headers=headers: (
                    {client.get(path, headers=headers).json()["status"] for path in paths} == {"live"}
                )
            )
    return tenants


def _tenant(client: httpx.Client, tenant_id: str, key: str, *, num_models: Sequence[int]) -> Tenant:
    """Create `num_models[i]` models on the tenant's dataset i, and return the tenant."""
    headers, models = _bearer(key), []
    for seed, count in enumerate(num_models):
        files = {"file": ("people.npz", npz(rows=ROWS, seed=seed))}
        dataset = client.post("/datasets", data=FORM, files=files, headers=headers).json()
        asked = {"name": "model", "dataset_id": dataset["id"], "l2": 2e-4, "noise_scale": 0.002}
        models += [client.post("/models", json=asked, headers=headers).json()["id"] for _ in range(count)]
    return Tenant(id=tenant_id, headers=headers, models=models)


def _bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def _open(whole: Deployment) -> int:
    with installations.opened(whole.settings) as installation, installation.database.reading() as session:
        still = sa.select(sa.func.count()).where(DeletionRequest.status != "completed")
        retired = sa.select(sa.func.count()).where(Version.status == "retired")
        return session.scalars(still).one() + session.scalars(retired).one()


def _pending(whole: Deployment) -> int:
    with installations.opened(whole.settings) as installation, installation.database.reading() as session:
        pending = sa.select(sa.func.count()).where(WebhookDelivery.status == "pending")
        return session.scalars(pending).one()


def _deliver_what_the_dead_were_sending(whole: Deployment) -> None:
    """Make pending deliveries due immediately, before the leases of dead gateways expire."""
    with installations.opened(whole.settings) as installation, installation.database.writing() as session:
        pending = sa.update(WebhookDelivery).where(WebhookDelivery.status == "pending")
        session.execute(pending.values(next_attempt_at=now(session)))


def _assert_nothing_lost(whole: Deployment, accepted: dict[tuple[str, str], str]) -> None:
    """Check that every 202 response has exactly one request, that each request was completed once and affected only its
    tenant's rows, and that no partly written file is left."""
    with installations.opened(whole.settings) as installation:
        assert_all_done_once(installation)
        with installation.database.reading() as session:
            stored = {request.id: request for request in session.scalars(sa.select(DeletionRequest))}
            runs = Counter((run.status, run.error_code) for run in session.scalars(sa.select(Run)))
            held = sa.select(Dataset.tenant_id, sa.func.count()).join(Record, Record.dataset_id == Dataset.id)
            rows = session.execute(held.group_by(Dataset.id, Dataset.tenant_id)).all()
        asked = Counter(tenant_id for tenant_id, _ in accepted)
        assert len(rows) == 3
        assert {tuple(row) for row in rows} == {(tenant_id, ROWS - count) for tenant_id, count in asked.items()}
        assert {installation.keys.subject_ref(*who): (who[0], request) for who, request in accepted.items()} == {
            request.subject_ref: (request.tenant_id, request.id) for request in stored.values()
        }
        assert len(stored) == len(accepted)
        assert {request.outcome for request in stored.values()} == {"forgotten"}
        print(f"{len(accepted)} requests, runs {runs}")
        assert runs["abandoned", "lease_expired"]
        assert runs["failed", "run_process_died"]
    files = {path for path in whole.settings.data_dir.rglob("*") if path.is_file()}
    files -= {verification.verdict_file(whole.settings)}
    assert [path for path in files if path.name.startswith(".") or path.parent.name in ("tmp", ".unfinished")] == []


def _assert_all_told(whole: Deployment, accepted: dict[tuple[str, str], str], receiver: servers.Server) -> None:
    """Check that the receiver was sent accepted and then completed for every request, each under a single id even if
    repeated."""
    heard: dict[str, dict[tuple[str, str], None]] = {request: {} for request in accepted.values()}
    for call in receiver.calls:
        body = json.loads(call.body)
        heard[body["data"]["id"]].setdefault((body["type"], call.headers["webhook-id"]))
    expected = ["deletion_request.accepted", "deletion_request.completed"]
    assert [found for found in heard.values() if [event for event, _ in found] != expected] == []
    with installations.opened(whole.settings) as installation, installation.database.reading() as session:
        sent = session.execute(sa.select(WebhookDelivery.request_id, WebhookDelivery.id, WebhookDelivery.status)).all()
    assert {status for _, _, status in sent} == {"delivered"}
    assert {(request, one) for request, one, _ in sent} == {
        (request, one) for request, found in heard.items() for _, one in found
    }


def _assert_proofs_verify(whole: Deployment, tmp_path: Path) -> None:
    """Check that an auditor can recompute the ledger and every certificate from the database."""
    with installations.opened(whole.settings) as installation, installation.database.reading() as session:
        signed = list(session.scalars(sa.select(Certificate.jws)))
        versions = session.scalars(sa.select(sa.func.count()).select_from(Version)).one()
    assert whole.settings.database_url
    environment = processes.environment_of(
        whole.settings.data_dir, database_url=whole.settings.database_url.get_secret_value()
    )
    done = processes.ended("lethe", "ledger", "verify", environment=environment)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"valid  {versions} entries of 4 models")
    print(f"{versions} versions, {len(signed)} certificates")
