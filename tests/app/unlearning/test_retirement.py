"""Cancelled training, and retired models and datasets: what ends, what is destroyed and what is kept."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient

from app.catalogue import datasets
from app.db import Actor
from app.db.tables import Addition, Dataset, Model, Record, Run
from app.errors import LeaseLost
from app.installations import Installation
from app.operations import periodic_jobs
from app.unlearning import queue, retirement, service as unlearning
from app.unlearning.queue import ClaimedRun
from tests.conftest import one_row

Make = Callable[..., dict[str, Any]]
Get = Callable[[str], Any]
Call = Callable[..., dict[str, Any]]


@pytest.fixture
def claim(installation: Installation) -> Callable[[], ClaimedRun]:
    """Return a function that claims the next run, which must exist."""

    def taken() -> ClaimedRun:
        with installation.database.writing() as session:
            claimed = queue.claim(session, worker="w", lease_seconds=60, max_requests=500)
        assert claimed
        return claimed

    return taken


@pytest.fixture
def call(gateway: TestClient) -> Call:
    """Return a function that makes a call, checks its status and returns the response body."""

    def made(method: str, path: str, *, code: str | None = None, **asked: Any) -> dict[str, Any]:
        answer = gateway.request(method, f"/v1{path}", **asked)
        body: dict[str, Any] = answer.json()
        assert (answer.is_success, body.get("code")) == (code is None, code), answer.text
        return body

    return made


@pytest.fixture
def live(new_dataset: Make, new_model: Make, work: Callable[[], int]) -> dict[str, Any]:
    """Return a live model of 60 people."""
    model = new_model(new_dataset()["id"], noise_scale=0.02)
    work()
    return model


def status(get: Get, model: dict[str, Any]) -> tuple[str, int | None]:
    found = get(f"/models/{model['id']}")
    return found["status"], found["live_version"]


# --- cancelled runs --------------------------------------------------------------------------------------------------


def test_a_cancelled_first_run_can_be_restarted(
    installation: Installation,
    new_dataset: Make,
    new_model: Make,
    get: Get,
    call: Call,
    claim: Any,
    work: Callable[[], int],
) -> None:
    """After its first run is cancelled, a model is not due and reports the cancellation; requesting retraining starts
    it again."""
    model = new_model(new_dataset()["id"])
    claimed = claim()
    assert call("POST", f"/runs/{claimed.run_id}/cancel")["status"] == "cancelled"
    assert status(get, model) == ("cancelled", None)
    with installation.database.reading() as session, pytest.raises(LeaseLost):
        unlearning.check_held(session, run_id=claimed.run_id)
    assert work() == 0
    call("POST", f"/runs/{claimed.run_id}/cancel", code="run_not_cancellable")
    call("POST", f"/models/{model['id']}/relearn")
    assert work() == 1
    assert status(get, model) == ("live", 1)
    assert [run["status"] for run in get("/runs")["items"]] == ["published", "cancelled"]


def test_cancelling_a_retraining_keeps_the_live_version(
    live: dict[str, Any], get: Get, call: Call, claim: Any, work: Callable[[], int]
) -> None:
    """If retraining or a canary test is cancelled, the live version stays in service."""
    for asked in ("relearn", "audit"):
        call("POST", f"/models/{live['id']}/{asked}")
        call("POST", f"/runs/{claim().run_id}/cancel")
        assert work() == 0
        assert status(get, live) == ("live", 1)
    assert get(f"/models/{live['id']}")["audit"]["asked_at"] is None


def test_cancelling_a_first_run_completes_waiting_requests(
    new_dataset: Make, new_model: Make, forget: Make, get: Get, call: Call, claim: Any, work: Any
) -> None:
    """A request made during a model's first training run completes if that run is cancelled, because the model has not
    published any version."""
    new_model(new_dataset()["id"])
    claimed = claim()
    request = forget("p1")
    call("POST", f"/runs/{claimed.run_id}/cancel")
    assert work() == 1
    found = get(f"/deletion-requests/{request['id']}")
    assert (found["status"], found["outcome"], found["models"]) == ("completed", "forgotten", [])


def test_a_run_for_a_deletion_cannot_be_cancelled(
    live: dict[str, Any], new_model: Make, forget: Make, get: Get, call: Call, claim: Any
) -> None:
    """A run that a deletion request is waiting for cannot be cancelled."""
    new_model(live["dataset_id"])
    forget("p1")
    claimed = claim()
    call("POST", f"/runs/{claimed.run_id}/cancel", code="run_not_cancellable")
    assert get(f"/runs/{claimed.run_id}")["status"] == "running"


def test_a_mandatory_retraining_cannot_be_cancelled(
    installation: Installation, live: dict[str, Any], call: Call, claim: Any
) -> None:
    """If a model's weights are lost, its retraining cannot be cancelled, but retiring the model ends the retraining."""
    with installation.database.writing() as session:
        model = session.get_one(Model, live["id"])
        model.wanted, model.error_code = "relearn", "weights_destroyed"
    claimed = claim()
    refusal = call("POST", f"/runs/{claimed.run_id}/cancel", code="run_not_cancellable")
    assert f"DELETE /v1/models/{live['id']}" in refusal["detail"]
    call("DELETE", f"/models/{live['id']}")
    with installation.database.reading() as session:
        assert session.get_one(Run, claimed.run_id).status == "cancelled"


# --- models ----------------------------------------------------------------------------------------------------------


def test_retiring_a_model_destroys_its_weights(
    installation: Installation, live: dict[str, Any], forget: Make, gateway: TestClient, get: Get, call: Call, work: Any
) -> None:
    """Retiring a model destroys its weights at once. Its versions, exports, ledger and certificates are kept, and later
    requests do not involve the model."""
    path = f"/models/{live['id']}"
    assert gateway.get(f"/v1{path}/versions/1/weights").status_code == 200
    first = forget("p1")
    work()
    for _ in range(2):
        found = call("DELETE", path)
        assert (found["status"], found["live_version"], found["guarantee"]) == ("retired", None, None)
        assert found["destroyed_at"]
    assert not installation.weights.version_ids()
    for method, under, code in (
        ("GET", "/versions/2/weights", "weights_destroyed"),
        ("POST", "/predictions", "model_retired"),
        ("POST", "/relearn", "model_retired"),
        ("POST", "/audit", "model_retired"),
    ):
        body = {"records": [[0.0, 0.0, 0.0]]} if under == "/predictions" else None
        call(method, f"{path}{under}", code=code, **({"json": body} if body else {}))
    assert get(f"{path}/serving")["may_serve"] is False
    assert [one["status"] for one in get(f"{path}/versions")["items"]] == ["destroyed"] * 2
    assert [one["version"] for one in get(f"{path}/exports")["items"]] == [1]
    assert get(f"/accounting{path}/ledger/verdict")["valid"]
    assert get(f"/accounting/deletion-requests/{first['id']}")
    assert get(f"/deletion-requests/{first['id']}/certificate")
    [carried] = get(f"/deletion-requests/{first['id']}/lineage")["models"]
    assert (carried["num_versions"], carried["num_copies_outside"]) == (1, 1)
    later = forget("p2")
    assert work() == 1
    found = get(f"/deletion-requests/{later['id']}")
    assert (found["status"], found["models"]) == ("completed", [])
    [carried] = get(f"/deletion-requests/{later['id']}/lineage")["models"]
    assert carried["num_versions"] == 2


def test_a_model_that_owes_a_version_cannot_be_retired(
    live: dict[str, Any], forget: Make, get: Get, call: Call, work: Any
) -> None:
    """A model that still owes a request a new version cannot be retired, and the error explains how to proceed."""
    forget("p1")
    refusal = call("DELETE", f"/models/{live['id']}", code="model_in_use")
    assert f"model_id={live['id']}" in refusal["detail"]
    assert status(get, live) == ("live", 1)
    work()
    assert call("DELETE", f"/models/{live['id']}")["status"] == "retired"


def test_a_model_in_training_can_be_retired(
    installation: Installation, new_dataset: Make, new_model: Make, call: Call, claim: Any, work: Callable[[], int]
) -> None:
    """Retiring a model during training ends the model's run. Any weights that the run's worker writes afterwards are
    destroyed, like those of any run that has ended."""
    model = new_model(new_dataset()["id"])
    claimed = claim()
    assert call("DELETE", f"/models/{model['id']}")["status"] == "retired"
    with installation.database.reading() as session, pytest.raises(LeaseLost):
        unlearning.check_held(session, run_id=claimed.run_id)
    assert work() == 0


# --- datasets --------------------------------------------------------------------------------------------------------


def test_retiring_a_dataset_destroys_its_rows(
    installation: Installation, live: dict[str, Any], forget: Make, get: Get, call: Call, work: Any
) -> None:
    """If all models of a dataset are retired and no requests are waiting, retiring the dataset destroys its rows and
    the references to their people. After that, no model can be trained on the dataset, no rows can be added to it, and
    later requests about its former people find no data held there."""
    forget("p1")
    work()
    dataset_id = live["dataset_id"]
    path = f"/datasets/{dataset_id}"
    refusal = call("DELETE", path, code="dataset_in_use")
    assert f"DELETE /v1/models/{live['id']}" in refusal["detail"]
    call("DELETE", f"/models/{live['id']}")
    for _ in range(2):
        found = call("DELETE", path)
        assert (found["num_records"], found["num_subjects"]) == (0, 0)
        assert found["retired_at"]
        assert found["destroyed_at"]
    assert dataset_id not in installation.rows.stored()
    with installation.database.reading() as session:
        assert session.scalars(sa.select(Record)).first() is None
    call("POST", "/models", code="dataset_retired", json={"name": "m", "dataset_id": dataset_id})
    call("POST", f"{path}/records", code="dataset_retired", files=one_row("somebody"))
    later = forget("p2", dataset_ids=[dataset_id])
    assert get(f"/deletion-requests/{later['id']}")["outcome"] == "nothing_held"
    assert get("/suppressions")["items"]
    assert work() == 0


def test_a_dataset_with_rows_to_be_erased_cannot_be_retired(
    new_dataset: Make, forget: Make, get: Get, call: Call, work: Any
) -> None:
    """A dataset with rows awaiting erasure cannot be retired. A request in review that is approved after the retirement
    finds no data held there."""
    dataset = new_dataset()
    forget("p1")
    call("DELETE", f"/datasets/{dataset['id']}", code="dataset_in_use")
    work()
    call("PATCH", "/tenant", json={"policy": {"auto_accept": False}})
    reviewed = forget("p2")
    call("DELETE", f"/datasets/{dataset['id']}")
    call("POST", f"/deletion-requests/{reviewed['id']}/approve")
    assert work() == 0
    assert get(f"/deletion-requests/{reviewed['id']}")["outcome"] == "nothing_held"


def test_waiting_batches_are_dropped_with_their_dataset(
    installation: Installation, new_dataset: Make, forget: Make, get: Get, call: Call, work: Any
) -> None:
    """If a dataset is retired, batches waiting to be added are dropped, and their rows are destroyed too."""
    dataset = new_dataset()
    forget("p1")
    work()
    added = call("POST", f"/datasets/{dataset['id']}/records", files=one_row("somebody"))
    call("DELETE", f"/datasets/{dataset['id']}")
    assert get(f"/datasets/{dataset['id']}/additions/{added['id']}")["status"] == "dropped"
    assert not installation.rows.stored()
    with installation.database.reading() as session:
        assert not session.get_one(Addition, added["id"]).staged
    assert work() == 0


def test_an_interrupted_retirement_is_completed(installation: Installation, by: Actor, live: dict[str, Any]) -> None:
    """If a retirement is killed after committing, after writing the tombstones or after destroying the rows, the next
    attempt completes it. Until then, the dataset is not reported as destroyed."""
    with installation.database.writing(by=by) as session:
        retirement.retire_model(session, installation.keys, session.get_one(Model, live["id"]))
        retirement.retire_dataset(session, installation.keys, datasets.get(session, live["dataset_id"]))
    with installation.database.reading() as session:
        assert session.get_one(Dataset, live["dataset_id"]).destroyed_at is None
    folder = installation.settings.resolved_tombstones().parent
    folder.chmod(0o500)
    try:
        periodic_jobs.destroy_now(installation)  # rows are not destroyed if this cannot be recorded
    finally:
        folder.chmod(0o700)
    installation.rows.delete(live["dataset_id"])  # and then died
    periodic_jobs.sweep_rows(installation)
    for _ in range(2):
        periodic_jobs.destroy_of_retired(installation)
    with installation.database.reading() as session:
        assert session.get_one(Dataset, live["dataset_id"]).destroyed_at
        assert session.get_one(Model, live["id"]).destroyed_at
    assert not installation.weights.version_ids()
    assert not installation.rows.stored()


def test_blocks_written_after_a_retirement_are_swept(installation: Installation, new_dataset: Make, call: Call) -> None:
    """Blocks that a worker left in the middle of an edit are swept at once. Unlike the keys of an unfinished upload,
    their keys are not kept for an hour."""
    dataset = new_dataset()
    call("DELETE", f"/datasets/{dataset['id']}")
    for rows_id in (dataset["id"], "ds_uploaded"):
        with installation.rows.writing(rows_id) as writer:
            writer.write(np.ones((2, 4), dtype="<f4"), np.zeros(2, dtype="<i4"))
    periodic_jobs.sweep_rows(installation)
    assert set(installation.rows.stored()) == {"ds_uploaded"}
