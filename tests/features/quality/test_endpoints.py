"""Quality gates over HTTP, with a real worker: a version that misses its gate is held, and still forgets."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from fastapi.testclient import TestClient

Make = Callable[..., dict[str, Any]]
Get = Callable[[str], Any]
Refused = Callable[..., dict[str, Any]]
Work = Callable[[], int]

OUT_OF_REACH = {"metric": "accuracy", "threshold": 1.5, "on_breach": "hold"}
WITHIN_REACH = {"metric": "accuracy", "threshold": 0.0, "on_breach": "hold"}
RECORDS = {"records": [[0.1, 0.2, 0.3]]}


@pytest.fixture
def gated(new_dataset: Make, new_model: Make) -> Callable[[dict[str, Any] | None], str]:
    """Return a function that creates a model with a quality gate and returns its id. The model is measured on people it
    is not trained on."""

    def create(quality: dict[str, Any] | None) -> str:
        measured = new_dataset(name="measured", seed=1, first=1000)["id"]
        model = new_model(new_dataset()["id"], evaluation_dataset_id=measured, quality=quality)
        return str(model["id"])

    return create


def actions(get: Get, model_id: str) -> list[str]:
    """Return the audited actions on a model, oldest first, excluding its creation."""
    found = [one for one in get(f"/audit-log?object_id={model_id}")["items"] if one["action"] != "model.created"]
    return [one["action"] for one in reversed(found)]


@pytest.mark.soak
def test_a_held_version_forgets_but_is_not_served(
    gateway: TestClient,
    gated: Callable[..., str],
    new_dataset: Make,
    new_model: Make,
    forget: Make,
    get: Get,
    refused: Refused,
    work: Work,
) -> None:
    """Neither predictions nor weights of a held version are served, but the version still completes requests with
    certificates, and the previous version is destroyed. Once the version is released, it is served, and the next
    version is judged again. A held model is ranked as more urgent than a model with waiting requests. The error never
    suggests retraining, because certificates do not cover noise that is drawn again until the result is good."""
    model_id = gated(OUT_OF_REACH)
    awaited = new_model(new_dataset(rows=60)["id"])["id"]
    work()
    model = get(f"/models/{model_id}")
    assert (model["status"], model["live_version"], model["quality"]["held"]) == ("held", 1, True)
    assert (model["quality"]["is_met"], model["quality"]["value"]) == (False, model["metrics"]["accuracy"])
    said = refused(gateway.post(f"/v1/models/{model_id}/predictions", json=RECORDS), 409, "model_held")["detail"]
    assert f"/v1/models/{model_id}/versions/1/release" in said
    assert "learn again" not in said
    refused(gateway.get(f"/v1/models/{model_id}/versions/1/weights"), 409, "model_held")
    serving = get(f"/models/{model_id}/serving")
    assert (serving["may_serve"], serving["reason"]) == (False, "held")
    assert get(f"/models/{model_id}/exports")["items"] == []
    forget("p30", identity_verified=False)
    assert [one["id"] for one in get("/models?order=risk")["items"]] == [model_id, awaited]

    request = forget("p1")
    work()
    done = get(f"/deletion-requests/{request['id']}")
    assert (done["status"], done["models"][0]["version"]) == ("completed", 2)
    assert get(f"/deletion-requests/{request['id']}/certificate")
    first, second = get(f"/models/{model_id}/versions/1"), get(f"/models/{model_id}/versions/2")
    assert (first["status"], second["status"], second["held"]) == ("destroyed", "live", True)
    counted = get("/overview")["models"]
    assert (counted["degraded"], counted["held"]) == (1, 1)
    assert [one["id"] for one in get("/models?danger=held")["items"]] == [model_id]
    metrics = gateway.get("/metrics").text
    assert 'lethe_models_degraded{served="no"} 1.0' in metrics

    assert gateway.post(f"/v1/models/{model_id}/versions/1/release").json()["code"] == "weights_destroyed"
    released = gateway.post(f"/v1/models/{model_id}/versions/2/release").json()
    assert (released["status"], released["quality"]["held"]) == ("degraded", False)
    assert gateway.post(f"/v1/models/{model_id}/predictions", json=RECORDS).status_code == 200
    assert gateway.get(f"/v1/models/{model_id}/versions/2/weights").status_code == 200
    forget("p2")
    work()
    assert get(f"/models/{model_id}")["status"] == "held"
    assert actions(get, model_id) == [
        *("version.degraded", "version.held") * 2,
        "version.released",
        "model.weights_exported",
        *("version.degraded", "version.held"),
    ]
    entries = [one for one in get("/audit-log")["items"] if one["action"].startswith("version.")]
    # The entry must not contain the value, because the log is never erased.
    assert all(one["detail"].keys() == {"version"} for one in entries)


def test_a_gate_is_changed_while_a_version_is_live(
    gateway: TestClient, gated: Callable[..., str], get: Get, work: Work
) -> None:
    """Setting, replacing or removing a gate affects the live version immediately."""
    model_id = gated(None)
    work()
    place = f"/v1/models/{model_id}"
    assert (get(f"/models/{model_id}")["status"], get(f"/models/{model_id}")["quality"]) == ("live", None)
    softly = OUT_OF_REACH | {"on_breach": "publish_degraded"}
    for gate, status in ((softly, "degraded"), (OUT_OF_REACH, "held"), (WITHIN_REACH, "live"), (OUT_OF_REACH, "held")):
        assert gateway.patch(place, json={"quality": gate}).json()["status"] == status
        assert get(f"/models/{model_id}/versions/1")["degraded"] is (status != "live")
    assert gateway.delete(f"{place}/gate").json()["status"] == "live"
    assert gateway.post(f"{place}/predictions", json=RECORDS).status_code == 200


def test_an_unmeasured_version_misses_its_gate(
    gateway: TestClient, gated: Callable[..., str], forget: Make, get: Get, refused: Refused, work: Work
) -> None:
    """When a person in the evaluation data is forgotten, the model's metrics are deleted, so that the version misses
    any gate set afterwards. The next version is measured again and meets the gate."""
    model_id = gated(None)
    work()
    forget("p1000")
    work()
    assert get(f"/models/{model_id}")["metrics"] == {}
    found = gateway.patch(f"/v1/models/{model_id}", json={"quality": WITHIN_REACH}).json()
    assert (found["status"], found["quality"]["value"]) == ("held", None)
    gateway.post(f"/v1/models/{model_id}/relearn")
    work()
    found = get(f"/models/{model_id}")
    assert (found["status"], found["live_version"], found["quality"]["is_met"]) == ("live", 2, True)


def test_an_impossible_gate_is_refused(
    gateway: TestClient, live: dict[str, Any], gated: Callable[..., str], refused: Refused
) -> None:
    """A gate is refused if its threshold is not finite, if its metric does not belong to the task, or if there is no
    evaluation data."""
    place = f"/v1/models/{gated(None)}"
    refused(gateway.patch(place, json={"quality": OUT_OF_REACH | {"metric": "r_squared"}}), 422, "precondition_failed")
    infinite = json.dumps({"quality": OUT_OF_REACH | {"threshold": float("inf")}})
    sent = gateway.patch(place, content=infinite, headers={"Content-Type": "application/json"})
    refused(sent, 422, "input_invalid")
    refused(gateway.patch(place, json={"quality": None}), 422, "input_invalid")
    refused(gateway.patch(f"/v1/models/{live['id']}", json={"quality": OUT_OF_REACH}), 422, "precondition_failed")


def test_remedies_state_their_passes(gateway: TestClient, live: dict[str, Any], get: Get) -> None:
    """A live model's remedies state how many passes they take. A retired model has no remedies."""
    found = get(f"/models/{live['id']}/remedies")
    assert {one["kind"] for one in found["remedies"]} == {"relearn", "more_slots", "l2"}
    assert all(one["learn_passes"] >= one["request_passes"] > 0 for one in found["remedies"])
    gateway.delete(f"/v1/models/{live['id']}")
    assert gateway.get(f"/v1/models/{live['id']}/remedies").json()["code"] == "model_retired"
