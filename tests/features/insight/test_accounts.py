"""The endpoints below `/v1/accounting`."""

from collections.abc import Callable
from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.tables import each

Make = Callable[..., dict[str, Any]]
Get = Callable[[str], Any]
Work = Callable[[], int]
Refused = Callable[..., dict[str, Any]]


def test_an_account_shows_version_releases_and_influence(
    live: dict[str, Any], forget: Make, get: Get, work: Work
) -> None:
    """A model's account shows its version, releases and residual influence. Forgetting one record takes as many steps
    as the account predicted, adds one release and raises the influence above 0."""
    before = get(f"/accounting/models/{live['id']}")
    assert (before["version"], before["releases"], before["influence"]) == (1, 1, 0)
    assert before["noise_variance"] > 0
    assert before["next_request"]["epsilon_without_steps"] > live["target"]["epsilon"]
    forget("p1")
    work()
    run = get("/runs?limit=1")["items"][0]
    assert (run["kind"], run["steps_done"]) == (before["next_request"]["kind"], before["next_request"]["steps"])
    after = get(f"/accounting/models/{live['id']}")
    assert (after["version"], after["releases"]) == (2, 2)
    assert after["influence"] > 0
    unlearning = next(g for g in after["guarantees"] if g["notion"] == "unlearning")
    assert unlearning["mu"] == after["mu"]
    assert unlearning["epsilon"] <= live["target"]["epsilon"] * (1 + 1e-6)
    assert get(f"/models/{live['id']}")["guarantee"] == after["guarantees"]


def test_there_is_no_account_before_the_first_version(
    gateway: TestClient, new_dataset: Make, new_model: Make, get: Get, refused: Refused
) -> None:
    """A model that is still in training has an empty ledger and no account. A request for an unknown model gets a
    404."""
    model = new_model(new_dataset()["id"])
    refused(gateway.get(f"/v1/accounting/models/{model['id']}"), 409, "model_not_live")
    refused(gateway.post("/v1/accounting/preview", json={"model_id": model["id"]}), 409, "model_not_live")
    assert get(f"/accounting/models/{model['id']}/ledger") == {"items": [], "next_cursor": None}
    refused(gateway.get("/v1/accounting/models/mdl_0"), 404, "model_unknown")
    refused(gateway.get("/v1/accounting/models/mdl_0/ledger"), 404, "model_unknown")
    refused(gateway.post("/v1/accounting/preview", json={"model_id": "mdl_0"}), 404, "model_unknown")


def test_the_remaining_releases_are_counted(
    gateway: TestClient, live: dict[str, Any], forget: Make, get: Get, work: Work, new_model: Make
) -> None:
    """The account counts the versions that still fit an adaptive budget. A larger budget allows more versions, and each
    publication reduces the count by one."""
    path = f"/accounting/models/{live['id']}"

    def left(epsilon: float | None = None) -> dict[str, Any]:
        query = "" if epsilon is None else f"?adaptive_epsilon={epsilon}&adaptive_delta=0.001"
        found: dict[str, Any] = get(path + query)["releases_left"]
        return found

    unasked = left()
    assert (unasked["epsilon"], unasked["delta"]) == (live["target"]["epsilon"], live["target"]["delta"])
    assert (unasked["records"], unasked["steps_per_release"]) == (1, get(path)["next_request"]["steps"])
    # By default, one person's influence is twice the target at every version.
    assert unasked["count"] is None

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
    # The other model learned from the same people.
    assert left(100.0)["count"] < after["count"]


@each("query", ["adaptive_epsilon=0", "adaptive_epsilon=inf", "adaptive_delta=1", "adaptive_delta=x"])
def test_a_malformed_budget_is_refused(gateway: TestClient, query: str, refused: Refused) -> None:
    """A request with a budget outside its mathematical domain gets a 422 response."""
    refused(gateway.get(f"/v1/accounting/models/mdl_0?{query}"), 422, "input_invalid")


@each("epsilon", [5e-324, 1.0, 1e300])
@each("delta", [5e-324, 0.5, 1 - 2**-53])
def test_extreme_budgets_yield_a_count_or_null(
    gateway: TestClient, live: dict[str, Any], epsilon: float, delta: float
) -> None:
    """For the most extreme valid budgets, the number of remaining releases is a valid count or null."""
    query = {"adaptive_epsilon": epsilon, "adaptive_delta": delta}
    answer = gateway.get(f"/v1/accounting/models/{live['id']}", params=query)
    assert answer.status_code == 200, answer.text
    count = answer.json()["releases_left"]["count"]
    assert count is None or 0 <= count <= 2**53


def test_the_spent_budget_of_a_dataset_counts_every_version(
    live: dict[str, Any], forget: Make, get: Get, work: Work, new_model: Make, gateway: TestClient
) -> None:
    """A record's spent budget counts every version of every model on the record's dataset. Its mu^2 is the sum of the
    models' mu^2, and it never decreases."""
    path = f"/accounting/datasets/{live['dataset_id']}"
    first = get(path)
    [model] = first["models"]
    assert (model["model_id"], model["version"], model["releases"]) == (live["id"], 1, 1)
    assert first["used"]["notion"] == "adaptive"
    assert first["used"]["mu"] == model["mu"]
    assert model["releases_left"] == get(f"/accounting/models/{live['id']}")["releases_left"]
    assert (model["next_run"], model["relearning"]) == (None, [])

    other = new_model(live["dataset_id"])
    [waiting] = [one for one in get(path)["models"] if one["model_id"] == other["id"]]
    assert (waiting["version"], waiting["releases"], waiting["mu"]) == (None, 0, 0)
    assert (waiting["room"], waiting["releases_left"]) == (None, None)
    assert waiting["next_run"]["kind"] == "learn"
    work()
    forget("p1")
    work()
    after = get(path)
    assert [one["releases"] for one in after["models"]] == [2, 2]
    assert after["used"]["mu"] == pytest.approx(sum(one["mu"] ** 2 for one in after["models"]) ** 0.5)
    assert after["used"]["mu"] > first["used"]["mu"]


def test_requests_that_force_retraining_are_named(
    gateway: TestClient, new_dataset: Make, new_model: Make, forget: Make, get: Get, work: Work
) -> None:
    """A dataset's account names the open requests that force retraining, and states how many records can still be
    unlearned without retraining. The next run is of the kind that the account predicted."""
    dataset = new_dataset(rows=300, rows_each=100)
    model = new_model(dataset["id"], noise_scale=0.01, learn_steps=8)
    work()
    path = f"/accounting/datasets/{dataset['id']}"
    [before] = get(path)["models"]
    assert 0 < before["room"] < 100

    def kind(records: int) -> str:
        asked = {"model_id": model["id"], "num_records": records}
        planned: str = gateway.post("/v1/accounting/preview", json=asked).json()["kind"]
        return planned

    assert (kind(before["room"]), kind(before["room"] + 1)) == ("unlearn", "relearn")
    request = forget("p1")
    [waiting] = get(path)["models"]
    assert waiting["relearning"] == [{"request_id": request["id"], "records": 100}]
    assert (waiting["next_run"]["kind"], waiting["next_run"]["records"]) == ("relearn", 100)
    work()
    assert get("/runs?limit=1")["items"][0]["kind"] == "relearn"
    [after] = get(path)["models"]
    assert (after["relearning"], after["next_run"]) == ([], None)


def test_an_unknown_dataset_is_a_404(gateway: TestClient, refused: Refused, new_dataset: Make, get: Get) -> None:
    """The account of an unknown dataset returns 404. The spent budget of a dataset without models is 0."""
    refused(gateway.get("/v1/accounting/datasets/ds_0"), 404, "dataset_unknown")
    dataset = new_dataset()
    assert get(f"/accounting/datasets/{dataset['id']}") == {"dataset_id": dataset["id"], "used": None, "models": []}
