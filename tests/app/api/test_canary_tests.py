"""Canary tests over HTTP: their settings on a model and the results of runs."""

from collections.abc import Callable
from typing import Any

from fastapi.testclient import TestClient

from tests.tables import each

Make = Callable[..., dict[str, Any]]
Get = Callable[[str], Any]
Work = Callable[[], int]
Refused = Callable[..., dict[str, Any]]


def test_every_run_has_a_canary_test(live: dict[str, Any], forget: Make, get: Get, work: Work) -> None:
    """A run reports the observations of its canary lanes, the extra coordinates on which its canary test is based. The
    model shows the observations of its latest run, and a certificate states the observations of the run that it
    certifies."""
    request = forget("p1")
    work()
    unlearned, learned = get("/runs")["items"]
    learning, forgetting = learned["audit"], unlearned["audit"]
    assert (learning["lanes"], learning["steps_before"], learning["steps"]) == (256, 0, learned["steps_total"])
    assert (forgetting["steps_before"], forgetting["steps"]) == (learned["steps_total"], unlearned["steps_total"])
    for said in (learning, forgetting):
        assert said["findings"] == []
        assert said["guesses"]["members"] == said["guesses"]["nonmembers"] == 128
        assert 0 <= said["epsilon_lower_bound"] <= said["epsilon"]
        assert said["error"] < 1e-6
    assert (learning["notion"], forgetting["notion"]) == ("release", "deletion")
    shown = get(f"/models/{live['id']}")["audit"]
    assert shown == {
        "lanes": 256,
        "chains": 16,
        "asked_at": None,
        "last": forgetting,
        "last_run_id": unlearned["id"],
    }
    [certificate] = get(f"/deletion-requests/{request['id']}/certificate")["certificates"]
    assert certificate["statement"]["audit"] == forgetting


def test_a_canary_test_has_the_requested_lanes_and_chains(
    gateway: TestClient, new_dataset: Make, new_model: Make, get: Get, work: Work
) -> None:
    """A model has the requested number of canary lanes. A canary test that is run on request has this number of lanes
    for each requested chain."""
    model = new_model(new_dataset()["id"], audit={"lanes": 4, "chains": 3})
    assert model["audit"] == {"lanes": 4, "chains": 3, "asked_at": None, "last": None, "last_run_id": None}
    work()
    gateway.post(f"/v1/models/{model['id']}/audit")
    work()
    asked, learned = get("/runs")["items"]
    assert (learned["audit"]["lanes"], asked["audit"]["lanes"]) == (4, 12)


@each(
    "asked",
    [
        {"lanes": -2},
        {"lanes": 1},
        {"lanes": 255},
        {"lanes": 4098},
        {"lanes": 10**400},
        {"lanes": 256.5},
        {"lanes": "256"},
        {"lanes": True},
        {"lanes": None},
        {"chains": 0},
        {"chains": 65},
        {"chains": 1.5},
        {"records": 1},
    ],
)
def test_a_malformed_canary_test_is_refused(
    gateway: TestClient, new_dataset: Make, refused: Refused, stored: Callable[[], dict[str, int]], asked: Any
) -> None:
    """A number of canary lanes or chains that is odd, too large or not a number is refused, and no model is created."""
    body = {"name": "m", "dataset_id": new_dataset(rows=20)["id"], "l2": 0.05, "audit": asked}
    problem = refused(gateway.post("/v1/models", json=body), 422, "input_invalid")
    assert [fault["path"] for fault in problem["errors"]] == [f"audit.{next(iter(asked))}"]
    assert stored()["models"] == 0


def test_a_model_without_lanes_has_no_canary_test(
    gateway: TestClient, new_dataset: Make, new_model: Make, forget: Make, get: Get, work: Work, refused: Refused
) -> None:
    """Runs of a model without canary lanes are published without a canary test, and their certificates state this. A
    request for a canary test of such a model is refused."""
    model = new_model(new_dataset()["id"], audit={"lanes": 0})
    work()
    request = forget("p1")
    work()
    assert [run["audit"] for run in get("/runs")["items"]] == [None, None]
    [certificate] = get(f"/deletion-requests/{request['id']}/certificate")["certificates"]
    assert certificate["statement"]["audit"] is None
    jws = {"jws": certificate["jws"]}
    assert gateway.post("/v1/certificates:verify", json=jws).json()["valid"]
    refused(gateway.post(f"/v1/models/{model['id']}/audit"), 422, "precondition_failed")
