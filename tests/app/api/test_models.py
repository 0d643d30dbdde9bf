"""The endpoints below `/v1/models`."""

import hashlib
import json
from collections.abc import Callable
from typing import Any

import pytest
from fastapi.testclient import TestClient
from safetensors.numpy import load

from app.installations import Installation
from app.unlearning import queue, service as unlearning
from lethe.contract.sets import Scope
from tests.tables import each

Make = Callable[..., dict[str, Any]]
Get = Callable[[str], Any]
Work = Callable[[], int]
Refused = Callable[..., dict[str, Any]]


def test_a_model_is_trained_in_the_background(gateway: TestClient, new_dataset: Make, get: Get, work: Work) -> None:
    """Creating a model returns 202 with its location. The model's status is `learning` until a worker has run, and then
    `live`."""
    body = {"name": "churn", "dataset_id": new_dataset()["id"], "l2": 0.05, "target": {"epsilon": 2}}
    answer = gateway.post("/v1/models", json=body)
    model = answer.json()
    assert (answer.status_code, answer.headers["location"]) == (202, f"/v1/models/{model['id']}")
    assert model["id"].startswith("mdl_")
    assert (model["status"], model["live_version"], model["guarantee"], model["error_code"]) == (
        "learning",
        None,
        None,
        None,
    )
    assert model["target"] == {"epsilon": 2.0, "delta": pytest.approx(60**-1.1)}
    mechanism = model["mechanism"]
    assert (mechanism["num_slots"], mechanism["strong_convexity"], mechanism["gradient_bound"]) == (60, 0.05, 1.0)
    assert mechanism["contraction"] < 1
    assert get(f"/models/{model['id']}") == model

    assert work() == 1
    done = get(f"/models/{model['id']}")
    assert (done["status"], done["live_version"], done["progress"]) == ("live", 1, None)
    assert {guarantee["notion"] for guarantee in done["guarantee"]} >= {"unlearning"}
    assert get("/models")["items"] == [done]


def test_progress_is_shown_while_a_worker_runs(
    installation: Installation,
    gateway: TestClient,
    new_dataset: Make,
    new_model: Make,
    forget: Make,
    get: Get,
    work: Work,
) -> None:
    """A model shows the progress of its current run, whether the run is for learning, unlearning or relearning."""
    model = new_model(new_dataset()["id"])

    def during_a_run() -> dict[str, Any]:
        with installation.database.writing() as session:
            claimed = queue.claim(session, worker="test", lease_seconds=60, max_requests=10)
            assert claimed
            unlearning.renew(session, run_id=claimed.run_id, steps_done=1, lease_seconds=60)
        shown: dict[str, Any] = get(f"/models/{model['id']}")
        run = get(f"/runs/{claimed.run_id}")
        with installation.database.writing() as session:
            unlearning.take_back(session, worker="test")
        progress = shown["progress"]
        assert (progress["run_id"], progress["steps_done"]) == (claimed.run_id, 1)
        assert progress["steps_total"] == claimed.steps
        assert (progress["seconds_left"] > 0) == (claimed.steps > 1)
        assert progress["expected_at"] is not None
        assert run["seconds_left"] is not None
        return shown

    assert during_a_run()["status"] == "learning"
    work()
    forget("p1")
    assert during_a_run()["status"] == "unlearning"
    work()
    gateway.post(f"/v1/models/{model['id']}/relearn")
    assert during_a_run()["status"] == "relearning"


REFUSED: dict[str, tuple[str, int, str]] = {
    "epsilon 0": ('"target": {"epsilon": 0}', 422, "input_invalid"),
    "epsilon below 0": ('"target": {"epsilon": -1}', 422, "input_invalid"),
    "epsilon NaN": ('"target": {"epsilon": NaN}', 422, "input_invalid"),
    "delta 1": ('"target": {"delta": 1}', 422, "input_invalid"),
    "delta 0": ('"target": {"delta": 0}', 422, "input_invalid"),
    "delta NaN": ('"target": {"delta": NaN}', 422, "input_invalid"),
    "noise 0": ('"noise_scale": 0', 422, "input_invalid"),
    "noise NaN": ('"noise_scale": NaN', 422, "input_invalid"),
    "noise infinite": ('"noise_scale": Infinity', 422, "input_invalid"),
    "noise too small to be carried": ('"noise_scale": 1e-200', 422, "precondition_failed"),
    "noise too large to compute with": ('"noise_scale": 1e200', 422, "precondition_failed"),
    "a step that does not contract": ('"step_size": 100', 422, "precondition_failed"),
    "no regularisation to speak of": ('"l2": 1e-8', 422, "target_unreachable"),
    "a target that no deletion could reach": (
        '"noise_scale": 1e-6, "l2": 1e-6, "learn_steps": 1, "target": {"epsilon": 1e-9, "delta": 1e-9}',
        422,
        "target_unreachable",
    ),
    "too many steps": ('"learn_steps": 1000001', 422, "target_unreachable"),
    "a field that is not ours": ('"dropout": 0.5', 422, "input_invalid"),
    "a text for a number": ('"l2": "much"', 422, "input_invalid"),
    "another objective": ('"objective": "svm"', 422, "input_invalid"),
    "a name with NUL": ('"name": "a\\u0000"', 422, "input_invalid"),
    "an unknown dataset": ('"dataset_id": "ds_0"', 404, "dataset_unknown"),
    "an unknown evaluation dataset": ('"evaluation_dataset_id": "ds_0"', 404, "dataset_unknown"),
}


@each("case", REFUSED)
def test_a_model_without_a_guarantee_is_refused(
    gateway: TestClient, new_dataset: Make, refused: Refused, stored: Callable[[], dict[str, int]], case: str
) -> None:
    """Model settings that are malformed, give no guarantee or cannot reach the target are refused with a specific
    error, and no model is created."""
    changed, status, code = REFUSED[case]
    fields = json.dumps({"name": "m", "dataset_id": new_dataset(rows=20)["id"], "l2": 0.05})
    body = f"{fields[:-1]}, {changed}}}"  # of two equal names in JSON, the last one counts
    refused(gateway.post("/v1/models", content=body, headers={"Content-Type": "application/json"}), status, code)
    assert stored()["models"] == 0


def test_evaluation_data_must_have_the_same_shape(gateway: TestClient, new_dataset: Make, refused: Refused) -> None:
    """The evaluation dataset must have the same features and classes as the model's training dataset."""
    learned_on = new_dataset()["id"]
    for shape in ({"features": 4}, {"classes": 3}):
        other = new_dataset(**shape, seed=2, first=300)["id"]
        body = {"name": "m", "dataset_id": learned_on, "l2": 0.05, "evaluation_dataset_id": other}
        refused(gateway.post("/v1/models", json=body), 422, "precondition_failed")


def test_relearning_creates_a_new_version(
    gateway: TestClient, live: dict[str, Any], get: Get, work: Work, refused: Refused
) -> None:
    """Relearning creates a new version, and versions are listed newest first. The old version's weights are destroyed,
    and the list shows when."""
    place = f"/v1/models/{live['id']}"
    answer = gateway.post(f"{place}/relearn")
    assert (answer.status_code, answer.headers["location"]) == (202, place)
    assert answer.json()["live_version"] == 1
    assert work() == 1
    second, first = get(f"/models/{live['id']}/versions")["items"]
    assert [(v["number"], v["status"]) for v in (second, first)] == [(2, "live"), (1, "destroyed")]
    assert first["destroyed_at"]
    assert get(f"/models/{live['id']}/versions/2") == second
    assert get(f"/runs/{second['run_id']}")["kind"] == "relearn"

    weights = gateway.get(f"{place}/versions/2/weights")
    assert weights.headers["content-type"] == "application/octet-stream"
    assert weights.headers["cache-control"] == "no-store"
    assert hashlib.sha256(weights.content).hexdigest() == second["weights_sha256"]
    assert load(weights.content)["parameters"].shape == (1, 4)
    refused(gateway.get(f"{place}/versions/1/weights"), 410, "weights_destroyed")
    refused(gateway.get(f"{place}/versions/3/weights"), 404, "version_unknown")
    refused(gateway.get(f"{place}/versions/3"), 404, "version_unknown")
    refused(gateway.get(f"{place}/versions/{10**30}"), 422, "input_invalid")


def test_repeating_a_call_creates_one_model(
    gateway: TestClient, new_dataset: Make, work: Work, refused: Refused
) -> None:
    """Repeating a call that creates or relearns a model with the same Idempotency-Key has no further effect; sending a
    different body with that key is a conflict."""
    body = {"name": "m", "dataset_id": new_dataset()["id"], "l2": 0.05}
    once = {"Idempotency-Key": "k"}
    first, again = (gateway.post("/v1/models", json=body, headers=once) for _ in range(2))
    assert (again.status_code, again.json(), again.headers["location"]) == (
        202,
        first.json(),
        first.headers["location"],
    )
    refused(gateway.post("/v1/models", json=body | {"name": "n"}, headers=once), 409, "idempotency_conflict")
    assert work() == 1
    for _ in range(2):
        gateway.post(f"/v1/models/{first.json()['id']}/relearn", headers={"Idempotency-Key": "r"})
        assert gateway.post("/v1/models/mdl_0/relearn", headers={"Idempotency-Key": "r"}).status_code == 409
    assert work() == 1


def test_models_are_listed_by_dataset(gateway: TestClient, new_dataset: Make) -> None:
    """Filtering by dataset lists the models that are trained on it, but not those that only use it for evaluation. The
    list is newest first and can be combined with any other filter."""
    mine, others = new_dataset()["id"], new_dataset(seed=1, first=200)["id"]

    def made(name: str, **body: Any) -> Any:
        return gateway.post("/v1/models", json={"name": name, "l2": 0.05} | body).raise_for_status().json()["id"]

    first = made("a", dataset_id=mine)
    made("b", dataset_id=others, evaluation_dataset_id=mine)
    second = made("c", dataset_id=mine)
    for more in ("", "&order=risk", "&name=A"):
        answer = gateway.get(f"/v1/models?dataset_id={mine}{more}").raise_for_status().json()
        expected = {first} if "name" in more else {first, second}
        assert {model["id"] for model in answer["items"]} == expected
    assert gateway.get(f"/v1/models?dataset_id={mine}").json()["items"][0]["id"] == second
    assert gateway.get("/v1/models?dataset_id=ds_nothing").json()["items"] == []
    assert gateway.get(f"/v1/models?dataset_id={mine}&danger=failed").json()["items"] == []


def test_relearning_a_model_that_is_learning_is_a_no_op(
    gateway: TestClient, new_dataset: Make, new_model: Make, work: Work
) -> None:
    """Requesting relearning is a no-op for a model that has not completed its initial training."""
    model = new_model(new_dataset()["id"])
    assert gateway.post(f"/v1/models/{model['id']}/relearn").json()["status"] == "learning"
    assert work() == 1


def test_waiting_requests_are_hidden_without_the_accounting_scope(
    live: dict[str, Any], forget: Make, gateway: TestClient, key_with: Callable[..., dict[str, str]]
) -> None:
    """A key that can make requests and read models does not see the number of waiting requests, because that number
    would reveal who is held."""
    key = key_with(Scope.MODELS_READ, Scope.REQUESTS_WRITE)
    forget("p1")
    for path in (f"/v1/models/{live['id']}", "/v1/models"):
        shown = gateway.get(path, headers=key).json()
        [model] = shown.get("items", [shown])
        assert model["waiting"] is None
