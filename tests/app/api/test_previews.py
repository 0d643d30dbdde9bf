"""What forgetting would take, and what others would need for it."""

from collections.abc import Callable
from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.tables import each

Make = Callable[..., dict[str, Any]]
Get = Callable[[str], Any]
Work = Callable[[], int]
Refused = Callable[..., dict[str, Any]]


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


@each("epsilon", [5e-324, 1e-12, 1.0, 1e300])
@each("delta", [5e-324, 1e-300, 0.5, 1 - 2**-53])
@each("num_records", [1, 2**31 - 1])
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


def test_a_preview_compares_the_options(gateway: TestClient, live: dict[str, Any]) -> None:
    """A preview says what else could be done, the plan among it, what is cheapest per request first."""
    answer = gateway.post("/v1/accounting/preview", json={"model_id": live["id"], "expected_requests": 3}).json()
    options = {option["kind"]: option for option in answer["options"]}
    assert options.keys() == {"unlearn", "batch", "relearn"}
    said = {"kind", "steps", "steps_per_request", "epsilon", "seconds", "reason"}
    assert all(option.keys() == said for option in options.values())
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


@pytest.fixture
def ask(gateway: TestClient, live: dict[str, Any]) -> Callable[..., dict[str, Any]]:
    """What a preview of the live model answers."""

    def previewed(**asked: Any) -> dict[str, Any]:
        answer = gateway.post("/v1/accounting/preview", json={"model_id": live["id"]} | asked)
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    return previewed


def epsilon_of(previewed: dict[str, Any]) -> float:
    [unlearning] = [g for g in previewed["guarantees"] if g["notion"] == "unlearning"]
    return float(unlearning["epsilon"])


def test_a_preview_the_other_way_round(ask: Make, live: dict[str, Any]) -> None:
    """So many steps reach what they are needed for: as many as planned the target, one fewer not, more always less."""
    planned = ask(num_records=2)
    assert planned["kind"] == "unlearn"
    target = live["target"]["epsilon"]
    by_steps = [ask(num_records=2, steps=planned["steps"] + more) for more in (-1, 0, 1, 10)]
    assert [one["steps"] - planned["steps"] for one in by_steps] == [-1, 0, 1, 10]
    assert by_steps[1]["guarantees"] == planned["guarantees"]
    epsilons = [epsilon_of(one) for one in by_steps]
    assert epsilons == sorted(epsilons, reverse=True)
    assert epsilons[0] > target * (1 - 1e-9) >= epsilons[1] * (1 - 2e-9)


def test_a_preview_in_batches(ask: Make, live: dict[str, Any], forget: Make, get: Get, work: Work) -> None:
    """A schedule's steps are those of the runs that happen, batch by batch, and all at once is one of them."""
    at_once = ask(num_records=3)
    assert at_once["schedule"]["steps"] == at_once["schedule"]["longest"] == at_once["steps"]
    assert (at_once["schedule"]["runs"], at_once["schedule"]["batch"]) == (1, 3)
    one_by_one = ask(num_records=3, batch=1)["schedule"]
    assert one_by_one["runs"] == 3
    assert ask(num_records=3, batch=2)["schedule"]["runs"] == 2
    for person in range(1, 4):
        forget(f"p{person}")
        work()
    runs = get("/runs?limit=3")["items"]
    assert one_by_one["steps"] == sum(run["steps_done"] for run in runs)
    assert one_by_one["longest"] == max(run["steps_done"] for run in runs)
    assert one_by_one["relearned"] == sum(run["kind"] == "relearn" for run in runs)
    unlearning = get(f"/models/{live['id']}")["guarantee"][0]
    assert one_by_one["epsilon"] == unlearning["epsilon"]


def test_a_preview_in_too_many_batches(gateway: TestClient, live: dict[str, Any], refused: Refused) -> None:
    """A schedule has a hundred runs at most."""
    asked = {"model_id": live["id"], "num_records": 101, "batch": 1}
    problem = refused(gateway.post("/v1/accounting/preview", json=asked), 422, "input_invalid")
    assert problem["errors"][0]["path"] == "batch"


def test_a_preview_takes_as_long_as_runs_took(ask: Make) -> None:
    """Seconds are those of the model's own runs, by their length."""
    previewed = ask(num_records=2, batch=1)
    pace = previewed["pace"]
    assert pace["runs"] == 1
    assert pace["seconds_per_step"] > 0
    assert previewed["seconds"] == pace["seconds_per_run"] + previewed["steps"] * pace["seconds_per_step"]
    schedule = previewed["schedule"]
    assert schedule["seconds"] == 2 * pace["seconds_per_run"] + schedule["steps"] * pace["seconds_per_step"]


def test_rivals_are_asked_the_same(gateway: TestClient, ask: Make, live: dict[str, Any], get: Get) -> None:
    """Our row is what a preview says; every row names its notion, and has steps or the reason why not."""
    found = get(f"/accounting/models/{live['id']}/rivals?num_records=2")
    assert (found["records"], found["target"]) == (2, live["target"])
    rows = {row["name"]: row for row in found["rivals"]}
    assert list(rows) == ["lethe", "relearning", "langevin_unlearning", "data_deletion", "descent_to_delete"]
    assert rows["lethe"]["steps"] == ask(num_records=2)["steps"]
    assert rows["relearning"]["steps"] == live["mechanism"]["learn_steps"]
    bounds = {bound["name"]: bound for bound in get("/accounting/bounds")["items"]}
    for row in found["rivals"]:
        assert (row["steps"] is None) == (row["seconds"] is None) == (row["refused"] is not None)
        assert row["reference_process"]
        if row["bound"] is not None:
            assert row["assumptions"] == bounds[row["bound"]]["assumptions"]


def test_a_rival_that_may_not_be_used_says_why(live: dict[str, Any], get: Get) -> None:
    """A target outside the range of another's theorem has no steps there, but the precondition that fails."""
    found = get(f"/accounting/models/{live['id']}/rivals?epsilon=50&delta=0.001")
    [row] = [row for row in found["rivals"] if row["name"] == "descent_to_delete"]
    assert (row["steps"], row["noise_std"]) == (None, None)
    assert row["refused"]["name"] == "epsilon_at_most_log"


@pytest.mark.parametrize("query", ["num_records=0", "epsilon=0", "epsilon=inf", "delta=1"])
def test_malformed_rivals_are_refused(gateway: TestClient, live: dict[str, Any], query: str, refused: Refused) -> None:
    """A request that lies outside the mathematics is a 422."""
    refused(gateway.get(f"/v1/accounting/models/{live['id']}/rivals?{query}"), 422, "input_invalid")


@each("epsilon", [5e-324, 1e-12, 1e300])
@each("delta", [5e-324, 0.5, 1 - 2**-53])
@each("num_records", [1, 2**31 - 1])
def test_rivals_at_extremes(
    gateway: TestClient, live: dict[str, Any], epsilon: float, delta: float, num_records: int
) -> None:
    """The most extreme requests there are have an answer, with steps or with reasons."""
    query = {"epsilon": epsilon, "delta": delta, "num_records": num_records}
    answer = gateway.get(f"/v1/accounting/models/{live['id']}/rivals", params=query)
    assert answer.status_code == 200, answer.text
