"""Models whose steps read batches in order, through the service."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from fastapi.testclient import TestClient

from app.accounting import repository as accounting_repository
from app.db.tables import Model
from app.installations import Installation
from tests.faults.checks import assert_all_done_once
from tests.tables import each
from worker import isolated, runner

Make = Callable[..., dict[str, Any]]
Get = Callable[[str], Any]


def test_people_are_forgotten_one_after_another(
    gateway: TestClient,
    installation: Installation,
    new_dataset: Make,
    new_model: Make,
    forget: Make,
    get: Get,
    work: Callable[[], int],
) -> None:
    """When people are forgotten one after another, each run continues with the next batch and is tested and certified.
    The ledger and all certificates verify."""
    dataset = new_dataset(rows=60)
    model = new_model(dataset["id"], noise_scale=0.1, batch_size=7, cool_down=5)
    shown = model["mechanism"]
    assert (shown["batch_size"], shown["num_batches"], shown["cool_down"]) == (7, 8, 5)
    assert work() == 1
    for person in ("p3", "p10", "p41", "p7"):
        request = forget(person)
        assert work() == 1
        assert get(f"/deletion-requests/{request['id']}")["status"] == "completed"
        [certified] = get(f"/deletion-requests/{request['id']}/certificate")["certificates"]
        assert gateway.post("/v1/certificates:verify", json={"jws": certified["jws"]}).json()["valid"] is True
    steps = [run["steps_total"] for run in reversed(get("/runs")["items"])]
    with installation.database.reading() as session:
        entries = list(accounting_repository.all_entries(session))
        assert [ledger_body["first_step"] for ledger_body in map(_body, entries)] == [
            0,
            *(sum(steps[:number]) for number in range(1, len(steps))),
        ]
    assert_all_done_once(installation)


def _body(entry: Any) -> Any:
    return json.loads(entry.body)


@pytest.mark.parametrize(("lanes", "code"), [(0, "run_differs_from_plan"), (256, "audit_failed")])
def test_a_run_that_starts_at_another_batch_publishes_nothing(
    lanes: int,
    code: str,
    installation: Installation,
    new_dataset: Make,
    new_model: Make,
    forget: Make,
    get: Get,
    work: Callable[[], int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A run that does not continue with the next batch fails. The fault is detected by the run's canary lanes or, for a
    model without canary lanes, by the record of the run's steps."""
    model = new_model(new_dataset(rows=60)["id"], noise_scale=0.1, batch_size=7, cool_down=5, audit={"lanes": lanes})
    assert work() == 1
    request = forget("p3")
    run = isolated.run
    with monkeypatch.context() as patch:
        patch.setattr(isolated, "run", lambda made, *, first_step, **told: run(made, first_step=0, **told))
        assert runner.run_next(installation, worker="w") is True
    [last] = get("/runs?limit=1")["items"]
    assert (last["status"], last["error_code"]) == ("failed", code)
    assert get(f"/models/{model['id']}")["live_version"] == 1
    assert get(f"/deletion-requests/{request['id']}")["status"] == "accepted"


@each(
    ("asked", "code", "named"),
    [
        ({"batch_size": 61}, "precondition_failed", "batch_size=61 <= num_slots=60"),
        ({"learn_steps": 20, "cool_down": 21}, "precondition_failed", "cool_down=21 <= learn_steps=20"),
        ({"cool_down": 1025}, "precondition_failed", "<= 1024"),
        ({"batch_size": 0}, "input_invalid", "batch_size"),
        ({"cool_down": 0}, "input_invalid", "cool_down"),
    ],
)
def test_impossible_batches_are_refused(
    gateway: TestClient, new_dataset: Make, get: Get, asked: dict[str, Any], code: str, named: str
) -> None:
    """A batch with no rows or with more rows than the dataset is refused, and so is a cool-down with no steps or longer
    than the run. Each error is specific, and no model is created."""
    body = {"name": "model", "dataset_id": new_dataset(rows=60)["id"], "l2": 0.05} | asked
    refused = gateway.post("/v1/models", json=body).json()
    assert (refused["status"], refused["code"]) == (422, code)
    assert named in json.dumps(refused)
    assert get("/models")["items"] == []


@pytest.mark.parametrize(
    ("stored", "code"),
    [({"num_batches": None}, "mechanism_unreadable"), ({"method": "of_a_deleted_feature"}, "method_unsupported")],
)
def test_a_model_with_an_unreadable_mechanism_waits(
    gateway: TestClient,
    installation: Installation,
    new_dataset: Make,
    new_model: Make,
    forget: Make,
    get: Get,
    work: Callable[[], int],
    stored: dict[str, str | None],
    code: str,
) -> None:
    """If a model's stored mechanism is incomplete, or its method belongs to a feature that is not installed, reading
    the model returns a specific error, and the model and its requests wait."""
    model = new_model(new_dataset()["id"])
    assert work() == 1
    with installation.database.writing() as session:
        found = session.get_one(Model, model["id"])
        changed = found.mechanism | stored
        found.mechanism = {name: value for name, value in changed.items() if value is not None}
    request = forget("p3")
    assert work() == 0
    answer = gateway.get(f"/v1/models/{model['id']}").json()
    assert (answer["status"], answer["code"]) == (500, code)
    assert ("lethe migrate" in answer["detail"]) == (code == "mechanism_unreadable")
    assert get(f"/deletion-requests/{request['id']}")["status"] == "accepted"
    with installation.database.reading() as session:
        assert session.get_one(Model, model["id"]).live_version == 1
