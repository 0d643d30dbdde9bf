"""Models of a number, of two classes with a hinge loss, and of several labels, from upload to forgetting."""

import csv
import io
import json
from collections.abc import Callable
from typing import Any, get_args

import httpx
import numpy as np
import pytest
from fastapi.testclient import TestClient
from joserfc.jwk import KeySet

from app.access.service import DEFAULT_TENANT
from app.accounting import ledger
from app.installations import Installation
from lethe import verification
from lethe.contract import models as contract
from lethe.proof.losses import Objective
from tests.conftest import npz
from tests.tables import each

Make = Callable[..., dict[str, Any]]
Get = Callable[[str], Any]
Refused = Callable[..., dict[str, Any]]
SCHEMA = {
    "columns": {
        "person": {"role": "subject"},
        "age": {"kind": "numeric", "min": 0, "max": 100},
        "visits": {"kind": "numeric", "min": 0, "max": 10},
        "cost": {"role": "target", "min": 0, "max": 400, "outside": "clip"},
    }
}
RANGE = json.dumps({"min": -2, "max": 2, "outside": "clip"})


def table(*, people: int = 200, seed: int = 0, first: int = 0) -> bytes:
    """Return a file of people whose cost depends on their age and number of visits, with little noise."""
    generator = np.random.default_rng(seed)
    age, visits = generator.integers(0, 101, people), generator.integers(0, 11, people)
    cost = 3 * age + 8 * visits + generator.normal(scale=5, size=people)
    written = io.StringIO()
    lines = csv.writer(written)
    lines.writerow(["person", "age", "visits", "cost"])
    for row in range(people):
        lines.writerow([f"p{first + row}", age[row], visits[row], f"{cost[row]:.2f}"])
    return written.getvalue().encode()


@pytest.fixture
def uploaded(gateway: TestClient) -> Callable[..., httpx.Response]:
    def send(content: bytes | None = None, schema: Any = SCHEMA) -> httpx.Response:
        form = {"name": "costs", "schema": json.dumps(schema)}
        return gateway.post("/v1/datasets", data=form, files={"file": ("costs.csv", content or table())})

    return send


@pytest.fixture
def costs(uploaded: Callable[..., httpx.Response]) -> dict[str, Any]:
    """Upload a dataset with a numeric target."""
    answer = uploaded()
    assert answer.status_code == 201, answer.text
    made: dict[str, Any] = answer.json()
    return made


def test_a_numeric_target_is_learned_predicted_and_forgotten(
    gateway: TestClient,
    installation: Installation,
    uploaded: Callable[..., httpx.Response],
    costs: dict[str, Any],
    new_model: Make,
    forget: Make,
    get: Get,
    work: Callable[[], int],
) -> None:
    """A Huber regression model learns a numeric target, and its metrics and predictions are in the target's unit. The
    certificate of a forgotten person can be verified with only the public key."""
    assert (costs["num_classes"], costs["classes"]) == (0, [])
    assert costs["target"] == {"min": 0, "max": 400, "outside": "clip"}
    held_out = uploaded(table(seed=1, first=1000)).json()
    settings = {"l2": 0.003, "noise_scale": 0.002, "evaluation_dataset_id": held_out["id"]}
    model = new_model(costs["id"], **settings)
    assert (model["objective"], model["mechanism"]["num_classes"]) == ("huber_regression", 1)
    assert model["mechanism"]["gradient_bound"] == model["mechanism"]["loss_width"] == 0.2
    work()
    metrics = get(f"/models/{model['id']}")["metrics"]
    assert metrics["r_squared"] > 0.9
    assert 3 < metrics["mean_absolute_error"] < 30
    assert metrics["evaluated_on"] == 200

    records = [{"age": 20, "visits": 1}, {"age": 90, "visits": 9}]
    predicted = gateway.post(f"/v1/models/{model['id']}/predictions", json={"records": records}).json()
    low, high = (one["value"] for one in predicted["predictions"])
    assert 0 <= low < 150 < 250 < high <= 400
    assert predicted["predictions"] == [{"value": low}, {"value": high}]

    request = forget("p7")
    work()
    [certificate] = get(f"/deletion-requests/{request['id']}/certificate")["certificates"]
    verdict = verification.verify(certificate["jws"], gateway.get("/.well-known/jwks.json").json())
    mechanism = verdict.statement["evidence"]["mechanism"]
    assert (mechanism["objective"], mechanism["loss_width"]) == ("huber_regression", 0.2)
    assert verdict.statement["audit"]["findings"] == []
    after = get(f"/models/{model['id']}")
    assert (after["live_version"], after["metrics"]["r_squared"] > 0.9) == (2, True)
    keys = KeySet([installation.keys.signing_key])
    with installation.database.reading() as session:
        assert ledger.verify_tenant(session, keys, tenant_id=DEFAULT_TENANT).report.entries == 2


def test_regression_constants_are_stated(
    costs: dict[str, Any], new_model: Make, forget: Make, get: Get, work: Callable[[], int]
) -> None:
    """The stated gradient bound is derived from the radius for least squares and from the loss width for Huber
    regression. Models with either objective can forget people and pass their canary tests."""
    squares = new_model(costs["id"], l2=0.05, objective="least_squares", radius=2.0)
    huber = new_model(costs["id"], l2=0.05, objective="huber_regression", loss_width=0.1)
    assert [model["mechanism"]["gradient_bound"] for model in (squares, huber)] == [3.0, 0.1]
    assert ["loss_width" in model["mechanism"] for model in (squares, huber)] == [False, True]
    forget("p3")
    work()
    assert [get(f"/models/{model['id']}")["status"] for model in (squares, huber)] == ["live", "live"]


def test_contract_and_proof_have_the_same_objectives() -> None:
    """The contract lists the same objectives as the proof package, without importing it."""
    assert list(get_args(contract.Objective)) == [one.value for one in Objective]


@each(
    ("form", "path"),
    [
        ({}, "classes"),
        ({"target": RANGE, "classes": '["a", "b"]'}, "target"),
        ({"target": "0 to 5"}, "target"),
        ({"target": '{"min": 5, "max": 0}'}, "target.max"),
        ({"target": '{"min": 0, "max": 5, "unit": "m"}'}, "target.unit"),
    ],
)
def test_an_unusable_range_is_refused(gateway: TestClient, refused: Refused, form: dict[str, str], path: str) -> None:
    """An upload of vectors must state either the classes or the range of a numeric target, but not both. Otherwise, it
    is refused and the error names the fault."""
    answer = gateway.post("/v1/datasets", data={"name": "v"} | form, files={"file": ("v.npz", npz())})
    assert path in {fault["path"] for fault in refused(answer, 422, "schema_invalid")["errors"]}


def test_a_range_in_addition_to_a_schema_is_refused(gateway: TestClient, refused: Refused) -> None:
    """An upload that states a range in addition to a schema is refused, because the schema already contains the
    range."""
    form = {"name": "costs", "schema": json.dumps(SCHEMA), "target": RANGE}
    answer = gateway.post("/v1/datasets", data=form, files={"file": ("costs.csv", table())})
    assert [fault["path"] for fault in refused(answer, 422, "schema_invalid")["errors"]] == ["target"]


@each(
    ("of_target", "asked", "said", "expected"),
    [
        (True, {"objective": "logistic_regression"}, "has a target, which logistic", "huber_regression, least_squares"),
        (True, {"objective": "smoothed_hinge"}, "has a target", "huber_regression, least_squares"),
        (
            False,
            {"objective": "huber_regression"},
            "has two classes, which huber",
            "logistic_regression, smoothed_hinge",
        ),
        (False, {"objective": "least_squares"}, "has two classes", "logistic_regression, smoothed_hinge"),
        (False, {"objective": "multilabel_logistic_regression"}, "has two classes", "logistic_regression"),
        (False, {"loss_width": 0.5}, "logistic_regression has no width", "none"),
        (True, {"objective": "least_squares", "loss_width": 0.5}, "least_squares has no width", "none"),
    ],
)
def test_an_objective_that_does_not_fit_the_target_is_refused(
    gateway: TestClient,
    costs: dict[str, Any],
    new_dataset: Make,
    refused: Refused,
    of_target: bool,
    asked: dict[str, Any],
    said: str,
    expected: str,
) -> None:
    """A model whose objective does not fit the dataset's target is refused; the error names the field and the
    objectives that fit."""
    dataset = costs if of_target else new_dataset()
    answer = gateway.post("/v1/models", json={"name": "m", "dataset_id": dataset["id"]} | asked)
    problem = refused(answer, 422, "precondition_failed")
    [fault] = problem["errors"]
    assert (said in problem["detail"], fault["path"] in asked, expected in fault["message"]) == (True, True, True)


def test_evaluation_data_must_have_the_same_target(
    gateway: TestClient, costs: dict[str, Any], new_dataset: Make, refused: Refused
) -> None:
    """An evaluation dataset must have the same target and range as the training dataset."""
    body = {"name": "m", "dataset_id": costs["id"], "evaluation_dataset_id": new_dataset(first=1000)["id"]}
    assert "target" in refused(gateway.post("/v1/models", json=body), 422, "precondition_failed")["detail"]


# --- two classes by a hinge ------------------------------------------------------------------------------------------


def test_a_hinge_loss_model_learns_two_classes(
    gateway: TestClient, new_dataset: Make, new_model: Make, forget: Make, get: Get, work: Callable[[], int]
) -> None:
    """A model with a smoothed hinge loss can be trained, measured and made to forget. Its predictions have labels but
    no probabilities."""
    dataset, held_out = new_dataset(rows=300), new_dataset(rows=100, seed=1, first=900)
    model = new_model(
        dataset["id"], objective="smoothed_hinge", l2=0.01, loss_width=0.5, evaluation_dataset_id=held_out["id"]
    )
    assert model["mechanism"]["smoothness"] == 2.01
    request = forget("p5")
    work()
    assert get(f"/models/{model['id']}")["metrics"]["accuracy"] > 0.7
    records = [[1.0, 0.0, 0.0], [-1.0, 0.0, 0.0]]
    predicted = gateway.post(f"/v1/models/{model['id']}/predictions", json={"records": records}).json()
    assert {one["label"] for one in predicted["predictions"]} <= {"0", "1"}
    assert [one["probabilities"] for one in predicted["predictions"]] == [None, None]
    [certificate] = get(f"/deletion-requests/{request['id']}/certificate")["certificates"]
    assert certificate["statement"]["evidence"]["mechanism"]["loss_width"] == 0.5


def test_a_hinge_loss_requires_two_classes(gateway: TestClient, new_dataset: Make, refused: Refused) -> None:
    """A model with a hinge loss is refused with a specific error if there are three classes."""
    body = {"name": "m", "dataset_id": new_dataset(classes=3)["id"], "objective": "smoothed_hinge"}
    said = refused(gateway.post("/v1/models", json=body), 422, "precondition_failed")["detail"]
    assert "has 3 classes, which smoothed_hinge does not learn" in said


# --- several labels --------------------------------------------------------------------------------------------------


def test_several_labels_are_learned_predicted_and_forgotten(
    gateway: TestClient, new_model: Make, forget: Make, get: Get, work: Callable[[], int]
) -> None:
    """A record can have any number of the labels in its schema, including none, and each label is learned and predicted
    separately. The metrics cover both individual labels and whole rows. Neither the run's canary test nor a requested
    one reports a finding."""
    columns = {"age": SCHEMA["columns"]["age"], "likes": {"role": "labels", "values": ["tea", "jazz", "chess"]}}
    schema = {"columns": columns | {"person": {"role": "subject"}}}

    def upload(seed: int, first: int) -> dict[str, Any]:
        ages = np.random.default_rng(seed).integers(0, 101, 150)
        rows = [f"p{first + row},{age},{likes(age)}" for row, age in enumerate(ages)]
        files = {"file": ("likes.csv", "\n".join(["person,age,likes", *rows]).encode())}
        answer = gateway.post("/v1/datasets", data={"name": "likes", "schema": json.dumps(schema)}, files=files)
        assert answer.status_code == 201, answer.text
        made: dict[str, Any] = answer.json()
        return made

    def likes(age: int) -> str:
        return "; ".join([*(["tea"] if age > 40 else []), *(["jazz"] if age < 70 else [])])

    dataset, held_out = upload(0, 0), upload(1, 1000)
    assert (dataset["classes"], dataset["target"]) == (["tea", "jazz", "chess"], None)
    model = new_model(dataset["id"], l2=0.001, noise_scale=0.003, evaluation_dataset_id=held_out["id"])
    mechanism = model["mechanism"]
    assert (mechanism["objective"], mechanism["num_parameters"]) == ("multilabel_logistic_regression", 6)
    assert mechanism["gradient_bound"] == pytest.approx(3**0.5)
    work()
    request = forget("p7")
    work()
    found = get(f"/models/{model['id']}")
    assert found["live_version"] == 2
    assert found["metrics"]["label_accuracy"] > 0.85
    assert 0.6 < found["metrics"]["exact_match"] <= found["metrics"]["label_accuracy"]
    asked = {"records": [{"age": 5}, {"age": 95}]}
    young, old = gateway.post(f"/v1/models/{model['id']}/predictions", json=asked).json()["predictions"]
    assert (young["labels"], old["labels"]) == (["jazz"], ["tea"])
    assert list(old["probabilities"]) == ["tea", "jazz", "chess"]
    [certificate] = get(f"/deletion-requests/{request['id']}/certificate")["certificates"]
    verdict = verification.verify(certificate["jws"], gateway.get("/.well-known/jwks.json").json())
    assert verdict.statement["audit"]["findings"] == []
    assert gateway.post(f"/v1/models/{model['id']}/audit").status_code == 202
    work()
    assert get(f"/models/{model['id']}")["audit"]["last"]["findings"] == []
