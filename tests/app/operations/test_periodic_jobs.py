"""Periodic jobs are repeated one at a time and never make writers wait."""

import datetime
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient

from app.config import Settings
from app.db import now
from app.db.tables import Dataset, IdempotentAnswer, Version
from app.installations import Installation
from app.operations import periodic_jobs
from app.operations.periodic_jobs import PeriodicJob, PeriodicJobs
from app.vault.store import locked
from tests.faults.processes import wait_until
from tests.stored import flipped, rows_of

Make = Callable[..., dict[str, Any]]
DAY = datetime.timedelta(days=1)


def statuses(installation: Installation) -> list[str]:
    """Return the statuses of all versions, oldest first."""
    with installation.database.reading() as session:
        return list(session.scalars(sa.select(Version.status).order_by(Version.number)))


@pytest.fixture
def superseded(
    installation: Installation,
    new_dataset: Make,
    new_model: Make,
    forget: Make,
    work: Callable[[], int],
    monkeypatch: Any,
) -> str:
    """Return the id of a version whose worker died after superseding it and before destroying its weights."""
    new_model(new_dataset()["id"])
    work()
    forget("p1")
    with monkeypatch.context() as dying:
        dying.setattr(periodic_jobs, "destroy_orphans", lambda at: None)
        work()
    assert statuses(installation) == ["retired", "live"]
    with installation.database.reading() as session:
        return session.scalars(sa.select(Version.id).where(Version.status == "retired")).one()


def test_a_slow_weight_store_blocks_no_writers(installation: Installation, settings: Settings, superseded: str) -> None:
    """Writers are not blocked while a slow weight store destroys a version's weights, and the database records the
    destruction afterwards."""
    with locked(settings.data_dir / "weights" / "keys"):
        destroying = threading.Thread(target=periodic_jobs.destroy_retired, args=(installation,))
        destroying.start()
        destroying.join(0.3)
        assert destroying.is_alive()
        with installation.database.writing() as session:
            session.execute(sa.update(Dataset).values(name="written meanwhile"))
        assert destroying.is_alive()
    destroying.join(10)
    assert statuses(installation) == ["destroyed", "live"]
    assert superseded not in installation.weights.version_ids()


def test_weights_destroyed_before_a_crash_are_recorded(installation: Installation, superseded: str) -> None:
    """If a worker dies after destroying weights but before recording the destruction, the destruction is recorded
    later; repeating this is a no-op."""
    installation.weights.destroy(superseded)
    for _ in range(2):
        periodic_jobs.destroy_retired(installation)
        periodic_jobs.destroy_orphans(installation)
        assert statuses(installation) == ["destroyed", "live"]
        assert len(installation.weights.version_ids()) == 1


def test_sweeping_rows_does_not_block_writers(installation: Installation, new_dataset: Make) -> None:
    """Rows that do not belong to any dataset are wiped even while another session is writing; the rows of existing
    datasets are kept."""
    kept = new_dataset()["id"]
    lost = new_dataset("lost")["id"]
    rows = rows_of(installation, kept)
    with installation.database.writing() as session:
        session.execute(sa.text("DELETE FROM records WHERE dataset_id = :id"), {"id": lost})
        session.execute(sa.text("DELETE FROM datasets WHERE id = :id"), {"id": lost})
    with installation.database.writing() as session:
        session.execute(sa.update(Dataset).values(name="being written"))
        periodic_jobs.sweep_rows(installation)
        assert set(installation.rows.stored()) == {
            kept,
            lost,
        }  # looks like an upload that is about to be registered
        periodic_jobs.sweep_rows(installation, unclaimed_for=datetime.timedelta(0))
    assert set(installation.rows.stored()) == {kept}
    np.testing.assert_array_equal(rows_of(installation, kept).features, rows.features)


def test_damage_is_found_by_the_periodic_check(
    installation: Installation, new_dataset: Make, get: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The periodic check opens one block after another, except for blocks whose rows are being written. If a block is
    damaged, its dataset is halted."""
    sound, damaged = new_dataset()["id"], new_dataset("damaged")["id"]
    [block] = (installation.settings.data_dir / "blocks").glob(f"{damaged}.*.sealed")
    block.write_bytes(flipped(block.read_bytes(), 40))
    monkeypatch.setattr(periodic_jobs, "_PORTIONS", 1)
    with installation.rows.alone(damaged):
        periodic_jobs.verify_rows(installation)
    assert get(f"/datasets/{damaged}")["damage"] is None
    for _ in range(2):
        periodic_jobs.verify_rows(installation)
        assert get(f"/datasets/{damaged}")["damage"]["kind"] == "block"
    assert get(f"/datasets/{sound}")["damage"] is None


def test_idempotent_responses_expire(
    gateway: TestClient, installation: Installation, new_dataset: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stored response is kept for LETHE_IDEMPOTENCY_DAYS. After that, the same idempotency key creates a new
    request."""
    monkeypatch.setattr(periodic_jobs, "AT_ONCE", 2)
    new_dataset()

    def ask(person: int) -> str:
        body = {"subject_id": f"p{person}", "regulation": "gdpr"}
        answer = gateway.post("/v1/deletion-requests", json=body, headers={"Idempotency-Key": f"key-{person}"})
        assert answer.status_code == 202
        return str(answer.json()["id"])

    made = [ask(person) for person in range(6)]
    with installation.database.writing() as session:
        for age, of in ((6.9, made[5:]), (7.1, made[:5])):
            places = [f"/v1/deletion-requests/{request_id}" for request_id in of]
            old = sa.update(IdempotentAnswer).where(IdempotentAnswer.location.in_(places))
            session.execute(old.values(created_at=now(session) - age * DAY))
    assert ask(0) == made[0]
    periodic_jobs.forget_answers(installation)
    with installation.database.reading() as session:
        assert list(session.scalars(sa.select(IdempotentAnswer.location))) == [f"/v1/deletion-requests/{made[5]}"]
    assert ask(5) == made[5]
    assert ask(0) != made[0]


def test_a_failing_job_does_not_stop_others(settings: Settings, installation: Installation, capsys: Any) -> None:
    """If a job raises an error, its name is logged without the text of the error. The other jobs still run, and the
    failed job runs again when it is next due."""
    done: list[str] = []

    def fail(installation: Installation) -> None:
        done.append("fails")
        raise ValueError("jane.doe@example.org")

    both = PeriodicJobs(
        settings,
        [
            PeriodicJob(name="fails", seconds=0, do=fail),
            PeriodicJob(name="rare", seconds=3600, do=lambda at: done.append("rare")),
            PeriodicJob(name="works", seconds=0, do=lambda at: done.append("works")),
        ],
    )
    both.do_due(installation)
    wait_until(lambda: both.do_due(installation) or min(done.count("fails"), done.count("works")) > 1)
    assert (done[:3], done.count("rare")) == (["fails", "rare", "works"], 1)
    assert done.count("fails") > 1
    assert "works" in done[3:]
    said = "".join(capsys.readouterr())
    assert "operations.periodic_job_failed" in said
    assert "jane" not in said


def test_due_jobs_run_in_the_background(installation: Installation, settings: Settings, superseded: str) -> None:
    """Due jobs run in a background thread, which ends with the `with` block."""
    before = set(threading.enumerate())
    with PeriodicJobs(settings, seconds=0.05):
        wait_until(lambda: statuses(installation) == ["destroyed", "live"], seconds=60)
    assert "periodic_jobs" not in {thread.name for thread in set(threading.enumerate()) - before}


def test_rare_jobs_begin_after_frequent_ones(settings: Settings, installation: Installation, monkeypatch: Any) -> None:
    """When a process starts, jobs that are due every second run at once. All others first run later."""
    monkeypatch.setattr(periodic_jobs, "_AFTER_START", 0.2)
    done: list[tuple[str, float]] = []
    jobs = [
        PeriodicJob(name=name, seconds=seconds, do=lambda at, name=name: done.append((name, time.monotonic())))
        for name, seconds in (("frequent", 1), ("rare", 3600))
    ]
    began = time.monotonic()
    with PeriodicJobs(settings, jobs, seconds=0.05):
        wait_until(lambda: len(done) > 1)
    (first, _), (second, at) = done[:2]
    assert (first, second) == ("frequent", "rare")
    assert at - began >= 0.2


def test_an_urgent_job_always_runs_when_due(settings: Settings, installation: Installation) -> None:
    """An urgent job runs every time it is due, even if each run takes a long time."""
    done: list[float] = []
    urgent = PeriodicJob(name="slow", seconds=0, do=lambda at: done.append(threading.Event().wait(0.1)), urgent=True)
    slow = PeriodicJobs(settings, [urgent])
    for _ in range(3):
        slow.do_due(installation)
    assert len(done) == 3


def test_a_slow_job_runs_less_often(settings: Settings, installation: Installation) -> None:
    """A slow job runs less often than it is due: a job that takes a tenth of a second does not run again for two
    seconds."""
    done: list[float] = []
    slow = PeriodicJobs(
        settings, [PeriodicJob(name="slow", seconds=0, do=lambda at: done.append(threading.Event().wait(0.1)))]
    )
    for _ in range(5):
        slow.do_due(installation)
    assert len(done) == 1
