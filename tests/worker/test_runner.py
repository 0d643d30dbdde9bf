"""Runs from claim to published version, and runs that fail."""

import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient

from app.config import Settings
from app.db.tables import Model, Run
from app.installations import Installation
from app.operations import periodic_jobs
from app.unlearning import queue, service as unlearning
from app.vault import sealing
from tests.app.unlearning.held import forget_pauses
from tests.faults.checks import assert_all_done_once
from tests.faults.processes import wait_until
from tests.stored import flipped, rows_of, slots_of
from worker import runner

Make = Callable[..., dict[str, Any]]
Get = Callable[[str], Any]


def _newest_run(get: Get) -> Any:
    return get("/runs")["items"][0]


def test_nothing_is_run_if_nothing_is_due(installation: Installation) -> None:
    """If nothing is due, no run is executed."""
    assert runner.run_next(installation, worker="w") is False


def test_weights_match_the_published_version(
    gateway: TestClient, installation: Installation, new_dataset: Make, new_model: Make, get: Get
) -> None:
    """A run leaves one sealed version, which contains the parameters that the gateway serves and matches the recorded
    digest."""
    model = new_model(new_dataset()["id"])
    assert runner.run_next(installation, worker="w") is True
    content = gateway.get(f"/v1/models/{model['id']}/versions/1/weights").content
    assert sealing.from_safetensors(content).shape == (1, 4)
    run = _newest_run(get)
    assert (run["status"], run["steps_done"], run["worker"]) == ("published", run["steps_total"], "w")
    assert_all_done_once(installation)


def test_accuracy_is_measured_on_evaluation_data(
    installation: Installation, new_dataset: Make, new_model: Make, get: Get, work: Callable[[], int]
) -> None:
    """A model with an evaluation dataset reports its accuracy on that dataset, and a model without one reports
    no accuracy."""
    dataset, other = new_dataset(rows=300), new_dataset("others", rows=80, seed=1, first=300)
    measured = new_model(dataset["id"], evaluation_dataset_id=other["id"])
    unmeasured = new_model(dataset["id"])
    assert work() == 2
    metrics = get(f"/models/{measured['id']}")["metrics"]
    assert metrics["evaluated_on"] == 80
    assert metrics["accuracy"] > 0.7
    assert get(f"/models/{unmeasured['id']}")["metrics"] == {}


def test_a_damaged_evaluation_dataset_does_not_delay_a_version(
    settings: Settings, new_dataset: Make, new_model: Make, forget: Make, get: Get, work: Callable[[], int]
) -> None:
    """If the evaluation rows are damaged, the version is published without metrics, and the damage is recorded."""
    dataset, other = new_dataset(rows=60), new_dataset("others", rows=40, seed=1, first=60)
    model = new_model(dataset["id"], evaluation_dataset_id=other["id"])
    [block] = (settings.data_dir / "blocks").glob(f"{other['id']}.*.sealed")
    block.write_bytes(flipped(block.read_bytes(), 99))
    for _ in range(2):
        request = forget("p50")  # a person in only one of the datasets
        work()
    assert get(f"/deletion-requests/{request['id']}")["status"] == "completed"
    assert get(f"/models/{model['id']}")["metrics"] == {}
    assert get(f"/datasets/{other['id']}")["damage"]["kind"] == "block"
    assert get(f"/datasets/{dataset['id']}")["damage"] is None


def test_people_erased_from_the_evaluation_are_not_counted(
    installation: Installation, new_dataset: Make, new_model: Make, forget: Make, get: Get, work: Callable[[], int]
) -> None:
    """Null rows in the evaluation data are not counted in the metrics."""
    dataset, other = new_dataset(), new_dataset("others", rows=30, seed=1, first=60)
    forget("p63", dataset_ids=[other["id"]])
    assert work() == 1
    model = new_model(dataset["id"], evaluation_dataset_id=other["id"])
    assert work() == 1
    assert get(f"/models/{model['id']}")["metrics"]["evaluated_on"] == 29


def test_rows_without_a_model_are_erased(
    installation: Installation, new_dataset: Make, forget: Make, get: Get, work: Callable[[], int]
) -> None:
    """A request about a dataset without a model nulls the person's rows and completes without a certificate."""
    dataset = new_dataset(rows_each=2)
    slots = slots_of(installation, dataset["id"], "p3")
    request = forget("p3")
    assert work() == 1
    assert not rows_of(installation, dataset["id"]).features[slots].any()
    assert get(f"/deletion-requests/{request['id']}")["status"] == "completed"
    assert _newest_run(get)["kind"] == "erase"


def test_a_run_that_cannot_read_its_rows_is_retried(
    settings: Settings,
    installation: Installation,
    new_dataset: Make,
    new_model: Make,
    forget: Make,
    get: Get,
    work: Callable,
) -> None:
    """While the rows cannot be read, every run fails and no request is lost. Once they can be read, the request
    completes."""
    dataset = new_dataset()
    model = new_model(dataset["id"], noise_scale=0.02)
    assert work() == 1
    [block] = (settings.data_dir / "blocks").glob(f"{dataset['id']}.*.sealed")
    os.rename(block, block.with_name("away"))
    block.mkdir()
    request = forget("p3")
    assert runner.run_next(installation, worker="w") is True
    assert _newest_run(get)["status"] == "failed"
    assert get(f"/models/{model['id']}")["error_code"] == "IsADirectoryError"
    assert get(f"/deletion-requests/{request['id']}")["status"] == "accepted"
    block.rmdir()
    os.rename(block.with_name("away"), block)
    forget_pauses(installation)
    assert work() >= 1
    assert get(f"/deletion-requests/{request['id']}")["status"] == "completed"
    assert get(f"/models/{model['id']}")["error_code"] is None
    assert_all_done_once(installation)


def test_a_run_that_cannot_write_its_weights_is_retried(
    settings: Settings,
    installation: Installation,
    new_dataset: Make,
    new_model: Make,
    get: Get,
    work: Callable[[], int],
) -> None:
    """A training run that cannot write its weights fails and is retried automatically. Once they can be written, the
    retry publishes version 1."""
    model = new_model(new_dataset()["id"])
    keys = settings.data_dir / "weights" / "keys"
    keys.rmdir()
    keys.write_text("in the way")
    assert runner.run_next(installation, worker="w") is True
    assert get(f"/models/{model['id']}")["error_code"] == "NotADirectoryError"
    keys.unlink()
    keys.mkdir(0o700)
    wait_until(work, seconds=60)
    assert get(f"/models/{model['id']}")["live_version"] == 1
    assert_all_done_once(installation)


def test_weights_of_dead_runs_and_old_versions_are_destroyed(
    installation: Installation, new_dataset: Make, new_model: Make, work: Callable[[], int]
) -> None:
    """Stored weights are destroyed unless they belong to a live version or a current run. Repeating the cleanup is a
    no-op."""
    new_model(new_dataset()["id"])
    assert work() == 1
    new_model(new_dataset()["id"])
    with installation.database.writing() as session:
        claimed = queue.claim(session, worker="w", lease_seconds=30, max_requests=10)
    assert claimed
    installation.weights.put(claimed.version_id, sealing.to_safetensors(np.zeros((1, 4))))
    installation.weights.put("ver_of_a_dead_run", b"left over")
    for _ in range(2):
        periodic_jobs.destroy_orphans(installation)
        assert len(installation.weights.version_ids()) == 2
        assert claimed.version_id in installation.weights.version_ids()
    with installation.database.writing() as session:
        unlearning.take_back(session, worker="w")
    periodic_jobs.destroy_orphans(installation)
    assert len(installation.weights.version_ids()) == 1


@pytest.mark.parametrize("damage", ["destroyed", "changed"])
def test_runs_never_continue_from_damaged_weights(
    settings: Settings,
    installation: Installation,
    new_dataset: Make,
    new_model: Make,
    forget: Make,
    get: Get,
    damage: str,
) -> None:
    """A run that should continue from missing or changed weights fails and states the reason, and the model is
    retrained."""
    model = new_model(new_dataset()["id"], noise_scale=0.02)
    assert runner.run_next(installation, worker="w")
    [sealed] = (settings.data_dir / "weights").glob("*.sealed")
    if damage == "destroyed":
        sealed.unlink()
    else:
        content = sealed.read_bytes()
        sealed.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    request = forget("p3")
    assert runner.run_next(installation, worker="w")
    found = get(f"/models/{model['id']}")
    assert found["error_code"] == {"destroyed": "weights_destroyed", "changed": "weights_unreadable"}[damage]
    assert found["live_version"] == 1
    with installation.database.reading() as session:
        assert session.scalar(sa.select(sa.func.count()).where(Run.status == "published")) == 1
    time.sleep(0.6)  # the first pause after a failure
    assert runner.run_next(installation, worker="w")
    assert get(f"/deletion-requests/{request['id']}")["status"] == "completed"
    assert [run["kind"] for run in get("/runs")["items"]] == ["relearn", "unlearn", "learn"]


def test_a_model_of_another_size_is_refused(
    installation: Installation, new_dataset: Make, new_model: Make, get: Get
) -> None:
    """If a model's mechanism states a number of parameters that differs from the model's own, no run is executed or
    published."""
    model = new_model(new_dataset()["id"])
    with installation.database.writing() as session:
        stored = session.get_one(Model, model["id"])
        stored.mechanism = stored.mechanism | {"num_parameters": 3}
    runner.run_next(installation, worker="w")
    assert get(f"/models/{model['id']}")["error_code"] == "run_differs_from_plan"
    assert get(f"/models/{model['id']}")["live_version"] is None
