"""The endpoints below `/v1/accounting`."""

import hashlib
import json
from collections.abc import Callable
from typing import Any

import pytest
from fastapi.testclient import TestClient

Make = Callable[..., dict[str, Any]]
Get = Callable[[str], Any]
Work = Callable[[], int]
Refused = Callable[..., dict[str, Any]]


def test_where_a_model_stands(live: dict[str, Any], forget: Make, get: Get, work: Work) -> None:
    """The account tells what is left of everybody now; a forgetting adds a release and influence that was not there."""
    before = get(f"/accounting/models/{live['id']}")
    assert (before["version"], before["releases"], before["influence"]) == (1, 1, 0)
    assert before["noise_variance"] > 0
    assert before["next_request"]["epsilon_without_steps"] > live["target"]["epsilon"]
    forget("p1")
    work()
    after = get(f"/accounting/models/{live['id']}")
    assert (after["version"], after["releases"]) == (2, 2)
    assert after["influence"] > 0
    unlearning = next(g for g in after["guarantees"] if g["notion"] == "unlearning")
    assert unlearning["mu"] == after["mu"]
    assert unlearning["epsilon"] <= live["target"]["epsilon"] * (1 + 1e-6)
    assert get(f"/models/{live['id']}")["guarantee"] == after["guarantees"]


def test_the_next_request_takes_what_the_account_says(live: dict[str, Any], forget: Make, get: Get, work: Work) -> None:
    """The steps that are announced, for one record or previewed, are the steps that run."""
    announced = get(f"/accounting/models/{live['id']}")["next_request"]
    forget("p1")
    work()
    run = get("/runs?limit=1")["items"][0]
    assert (run["kind"], run["steps_done"]) == (announced["kind"], announced["steps"])


def test_the_ledger_is_a_chain(
    gateway: TestClient, live: dict[str, Any], forget: Make, get: Get, work: Work, refused: Refused
) -> None:
    """Entries come oldest first, page by page, and each hashes the one before it."""
    for person in range(1, 4):
        forget(f"p{person}")
        work()
    entries, cursor = [], "0"
    while cursor:
        page = get(f"/accounting/models/{live['id']}/ledger?limit=3&cursor={cursor}")
        entries += page["items"]
        cursor = page["next_cursor"]
    assert [entry["sequence"] for entry in entries] == [1, 2, 3, 4]
    assert [entry["body"]["kind"] for entry in entries] == ["learn", "unlearn", "unlearn", "unlearn"]
    previous = "0" * 64
    for entry in entries:
        body = json.dumps(entry["body"], sort_keys=True, separators=(",", ":"))
        assert entry["previous_hash"] == previous
        assert entry["hash"] == hashlib.sha256(f"{previous}\n{body}".encode()).hexdigest()
        previous = entry["hash"]
    for cursor in ("-1", "x", "9" * 30):
        refused(gateway.get(f"/v1/accounting/models/{live['id']}/ledger?cursor={cursor}"), 422, "input_invalid")


def test_a_preview_changes_nothing(gateway: TestClient, live: dict[str, Any], get: Get, work: Work) -> None:
    """A preview tells what forgetting so many records would take; more records or a smaller target never take less."""
    before = get(f"/accounting/models/{live['id']}")

    def steps(**asked: Any) -> int:
        answer = gateway.post("/v1/accounting/preview", json={"model_id": live["id"]} | asked)
        assert answer.status_code == 200, answer.text
        previewed: int = answer.json()["steps"]
        return previewed

    assert steps() == before["next_request"]["steps"]
    by_records = [steps(num_records=records) for records in (1, 2, 5, 50)]
    assert by_records == sorted(by_records)
    assert steps(epsilon=0.1) >= steps(epsilon=1) >= steps(epsilon=10)
    assert get(f"/accounting/models/{live['id']}") == before
    assert work() == 0


@pytest.mark.parametrize("epsilon", [5e-324, 1e-12, 1.0, 1e300])
@pytest.mark.parametrize("delta", [5e-324, 1e-300, 0.5, 1 - 2**-53])
@pytest.mark.parametrize("num_records", [1, 2**31 - 1])
def test_a_preview_of_extremes(
    gateway: TestClient, live: dict[str, Any], epsilon: float, delta: float, num_records: int
) -> None:
    """A preview of the most extreme targets there are is answered, with numbers or with a refusal by name."""
    asked = {"model_id": live["id"], "epsilon": epsilon, "delta": delta, "num_records": num_records}
    answer = gateway.post("/v1/accounting/preview", json=asked)
    assert answer.status_code == 200 or answer.json()["code"] == "precondition_failed", answer.text


@pytest.mark.parametrize(
    "wrong", [{"num_records": 0}, {"num_records": 2**31}, {"epsilon": 0}, {"delta": 1}, {"delta": 0}, {"order": 2}]
)
def test_a_malformed_preview_is_refused(gateway: TestClient, wrong: dict[str, Any], refused: Refused) -> None:
    """What lies outside the mathematics is a 422."""
    refused(gateway.post("/v1/accounting/preview", json={"model_id": "mdl_0"} | wrong), 422, "input_invalid")


def test_there_is_no_account_before_the_first_version(
    gateway: TestClient, new_dataset: Make, new_model: Make, get: Get, refused: Refused
) -> None:
    """A model that is still learning has an empty ledger and no account; an unknown one is a 404."""
    model = new_model(new_dataset()["id"])
    refused(gateway.get(f"/v1/accounting/models/{model['id']}"), 409, "model_not_live")
    refused(gateway.post("/v1/accounting/preview", json={"model_id": model["id"]}), 409, "model_not_live")
    assert get(f"/accounting/models/{model['id']}/ledger") == {"items": [], "next_cursor": None}
    refused(gateway.get("/v1/accounting/models/mdl_0"), 404, "model_unknown")
    refused(gateway.get("/v1/accounting/models/mdl_0/ledger"), 404, "model_unknown")
    refused(gateway.post("/v1/accounting/preview", json={"model_id": "mdl_0"}), 404, "model_unknown")


def test_a_preview_compares_the_options(gateway: TestClient, live: dict[str, Any]) -> None:
    """A preview says what else could be done: the plan is among the options, which come cheapest per request first."""
    answer = gateway.post("/v1/accounting/preview", json={"model_id": live["id"], "expected_requests": 3}).json()
    options = {option["kind"]: option for option in answer["options"]}
    assert options.keys() == {"unlearn", "batch", "relearn"}
    assert all(
        option.keys() == {"kind", "steps", "steps_per_request", "epsilon", "reason"} for option in options.values()
    )
    costs = [option["steps_per_request"] for option in answer["options"]]
    assert costs == sorted(costs)
    assert options[answer["kind"]]["steps"] == answer["steps"]
    unlearning = next(g for g in answer["guarantees"] if g["notion"] == "unlearning")
    assert options[answer["kind"]]["epsilon"] == unlearning["epsilon"]
    assert options["relearn"]["steps"] == live["mechanism"]["learn_steps"]
    batched = gateway.post("/v1/accounting/preview", json={"model_id": live["id"], "num_records": 4}).json()
    assert options["batch"]["steps"] == batched["steps"]


@pytest.mark.parametrize("expected_requests", [0, 101, 1.5, "x"])
def test_a_preview_expects_a_sensible_number(gateway: TestClient, refused: Refused, expected_requests: Any) -> None:
    """The comparison is of one to a hundred further requests."""
    asked = {"model_id": "mdl_0", "expected_requests": expected_requests}
    refused(gateway.post("/v1/accounting/preview", json=asked), 422, "input_invalid")


def test_the_releases_that_are_left(
    gateway: TestClient, live: dict[str, Any], forget: Make, get: Get, work: Work, new_model: Make
) -> None:
    """How many versions still fit an adaptive budget: more for a larger one, one fewer for each that is published."""
    path = f"/accounting/models/{live['id']}"

    def left(epsilon: float | None = None) -> dict[str, Any]:
        query = "" if epsilon is None else f"?adaptive_epsilon={epsilon}&adaptive_delta=0.001"
        found: dict[str, Any] = get(path + query)["releases_left"]
        return found

    unasked = left()
    assert (unasked["epsilon"], unasked["delta"]) == (live["target"]["epsilon"], live["target"]["delta"])
    assert (unasked["records"], unasked["steps_per_release"]) == (1, get(path)["next_request"]["steps"])
    assert unasked["count"] is None  # by default one person's influence is twice the target at every version

    asked = left(100.0)
    assert (asked["epsilon"], asked["delta"]) == (100.0, 0.001)
    assert asked["count"] > 1
    assert left(200.0)["count"] > asked["count"]

    forget("p1")
    work()
    after = left(100.0)
    assert after["steps_per_release"] >= asked["steps_per_release"]
    assert after["count"] < asked["count"]
    new_model(live["dataset_id"])
    work()
    assert left(100.0)["count"] < after["count"]  # it learned from the same people


@pytest.mark.parametrize(
    "query", ["adaptive_epsilon=0", "adaptive_epsilon=inf", "adaptive_delta=1", "adaptive_delta=x"]
)
def test_a_malformed_budget_is_refused(gateway: TestClient, live: dict[str, Any], query: str, refused: Refused) -> None:
    """A budget that lies outside the mathematics is a 422."""
    refused(gateway.get(f"/v1/accounting/models/{live['id']}?{query}"), 422, "input_invalid")


@pytest.mark.parametrize("epsilon", [5e-324, 1.0, 1e300])
@pytest.mark.parametrize("delta", [5e-324, 0.5, 1 - 2**-53])
def test_a_budget_of_extremes(gateway: TestClient, live: dict[str, Any], epsilon: float, delta: float) -> None:
    """The most extreme budgets there are are answered, with a number or with none."""
    query = {"adaptive_epsilon": epsilon, "adaptive_delta": delta}
    answer = gateway.get(f"/v1/accounting/models/{live['id']}", params=query)
    assert answer.status_code == 200, answer.text
    count = answer.json()["releases_left"]["count"]
    assert count is None or 0 <= count <= 2**53
