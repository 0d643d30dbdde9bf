"""Canary tests on request over HTTP."""

from collections.abc import Callable
from typing import Any

from fastapi.testclient import TestClient

from app.installations import Installation
from app.unlearning import queue, service as unlearning

Make = Callable[..., dict[str, Any]]
Get = Callable[[str], Any]
Work = Callable[[], int]
Refused = Callable[..., dict[str, Any]]


def test_a_requested_canary_test_is_a_separate_run(
    gateway: TestClient, live: dict[str, Any], get: Get, work: Work
) -> None:
    """A requested canary test is a separate run and leaves the versions, the ledger and the model unchanged."""
    place = f"/v1/models/{live['id']}"
    before, entries = get(f"/models/{live['id']}"), get(f"/accounting/models/{live['id']}/ledger")
    answer = gateway.post(f"{place}/audit")
    asked = answer.json()
    assert (answer.status_code, answer.headers["location"], asked["status"]) == (202, place, "live")
    assert asked["audit"]["asked_at"]
    assert asked["audit"]["last_run_id"] == before["audit"]["last_run_id"]
    assert work() == 1
    done, learned = get(f"/runs?model_id={live['id']}")["items"]
    assert (done["kind"], done["status"], done["error_code"], done["records"]) == ("audit", "published", None, 0)
    assert (done["audit"]["lanes"], done["audit"]["findings"]) == (16 * 256, [])
    assert done["audit"]["steps_before"] == learned["steps_total"]
    assert done["steps_done"] == done["steps_total"] == learned["steps_total"] + done["audit"]["steps"]
    after = get(f"/models/{live['id']}")
    assert after == before | {"audit": before["audit"] | {"last": done["audit"], "last_run_id": done["id"]}}
    assert get(f"/accounting/models/{live['id']}/ledger") == entries
    assert work() == 0


def test_repeating_a_canary_test_request_is_a_no_op(
    gateway: TestClient, live: dict[str, Any], work: Work, refused: Refused
) -> None:
    """Requesting a canary test again before it is done is a no-op. With the same idempotency key it is a no-op even
    afterwards."""
    place = f"/v1/models/{live['id']}/audit"
    first, again = (gateway.post(place, headers={"Idempotency-Key": "k"}) for _ in range(2))
    assert again.json() == first.json()
    assert gateway.post(place).json()["audit"]["asked_at"] == first.json()["audit"]["asked_at"]
    assert work() == 1
    assert gateway.post(place, headers={"Idempotency-Key": "k"}).json() == first.json()
    assert work() == 0
    refused(gateway.post("/v1/models/mdl_0/audit", headers={"Idempotency-Key": "k"}), 409, "idempotency_conflict")
    assert gateway.post(place).status_code == 202
    assert work() == 1


def test_only_a_live_model_is_tested(
    gateway: TestClient, new_dataset: Make, new_model: Make, get: Get, work: Work, refused: Refused
) -> None:
    """A request for a canary test gets a 409 if the model has not been trained yet, a 422 if it was created without
    canaries, and a 404 if it is unknown. No canary test is queued."""
    model = new_model(new_dataset()["id"])
    refused(gateway.post(f"/v1/models/{model['id']}/audit"), 409, "model_not_live")
    refused(gateway.post("/v1/models/mdl_0/audit"), 404, "model_unknown")
    bare = new_model(model["dataset_id"], audit={"lanes": 0})
    assert work() == 2
    assert [run["kind"] for run in get("/runs")["items"]] == ["learn", "learn"]
    refused(gateway.post(f"/v1/models/{bare['id']}/audit"), 422, "precondition_failed")


def test_a_request_runs_before_a_waiting_canary_test(
    gateway: TestClient, live: dict[str, Any], forget: Make, get: Get, work: Work
) -> None:
    """A deletion request runs before a canary test that is waiting for the same model, even if the request was
    submitted later. The test runs afterwards and affects neither the request's run nor its certificate."""
    alone = get(f"/accounting/models/{live['id']}")["next_request"]["steps"]
    gateway.post(f"/v1/models/{live['id']}/audit")
    request = forget("p1")
    assert request["estimate"]["steps"] == alone
    assert work() == 2
    audited, unlearned, _ = get("/runs")["items"]
    assert [(run["kind"], run["status"]) for run in (unlearned, audited)] == [
        ("unlearn", "published"),
        ("audit", "published"),
    ]
    assert unlearned["steps_total"] == alone
    assert get(f"/deletion-requests/{request['id']}")["status"] == "completed"
    [certificate] = get(f"/deletion-requests/{request['id']}/certificate")["certificates"]
    assert certificate["statement"]["run"] == {"id": unlearned["id"], "kind": "unlearn", "steps": alone}
    assert certificate["statement"]["audit"] == unlearned["audit"]
    assert gateway.post("/v1/certificates:verify", json={"jws": certificate["jws"]}).json()["valid"]


def test_a_request_during_a_canary_test_runs_next(
    installation: Installation, gateway: TestClient, live: dict[str, Any], forget: Make, get: Get, work: Work
) -> None:
    """A model stays in service during a canary test, and its status and progress show the test. A request submitted
    during the test runs next, even if the test is interrupted and has to be repeated."""
    gateway.post(f"/v1/models/{live['id']}/audit")
    with installation.database.writing() as session:
        claimed = queue.claim(session, worker="test", lease_seconds=60, max_requests=10)
    assert claimed
    assert (claimed.kind, claimed.slots_to_null) == ("audit", ())
    request = forget("p1")
    shown = get(f"/models/{live['id']}")
    assert (shown["status"], shown["progress"]["steps_done"]) == ("testing", 0)
    assert work() == 0
    with installation.database.writing() as session:
        unlearning.take_back(session, worker="test")
    assert get(f"/models/{live['id']}")["audit"]["asked_at"]
    assert work() == 2
    assert [(run["kind"], run["status"]) for run in get("/runs")["items"]][:3] == [
        ("audit", "published"),
        ("unlearn", "published"),
        ("audit", "abandoned"),
    ]
    assert get(f"/deletion-requests/{request['id']}")["status"] == "completed"
