"""Endpoints of curves, plans and previews."""

from collections.abc import Callable
from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.conftest import FORM, npz
from tests.tables import each

Make = Callable[..., dict[str, Any]]
Get = Callable[[str], Any]
Refused = Callable[..., dict[str, Any]]


def test_a_curve_shows_training_and_forgetting(
    new_dataset: Make, new_model: Make, forget: Make, get: Get, work: Callable[[], int]
) -> None:
    """Epsilon rises during training, and the residual influence of the forgotten person starts at the same value and
    falls to the model's current state. The curve names neither requests nor people, and its pages start with the newest
    run."""
    model = new_model(new_dataset()["id"], noise_scale=0.02)
    work()
    request = forget("p3")
    work()
    path = f"/accounting/models/{model['id']}/trajectory?points=20"
    curve = get(path)
    assert (curve["model_id"], curve["target"], curve["next_cursor"]) == (model["id"], model["target"], None)
    forgetting, learning = curve["items"]
    assert (learning["kind"], learning["records"], learning["requests"], learning["largest"]) == ("learn", 0, 0, None)
    assert (forgetting["records"], forgetting["requests"], forgetting["largest"]) == (1, 1, 1)
    assert (learning["steps_before"], forgetting["steps_before"]) == (0, learning["steps"])
    assert all(len(segment["points"]) <= 20 for segment in (learning, forgetting))
    erosion = [point["epsilon_of_one"] for point in learning["points"]]
    left = [point["epsilon"]["unlearning"] for point in forgetting["points"]]
    assert erosion == sorted(erosion)
    assert left == sorted(left, reverse=True)
    assert left[0] == erosion[-1] > model["target"]["epsilon"]
    account = get(f"/accounting/models/{model['id']}")
    assert left[-1] == account["guarantees"][0]["epsilon"]
    assert forgetting["points"][-1]["influence"] == account["influence"]
    assert forgetting["guarantees"] == account["guarantees"]
    assert not [one for one in (request["id"], request["subject_ref"]) if one in str(curve)]
    first = get(f"{path}&limit=1")
    second = get(f"{path}&limit=1&cursor={first['next_cursor']}")
    assert first["items"] + second["items"] == curve["items"]
    assert second["next_cursor"] is None


@each("query", ["points=1", "points=501", "limit=0", "cursor=x", "cursor=-1"])
def test_malformed_curve_requests_are_refused(
    gateway: TestClient, live: dict[str, Any], query: str, refused: Refused
) -> None:
    """Requesting a curve with a single point, or passing a cursor that no page returned, is refused."""
    refused(gateway.get(f"/v1/accounting/models/{live['id']}/trajectory?{query}"), 422, "input_invalid")


def test_a_learning_model_has_an_empty_curve(
    gateway: TestClient, new_dataset: Make, new_model: Make, get: Get, refused: Refused
) -> None:
    """A model that is still being trained has an empty curve. A request for an unknown model gets a 404."""
    model = new_model(new_dataset()["id"])
    assert get(f"/accounting/models/{model['id']}/trajectory")["items"] == []
    refused(gateway.get("/v1/accounting/models/mdl_0/trajectory"), 404, "model_unknown")


Work = Callable[[], int]


def test_a_plan_matches_the_model(
    gateway: TestClient, new_dataset: Make, new_model: Make, get: Get, work: Work
) -> None:
    """A plan states the same numbers as a model that is created with the plan's settings. For a dataset without
    evaluation data, the plan contains no accuracy and no rows are read."""
    dataset = new_dataset(rows=400)["id"]
    plan = get(f"/accounting/datasets/{dataset}/plan?l2=0.05")
    assert [cost["epsilon"] for cost in plan["costs"]] == [0.25, 0.5, 1, 2, 4, 8]
    [cost] = [cost for cost in plan["costs"] if cost["epsilon"] == 2]
    model = new_model(dataset, target={"epsilon": 2})
    work()
    mechanism = model["mechanism"]
    assert cost["learn_passes"] == mechanism["learn_steps"] / mechanism["num_batches"]
    asked = gateway.post("/v1/accounting/preview", json={"model_id": model["id"]}).json()
    assert cost["request_passes"] == asked["steps"] / mechanism["num_batches"]
    assert get(f"/accounting/datasets/{dataset}/plan")["measured"] == []
    assert len(get(f"/accounting/datasets/{dataset}/plan")["costs"]) == 18


def test_a_plan_includes_measured_versions(
    gateway: TestClient, new_dataset: Make, new_model: Make, get: Get, work: Work, forget: Make
) -> None:
    """A plan lists every measured version with its model's target and the number of passes in its run. If a metric is
    given, only versions with that metric are listed."""
    dataset = new_dataset(rows=200)["id"]
    other = npz(rows=60, first=500, seed=3)
    answer = gateway.post("/v1/datasets", data=FORM, files={"file": ("p.npz", other)})
    model = new_model(dataset, evaluation_dataset_id=answer.json()["id"], noise_scale=0.02)
    work()
    forget("p3")
    work()
    now, before = get(f"/accounting/datasets/{dataset}/plan")["measured"]
    versions = get(f"/models/{model['id']}/versions")["items"]
    assert [one["value"] for one in (now, before)] == [version["metrics"]["accuracy"] for version in versions]
    assert [(one["version"], one["live"], one["kind"]) for one in (now, before)] == [
        (2, True, "unlearn"),
        (1, False, "learn"),
    ]
    measured = get(f"/accounting/datasets/{dataset}/plan?metric=log_loss")["measured"]
    assert [one["value"] for one in measured] == [version["metrics"]["log_loss"] for version in versions]
    assert get(f"/accounting/datasets/{dataset}/plan?metric=r_squared")["measured"] == []
    mechanism = model["mechanism"]
    assert before["passes"] == mechanism["learn_steps"] / mechanism["num_batches"] > now["passes"] > 0


@each("asked", ["objective=least_squares", "loss_width=1"])
def test_a_plan_for_an_unsuitable_objective_is_refused(
    new_dataset: Make, gateway: TestClient, refused: Any, asked: str
) -> None:
    """A plan whose objective does not fit the dataset is refused with the same error as creating such a model."""
    dataset = new_dataset()["id"]
    refused(gateway.get(f"/v1/accounting/datasets/{dataset}/plan?{asked}"), 422, "precondition_failed")


def test_a_preview_changes_nothing(gateway: TestClient, live: dict[str, Any], get: Get, work: Work) -> None:
    """A preview states the cost of forgetting a number of records and changes nothing. Forgetting more records or
    meeting a stricter target never costs less."""
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
def test_extreme_previews_return_numbers_or_an_error(
    gateway: TestClient, live: dict[str, Any], epsilon: float, delta: float, num_records: int
) -> None:
    """Previews at the extremes of the valid range return either numbers or a specific error."""
    asked = {"model_id": live["id"], "epsilon": epsilon, "delta": delta, "num_records": num_records}
    answer = gateway.post("/v1/accounting/preview", json=asked)
    assert answer.status_code == 200 or answer.json()["code"] == "precondition_failed", answer.text


@each(
    "wrong",
    [
        *({"num_records": 0}, {"num_records": 2**31}, {"epsilon": 0}, {"delta": 1}, {"delta": 0}, {"order": 2}),
        *({"expected_requests": wrong} for wrong in (0, 101, 1.5, "x")),
    ],
)
def test_a_malformed_preview_is_refused(gateway: TestClient, wrong: dict[str, Any], refused: Refused) -> None:
    """A preview with parameters outside their mathematical domain is refused with a 422."""
    refused(gateway.post("/v1/accounting/preview", json={"model_id": "mdl_0"} | wrong), 422, "input_invalid")


def test_a_preview_compares_the_options(gateway: TestClient, live: dict[str, Any]) -> None:
    """A preview lists all ways to forget the records, including the planned way, in order of increasing cost per
    request."""
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


@pytest.fixture
def ask(gateway: TestClient, live: dict[str, Any]) -> Callable[..., dict[str, Any]]:
    """Return a function that requests a preview for the live model."""

    def previewed(**asked: Any) -> dict[str, Any]:
        answer = gateway.post("/v1/accounting/preview", json={"model_id": live["id"]} | asked)
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    return previewed


def epsilon_of(previewed: dict[str, Any]) -> float:
    [unlearning] = [g for g in previewed["guarantees"] if g["notion"] == "unlearning"]
    return float(unlearning["epsilon"])


def test_previews_by_steps_and_by_target_match(ask: Make, live: dict[str, Any]) -> None:
    """A preview for a given number of steps agrees with a preview for a target: the planned number of steps reaches the
    target, one step fewer does not, and every further step lowers epsilon."""
    planned = ask(num_records=2)
    assert planned["kind"] == "unlearn"
    target = live["target"]["epsilon"]
    by_steps = [ask(num_records=2, steps=planned["steps"] + more) for more in (-1, 0, 1, 10)]
    assert [one["steps"] - planned["steps"] for one in by_steps] == [-1, 0, 1, 10]
    assert by_steps[1]["guarantees"] == planned["guarantees"]
    epsilons = [epsilon_of(one) for one in by_steps]
    assert epsilons == sorted(epsilons, reverse=True)
    assert epsilons[0] > target * (1 - 1e-9) >= epsilons[1] * (1 - 2e-9)


def test_a_preview_of_batches_matches_the_runs(
    gateway: TestClient, ask: Make, live: dict[str, Any], forget: Make, get: Get, work: Work, refused: Refused
) -> None:
    """Each batch in a previewed schedule has the same number of steps as the actual run. A single run can serve all
    requests together. A schedule with more than a hundred runs is refused."""
    asked = {"model_id": live["id"], "num_records": 101, "batch": 1}
    problem = refused(gateway.post("/v1/accounting/preview", json=asked), 422, "input_invalid")
    assert problem["errors"][0]["path"] == "batch"
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


def test_a_preview_estimates_seconds(ask: Make) -> None:
    """The duration is estimated from the number of steps and the measured speed of the model's own runs."""
    previewed = ask(num_records=2, batch=1)
    pace = previewed["pace"]
    assert pace["runs"] == 1
    assert pace["seconds_per_step"] > 0
    assert previewed["seconds"] == pace["seconds_per_run"] + previewed["steps"] * pace["seconds_per_step"]
    schedule = previewed["schedule"]
    assert schedule["seconds"] == 2 * pace["seconds_per_run"] + schedule["steps"] * pace["seconds_per_step"]


def test_a_preview_of_a_request_in_review_states_its_effect(
    gateway: TestClient, new_dataset: Make, new_model: Make, forget: Make, get: Get, work: Callable[[], int]
) -> None:
    """The preview of a request in review states its rows, the version to be replaced, the planned steps, passes and
    seconds, and that the request awaits a decision. A request about an unknown person erases nothing."""
    dataset = new_dataset()["id"]
    model = new_model(dataset)
    work()
    made = forget("p1", identity_verified=False)
    found = get(f"/deletion-requests/{made['id']}/preview")
    held = get(f"/datasets/{dataset}/subjects/p1")["num_records"]
    assert found["is_open"]
    assert found["datasets"] == [{"dataset_id": dataset, "rows": held}]
    [one] = found["models"]
    told = gateway.post("/v1/accounting/preview", json={"model_id": model["id"], "num_records": held}).json()
    assert (one["version"], one["rows"], one["kind"], one["steps"]) == (1, held, told["kind"], told["steps"])
    mechanism = get(f"/models/{model['id']}")["mechanism"]
    assert one["passes"] == pytest.approx(one["steps"] / mechanism["num_batches"])
    assert one["seconds"] > 0
    assert (one["reason"], one["waiting"]) == ("in_review", 1)
    stranger = forget("stranger", identity_verified=False)
    assert get(f"/deletion-requests/{stranger['id']}/preview") == {
        "request_id": stranger["id"],
        "is_open": True,
        "datasets": [],
        "models": [],
    }


def test_a_preview_explains_why_a_request_waits(
    new_dataset: Make, new_model: Make, forget: Make, get: Get, work: Callable[[], int]
) -> None:
    """The preview of a request that is waiting for a batch states the number of waiting requests, the batch size and
    the latest time at which the run will start. The preview is empty once a run has claimed the request."""
    new_model(new_dataset()["id"], batching={"max_requests": 2, "max_wait_seconds": 3600})
    work()
    first = forget("p1")
    [one] = get(f"/deletion-requests/{first['id']}/preview")["models"]
    assert (one["reason"], one["waiting"], one["batch"]) == ("batch", 1, 2)
    assert one["until"] > first["created_at"]
    forget("p2")
    [one] = get(f"/deletion-requests/{first['id']}/preview")["models"]
    assert (one["reason"], one["waiting"]) == ("queued", 2)
    work()
    assert get(f"/deletion-requests/{first['id']}/preview") == {
        "request_id": first["id"],
        "is_open": False,
        "datasets": [],
        "models": [],
    }
