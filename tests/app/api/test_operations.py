"""Operations endpoints: health, waiting requests, workers and runs."""

import datetime
import itertools
import shutil
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient

from app import key_checks
from app.config import Settings
from app.db import migrate
from app.db.tables import Dataset, DeletionRequest, Run, new_id
from app.installations import Installation
from app.unlearning import queue
from lethe.contract.sets import Scope

Make = Callable[..., dict[str, Any]]
Sample = Callable[..., float]
DAY = datetime.timedelta(days=1)


def alive(settings: Settings) -> None:
    """Create the heartbeat file of a worker."""
    folder = settings.data_dir / "workers"
    folder.mkdir(exist_ok=True)
    (folder / "host").touch()


def now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


def add_runs(installation: Installation, *statuses: str, ago: datetime.timedelta = datetime.timedelta(0)) -> None:
    """Create consecutive runs of one second each that ended in the given states."""
    with installation.database.writing() as session:
        dataset = session.scalars(sa.select(Dataset)).one()
        for number, status in enumerate(statuses):
            began_at = now() - ago + datetime.timedelta(seconds=number - 1)
            run = {"kind": "unlearn", "status": status, "dataset_id": dataset.id, "revision": 1, "version_id": "ver_x"}
            run |= {"steps_total": 9, "steps_done": 9, "records": 1, "reason": "requested", "worker": "w"}
            run |= {"started_at": began_at, "lease_expires_at": began_at, "finished_at": began_at + DAY / 86400}
            session.add(Run(id=new_id("run"), tenant_id=dataset.tenant_id, **run))


def test_health_does_not_depend_on_the_database(gateway: TestClient, installation: Installation) -> None:
    """The health endpoint reports only that the process responds; readiness also requires the current schema."""
    assert gateway.get("/healthz").json() == {"status": "ok"}
    assert gateway.get("/readyz").json() == {
        "status": "ready",
        "queue_age_seconds": 0.0,
        "at_risk": 0,
        "overdue": 0,
        "workers": "silent",
        "worker_seen_at": None,
        "tombstones": "whole",
        "texts_damaged": 0,
    }
    migrate.downgrade(installation.database.engine)
    assert gateway.get("/healthz").status_code == 200
    answer = gateway.get("/readyz")
    assert (answer.status_code, answer.json()["status"]) == (503, "database_not_migrated")


@pytest.fixture
def comparing_always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make each session check that the database belongs to the installation. In production, the result of a check is
    reused for one second."""
    monkeypatch.setattr(key_checks, "_BELIEVED_SECONDS", -1.0)


@pytest.mark.usefixtures("comparing_always")
def test_a_newer_release_migrates_a_running_gateway(gateway: TestClient, installation: Installation) -> None:
    """A running gateway stays ready when a newer release migrates the database to a revision that declares itself
    compatible with the gateway's revision. If the new revision declares no such compatibility, or if the schema is
    older or unknown, the gateway is not ready and refuses calls."""

    def migrated(core: str) -> tuple[int, str, int]:
        with installation.database.engine.begin() as connection:
            revision = sa.text("UPDATE alembic_version SET version_num = :core WHERE version_num LIKE 'core%'")
            connection.execute(revision, {"core": core})
        ready = gateway.get("/readyz")
        served = gateway.post("/v1/deletion-requests", json={"subject_id": core})
        return ready.status_code, ready.json()["status"], served.status_code

    with installation.database.engine.begin() as connection:
        connection.execute(sa.text("INSERT INTO alembic_version VALUES ('newcomer_0001_since_0000')"))
    assert migrated("core_0002_since_0001") == (200, "ready", 202)
    assert migrated("core_0003_since_0001") == (200, "ready", 202)
    for core in ("core_0002", "core_0003_since_0002", "core_0000"):
        assert migrated(core) == (503, "database_not_migrated", 503)
    assert migrated("core_0001") == (200, "ready", 202)


def test_readiness_does_not_wait_for_writers(gateway: TestClient, installation: Installation) -> None:
    """A readiness check does not wait for an open write transaction."""
    with installation.database.writing():
        assert gateway.get("/readyz").status_code == 200


def test_readiness_checks_take_at_most_a_tenth_of_the_time(gateway: TestClient) -> None:
    """After a readiness check, the next one does not begin until nine times its duration or one second has passed,
    whichever is shorter. This holds however often callers without a key request readiness."""
    statements: list[float] = []
    installed: Installation = gateway.app.state.installation  # type: ignore[attr-defined]

    @sa.event.listens_for(installed.database.engine, "before_cursor_execute")
    def note(*_: object) -> None:
        # Periodic jobs have separate threads.
        if threading.current_thread().name.startswith("AnyIO"):
            statements.append(time.monotonic())

    checks = []
    for _ in range(5):
        statements.clear()
        request = gateway.build_request("GET", "/readyz")
        del request.headers["authorization"]
        assert gateway.send(request).status_code == 200
        checks.append((statements[0], statements[-1]))
    for (began, ended), (next_began, _) in itertools.pairwise(checks):
        assert next_began - ended >= min(9 * (ended - began), 1)


def test_readiness_reports_the_age_of_the_queue(
    gateway: TestClient, new_dataset: Make, forget: Make, work: Callable[[], int]
) -> None:
    """Readiness reports how long the oldest request in the queue has been waiting, or 0 if the queue is empty."""
    new_dataset()
    forget("p1")
    assert gateway.get("/readyz").json()["queue_age_seconds"] > 0
    work()
    assert gateway.get("/readyz").json()["queue_age_seconds"] == 0


def test_overdue_and_imminent_requests_are_counted(
    gateway: TestClient, sample: Sample, installation: Installation, new_dataset: Make, forget: Make
) -> None:
    """Overdue requests and requests due within a week are counted separately for each regulation, taking extensions
    into account."""
    new_dataset()
    made = [forget(f"p{number}", regulation=("gdpr", "ccpa")[number % 2])["id"] for number in range(6)]
    due = [-DAY, -DAY, 6 * DAY, 8 * DAY, -DAY, 3 * DAY]
    with installation.database.writing() as session:
        for request_id, left in zip(made, due, strict=True):
            request = session.get_one(DeletionRequest, request_id)
            request.due_at = request.deadline = now() + left
        request = session.get_one(DeletionRequest, made[4])
        request.extended_due_at = request.deadline = now() + 2 * DAY
    ready = gateway.get("/readyz")
    assert (ready.status_code, ready.json()["overdue"], ready.json()["at_risk"]) == (200, 2, 3)
    assert [sample("lethe_requests_overdue", regulation=law) for law in ("gdpr", "ccpa", "other")] == [1, 1, 0]
    assert [sample("lethe_requests_at_risk", regulation=law) for law in ("gdpr", "ccpa", "other")] == [2, 1, 0]
    assert sample("lethe_requests_open", status="accepted", regulation="ccpa") == 3
    assert sample("lethe_queue_age_seconds") > 0


def test_requests_that_are_not_due_do_not_age_the_queue(
    gateway: TestClient, sample: Sample, installation: Installation, new_dataset: Make, forget: Make
) -> None:
    """A request in review or in its grace period is open but does not affect the age of the queue, and a request with a
    paused clock is never overdue."""
    new_dataset()
    in_review, held = forget("p1")["id"], forget("p2")["id"]
    with installation.database.writing() as session:
        request = session.get_one(DeletionRequest, in_review)
        request.status, request.paused_at, request.deadline = "in_review", now() - 2 * DAY, now() - DAY
        session.get_one(DeletionRequest, held).held_until = now() + DAY
    ready = gateway.get("/readyz").json()
    assert (ready["queue_age_seconds"], ready["overdue"], ready["at_risk"]) == (0, 0, 0)
    assert sample("lethe_requests_open", status="in_review", regulation="gdpr") == 1
    with installation.database.writing() as session:
        session.get_one(DeletionRequest, in_review).paused_at = None
        session.get_one(DeletionRequest, held).held_until = now() - DAY / 2
    ready = gateway.get("/readyz").json()
    assert (ready["overdue"], ready["at_risk"]) == (1, 0)
    assert ready["queue_age_seconds"] == pytest.approx(DAY.total_seconds() / 2, rel=0.1)


def test_readiness_sees_a_worker_by_its_heartbeat_file(gateway: TestClient, settings: Settings, sample: Sample) -> None:
    """A worker counts as alive for a minute after it last wrote its heartbeat file in the data folder. Readiness
    returns 200 even if no worker is alive."""
    assert sample("lethe_worker_silence_seconds") == float("inf")
    alive(settings)
    assert gateway.get("/readyz").json()["workers"] == "alive"
    assert 0 <= sample("lethe_worker_silence_seconds") < 60
    shutil.rmtree(settings.data_dir / "workers")
    silent = gateway.get("/readyz")
    assert (silent.status_code, silent.json()["workers"]) == (200, "silent")


def test_readiness_sees_a_worker_by_its_lease(
    gateway: TestClient, new_dataset: Make, new_model: Make, installation: Installation
) -> None:
    """If a worker holds the lease of a run in progress, readiness reports the worker as alive."""
    new_model(new_dataset()["id"])
    with installation.database.writing() as session:
        lease_seconds = installation.settings.lease_seconds
        assert queue.claim(session, worker="far away", lease_seconds=lease_seconds, max_requests=1)
    assert gateway.get("/readyz").json()["workers"] == "alive"


@pytest.mark.parametrize(
    ("statuses", "ago", "workers"),
    [
        (["abandoned"] * 3, DAY * 0, "failing"),
        (["failed", "abandoned", "failed"], DAY * 0, "failing"),
        (["abandoned", "published", "abandoned"], DAY * 0, "alive"),
        (["abandoned"] * 2, DAY * 0, "alive"),
        (["abandoned"] * 3, DAY, "alive"),
    ],
)
def test_readiness_reports_a_crash_loop(
    gateway: TestClient,
    settings: Settings,
    sample: Sample,
    installation: Installation,
    new_dataset: Make,
    statuses: list[str],
    ago: datetime.timedelta,
    workers: str,
) -> None:
    """Readiness reports a crash loop after three consecutive recent runs without a result, even if the worker has just
    written a heartbeat."""
    new_dataset()
    alive(settings)
    add_runs(installation, *statuses, ago=ago)
    assert gateway.get("/readyz").json()["workers"] == workers
    assert sample("lethe_workers_failing") == (workers == "failing")


def test_only_public_keys_are_published(gateway: TestClient) -> None:
    """The published key set contains one Ed25519 key, without its private part."""
    [key] = gateway.get("/.well-known/jwks.json").json()["keys"]
    assert key.keys() == {"kty", "crv", "x", "kid", "use", "alg"}
    assert (key["kty"], key["crv"], key["use"], key["alg"]) == ("OKP", "Ed25519", "sig", "Ed25519")


def test_readiness_reveals_nothing_without_a_key(
    gateway: TestClient,
    new_dataset: Make,
    new_model: Make,
    work: Callable[[], int],
    forget: Make,
    key_with: Callable[..., dict[str, str]],
) -> None:
    """Without a key, the readiness response is the same whether or not work is waiting; a key without the required
    scope is refused."""
    admin = gateway.headers.pop("Authorization")
    idle = gateway.get("/readyz")
    assert {name for name, value in idle.json().items() if value is not None} == {"status"}
    gateway.headers["Authorization"] = admin
    new_model(new_dataset()["id"])
    work()
    forget("p1")
    assert gateway.get("/readyz").json()["queue_age_seconds"] > 0
    assert gateway.get("/readyz", headers=key_with(Scope.REQUESTS_READ)).status_code == 403
    gateway.headers.pop("Authorization")
    assert gateway.get("/readyz").json() == idle.json()
