"""Failing trainers, and workers that die: the request stays open, nothing is lost, and no artefact has the person."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient

from app import supervisor
from app.features.trainers import execution, jobs, training
from app.features.trainers.tables import Trainer, Training
from app.installations import Installation
from tests.features.trainers.conftest import COUNTING, PEOPLE

New = Callable[..., dict[str, Any]]
UNEQUAL = COUNTING + "\nopen('artefacts/names.txt', 'a').write(os.urandom(8).hex())\n"
ON_P3 = COUNTING + "\nassert 'np3' in names\n"
FOREVER = COUNTING + "\nwhile 'np3' not in names: pass\n"
WORKER = """
import os, sys
from app import installations
from app.config import Settings
from app.features.trainers import execution, jobs, training
hop = sys.argv[1]
if hop:
    setattr(execution if hop == "train" else training, hop, lambda *given, **named: os._exit(9))
with installations.opened(Settings()) as installation:
    jobs.erase_from_tables(installation)
    training.run_next(installation)
"""
"""A worker that dies when it would call the function `hop`."""


@pytest.fixture
def rested(installation: Installation) -> Callable[[], None]:
    """Return a function that ends all back-offs and leases."""

    def pass_time() -> None:
        with installation.database.writing() as session:
            session.execute(sa.update(Trainer).values(retry_at=None))
            session.execute(sa.update(Training).values(leased_until=Training.started_at))

    return pass_time


def test_failing_retraining_leaves_its_request_open(
    gateway: TestClient,
    new_table: New,
    new_trainer: New,
    train: Callable[[], int],
    rested: Callable[[], None],
    forget: New,
    names: Callable[[str], set[str]],
    get: Callable[[str], Any],
) -> None:
    """If retraining without the person fails, the request stays open, the trainer shows an error code, the next attempt
    is delayed, and the old artefacts are kept. Retiring the trainer completes the request."""
    trainer = new_trainer(new_table()["id"], ON_P3)
    train()
    request = forget("p3")
    assert [train(), train()] == [1, 0]
    shown = get(f"/trainers/{trainer['id']}")
    assert (shown["error_code"], shown["failures"], shown["waiting_requests"]) == ("trainer_failed", 1, 1)
    assert shown["retry_at"] is not None
    rested()
    assert train() == 1
    assert get(f"/trainers/{trainer['id']}")["failures"] == 2
    lines = get(f"/deletion-requests/{request['id']}/systems")
    assert (lines["grade"], lines["waits_for"]) == ("not_reached", ["counter"])
    assert get(f"/deletion-requests/{request['id']}")["status"] == "running"
    assert "np3" in names(trainer["id"])
    assert gateway.delete(f"/v1/trainers/{trainer['id']}").status_code == 204
    train()
    assert get(f"/deletion-requests/{request['id']}")["status"] == "completed"
    assert get(f"/deletion-requests/{request['id']}/systems")["grade"] == "searched"


def test_trainer_that_differs_between_two_runs_is_refused(
    new_table: New, new_trainer: New, train: Callable[[], int], get: Callable[[str], Any]
) -> None:
    """A trainer whose artefacts depend on anything other than the rows and the seed is refused after its second run. A
    deterministic trainer is accepted."""
    table = new_table()
    unequal = new_trainer(table["id"], UNEQUAL, repeat_one_in=1)
    equal = new_trainer(table["id"], repeat_one_in=1)
    assert train() == 2
    assert get(f"/trainers/{unequal['id']}")["error_code"] == "trainer_not_reproducible"
    assert get(f"/trainers/{unequal['id']}/trainings")["items"][0]["artefacts"] == []
    assert get(f"/trainers/{equal['id']}/trainings")["items"][0]["repeated"] is True


def test_worker_without_the_locked_versions_is_refused(
    new_table: New, new_trainer: New, train: Callable[[], int], get: Callable[[str], Any]
) -> None:
    """A trainer runs only in the environment defined by its lock file."""
    trainer = new_trainer(new_table()["id"], lock="# pinned\npyarrow==0.0.1\n")
    assert train() == 1
    assert get(f"/trainers/{trainer['id']}")["error_code"] == "trainer_environment_differs"


def test_artefacts_below_the_minimum_are_held_until_released(
    gateway: TestClient, new_table: New, new_trainer: New, train: Callable[[], int], names: Callable[[str], set[str]]
) -> None:
    """Artefacts whose metric is below the minimum become live, but can be downloaded only after they have been
    released."""
    trainer = new_trainer(new_table()["id"], metrics=["rows"], metric="rows", min_metric=10_000)
    train()
    answer = gateway.get(f"/v1/trainers/{trainer['id']}/artefacts/names.txt")
    assert (answer.status_code, answer.json()["code"]) == (409, "model_held")
    assert gateway.post(f"/v1/trainers/{trainer['id']}/release").status_code == 200
    assert len(names(trainer["id"])) == PEOPLE


@pytest.mark.parametrize(
    "hop",
    [
        pytest.param("_rewrite", marks=pytest.mark.soak),
        "destroy_retired_keys",
        pytest.param("_record_settled", marks=pytest.mark.soak),
        pytest.param("train", marks=pytest.mark.soak),
        "publish",
    ],
)
def test_worker_killed_at_any_point_is_replaced(
    hop: str,
    installation: Installation,
    new_table: New,
    new_trainer: New,
    train: Callable[[], int],
    work: Callable[[], int],
    rested: Callable[[], None],
    forget: New,
    names: Callable[[str], set[str]],
    get: Callable[[str], Any],
) -> None:
    """If a worker is killed at any point, another worker completes the request. No artefact contains the person, and
    every artefact contains all other people."""
    trainer = new_trainer(new_table()["id"])
    train()
    request = forget("p3")
    work()
    died = subprocess.run(
        [sys.executable, "-c", WORKER, hop], env=supervisor._environment(installation.settings), check=False
    )
    assert died.returncode == 9
    assert get(f"/deletion-requests/{request['id']}")["status"] == "running"
    rested()
    assert train() == 1
    assert names(trainer["id"]) == {f"np{i}" for i in range(PEOPLE)} - {"np3"}
    assert get(f"/deletion-requests/{request['id']}")["status"] == "completed"


def test_trainer_ends_with_its_worker(
    installation: Installation,
    new_table: New,
    new_trainer: New,
    train: Callable[[], int],
    rested: Callable[[], None],
    get: Callable[[str], Any],
) -> None:
    """If a worker is killed while its trainer runs, the sandboxed processes end too, and the training job is abandoned
    and repeated immediately. A training job that has lost its lease publishes nothing."""
    trainer = new_trainer(new_table()["id"], FOREVER.replace("'np3' not in names", "not os.path.exists('go')"))
    worker = subprocess.Popen([sys.executable, "-c", WORKER, ""], env=supervisor._environment(installation.settings))
    deadline = time.monotonic() + 120
    while len(sandboxed := _descendants(worker.pid)) < 4:
        assert time.monotonic() < deadline
        assert worker.poll() is None
    worker.send_signal(signal.SIGKILL)
    worker.wait()
    while any(_is_alive(pid) for pid in sandboxed):
        assert time.monotonic() < deadline
    rested()
    with installation.database.writing() as session:
        claimed = training.claim(session, lease_seconds=60)
    assert claimed is not None
    statuses = [one["status"] for one in get(f"/trainers/{trainer['id']}/trainings")["items"]]
    assert statuses == ["running", "abandoned"]
    with installation.database.writing() as session:
        session.get_one(Training, claimed.training_id).status = "abandoned"
    result = execution.Result(artefacts={"names.txt": b"x"}, metrics={}, findings={}, repeated=False)
    with pytest.raises(training.TrainingLost):
        training.publish(installation, claimed, result)
    assert get(f"/trainers/{trainer['id']}")["live_training_id"] is None
    jobs.erase_from_tables(installation)


def _descendants(pid: int) -> list[int]:
    pids = [pid]
    for one in pids:
        try:
            for task in os.listdir(f"/proc/{one}/task"):
                with open(f"/proc/{one}/task/{task}/children") as children:
                    pids += map(int, children.read().split())
        except OSError:
            continue
    return pids[1:]


def _is_alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
