"""Counts end to end: the number of events per person is learned, predicted, measured and forgotten."""

import csv
import io
import json
from collections.abc import Callable
from typing import Any

import httpx
import numpy as np
import pytest
from fastapi.testclient import TestClient

from lethe import verification
from tests.tables import each

Make = Callable[..., dict[str, Any]]
Get = Callable[[str], Any]
Refused = Callable[..., dict[str, Any]]
SCHEMA: dict[str, Any] = {
    "columns": {
        "person": {"role": "subject"},
        "age": {"kind": "numeric", "min": 0, "max": 100},
        "ill": {"kind": "numeric", "min": 0, "max": 1},
        "visits": {"role": "target", "min": 0, "max": 30, "counts": True},
    }
}


def table(*, people: int = 400, seed: int = 0, first: int = 0, **changed: Any) -> bytes:
    """Return a file of people whose number of doctor's visits increases with age and is much higher for ill people."""
    generator = np.random.default_rng(seed)
    age, ill = generator.integers(0, 101, people), generator.integers(0, 2, people)
    visits = np.minimum(generator.poisson(np.exp(0.2 + age / 100 + 1.2 * ill)), 30)
    written = io.StringIO()
    lines = csv.writer(written)
    lines.writerow(["person", "age", "ill", "visits"])
    for row in range(people):
        lines.writerow([f"p{first + row}", age[row], ill[row], changed.get(f"p{first + row}", visits[row])])
    return written.getvalue().encode()


@pytest.fixture
def uploaded(gateway: TestClient) -> Callable[..., httpx.Response]:
    def send(content: bytes | None = None, of_target: dict[str, Any] | None = None) -> httpx.Response:
        visits = SCHEMA["columns"]["visits"] | (of_target or {})
        schema = json.dumps({"columns": SCHEMA["columns"] | {"visits": visits}})
        files = {"file": ("visits.csv", table() if content is None else content)}
        return gateway.post("/v1/datasets", data={"name": "visits", "schema": schema}, files=files)

    return send


@pytest.fixture
def visits(uploaded: Callable[..., httpx.Response]) -> dict[str, Any]:
    """Upload a dataset whose target is a count."""
    answer = uploaded()
    assert answer.status_code == 201, answer.text
    made: dict[str, Any] = answer.json()
    return made


def test_counts_are_learned_predicted_and_forgotten(
    gateway: TestClient,
    uploaded: Callable[..., httpx.Response],
    visits: dict[str, Any],
    new_model: Make,
    forget: Make,
    get: Get,
    work: Callable[[], int],
) -> None:
    """Poisson regression is the default for counts, in plans too, and its predictions are rates. A rehearsal measures
    errors before and after forgetting, in the unit of the counts. The certificate for a forgotten person states the
    objective and the width of its loss, from which a verifier can recompute the mechanism's constants."""
    assert visits["target"] == {"min": 0, "max": 30, "outside": "error", "counts": True}
    plan = get(f"/accounting/datasets/{visits['id']}/plan")
    assert plan["objective"] == "poisson_regression"
    assert {cost["l2"] for cost in plan["costs"] if cost["epsilon"] == 1} == {0.00125, 0.005, 0.02}
    held_out = uploaded(table(seed=1, first=1000)).json()
    gate = {"metric": "mean_poisson_deviance", "threshold": 2.0}
    model = new_model(visits["id"], l2=0.003, noise_scale=0.002, evaluation_dataset_id=held_out["id"], quality=gate)
    mechanism = model["mechanism"]
    assert (model["objective"], mechanism["num_classes"], mechanism["loss_width"]) == ("poisson_regression", 1, 2.0)
    assert (mechanism["gradient_bound"], mechanism["smoothness"]) == (1.0, 1.003)
    work()
    metrics = get(f"/models/{model['id']}")["metrics"]
    assert set(metrics) == {"r_squared", "mean_absolute_error", "mean_poisson_deviance", "evaluated_on"}
    assert 0.4 < metrics["r_squared"] < 0.9
    assert 0.9 < metrics["mean_poisson_deviance"] < 1.5  # it is 1 if the true rates are known
    assert 1 < metrics["mean_absolute_error"] < 3

    records = [{"age": 10, "ill": 0}, {"age": 90, "ill": 1}]
    predicted = gateway.post(f"/v1/models/{model['id']}/predictions", json={"records": records}).json()
    few, many = (one["value"] for one in predicted["predictions"])
    assert 0.5 < few < 3 < 6 < many < 15

    asked = gateway.post(f"/v1/models/{model['id']}/rehearsals", json={"people": 40}).json()
    work()
    report = get(f"/models/{model['id']}/rehearsals/{asked['id']}")["report"]
    for name in ("before", "forgotten", "relearned"):
        sets = report[name]["sets"]
        assert all(1 < sets[one]["mean_absolute_error"] < 3 for one in ("forget", "retain"))
        assert sets["forget"]["accuracy"] is None

    request = forget("p7")
    work()
    [certificate] = get(f"/deletion-requests/{request['id']}/certificate")["certificates"]
    verdict = verification.verify(certificate["jws"], gateway.get("/.well-known/jwks.json").json())
    mechanism = verdict.statement["evidence"]["mechanism"]
    assert (mechanism["objective"], mechanism["loss_width"]) == ("poisson_regression", 2.0)
    assert verdict.statement["audit"]["findings"] == []
    after = get(f"/models/{model['id']}")
    assert (after["live_version"], after["metrics"]["r_squared"] > 0.4) == (2, True)


@each(
    ("of_target", "line", "said"),
    [
        ({}, "1.5", "expected a whole number from 0 to 30"),
        ({"outside": "clip"}, "-1", "expected a whole number from 0 to 30, or more, which is clipped"),
        ({"outside": "clip"}, "many", "expected a whole number from 0 to 30, or more, which is clipped"),
    ],
)
def test_a_malformed_count_is_refused(
    uploaded: Callable[..., httpx.Response], refused: Refused, of_target: dict[str, Any], line: str, said: str
) -> None:
    """A file with a value that is not a count is refused; the error names the line and column and does not quote the
    value."""
    answer = uploaded(table(people=5, p3=line), of_target)
    [fault] = refused(answer, 422, "row_invalid")["errors"]
    assert (fault["path"], fault["message"]) == ("line 5, column visits", said)


@each(
    ("of_target", "path", "said"),
    [
        ({"counts": "yes"}, "counts", "expected true or false"),
        ({"min": 1}, "min", "expected 0, of counts"),
        ({"max": 30.5}, "max", "expected a whole number from 1 to 1000000, of counts"),
        ({"max": 2_000_000}, "max", "expected a whole number from 1 to 1000000, of counts"),
        ({"max": None}, "max", "expected a finite number"),
    ],
)
def test_an_invalid_bound_for_counts_is_refused(
    uploaded: Callable[..., httpx.Response], refused: Refused, of_target: dict[str, Any], path: str, said: str
) -> None:
    """The schema of a count column must state the maximum count as a whole number."""
    errors = refused(uploaded(None, of_target), 422, "schema_invalid")["errors"]
    assert (f"columns.visits.{path}", said) in [(fault["path"], fault["message"]) for fault in errors]


def test_poisson_regression_requires_counts(
    gateway: TestClient,
    uploaded: Callable[..., httpx.Response],
    visits: dict[str, Any],
    new_model: Make,
    refused: Refused,
) -> None:
    """Poisson regression is refused unless the target is declared as a count. Count targets may also use any other
    regression objective, but no quality gate on the deviance, which is not measured for them."""
    plain = uploaded(None, {"counts": False}).json()
    assert plain["target"] == {"min": 0, "max": 30, "outside": "error"}
    body = {"name": "m", "dataset_id": plain["id"], "objective": "poisson_regression"}
    problem = refused(gateway.post("/v1/models", json=body), 422, "precondition_failed")
    assert "has a target, which poisson_regression does not learn" in problem["detail"]
    assert problem["errors"][0]["message"] == "expected one of huber_regression, least_squares"
    body = {"name": "m", "dataset_id": visits["id"], "objective": "logistic_regression"}
    problem = refused(gateway.post("/v1/models", json=body), 422, "precondition_failed")
    assert problem["detail"].startswith("This dataset has counts, which logistic_regression does not learn")
    assert new_model(visits["id"], objective="huber_regression")["objective"] == "huber_regression"
    body = {"name": "m", "dataset_id": visits["id"]}
    body["evaluation_dataset_id"] = uploaded(table(first=1000), {"counts": False}).json()["id"]
    assert "target" in refused(gateway.post("/v1/models", json=body), 422, "precondition_failed")["detail"]
    body["evaluation_dataset_id"] = uploaded(table(seed=1, first=2000)).json()["id"]
    body |= {"objective": "huber_regression", "quality": {"metric": "mean_poisson_deviance", "threshold": 2.0}}
    problem = refused(gateway.post("/v1/models", json=body), 422, "precondition_failed")
    assert "mean_poisson_deviance is not available for huber_regression" in problem["detail"]


def test_counts_pass_canary_tests_and_can_be_added(
    gateway: TestClient, visits: dict[str, Any], new_model: Make, forget: Make, get: Get, work: Callable[[], int]
) -> None:
    """A model trained on counts passes its canary test, and rows with counts can be added to the slots of forgotten
    people."""
    model = new_model(visits["id"], audit={"lanes": 64, "chains": 2}, loss_width=1.0)
    work()
    assert gateway.post(f"/v1/models/{model['id']}/audit").status_code == 202
    work()
    assert get(f"/models/{model['id']}")["audit"]["last"]["findings"] == []
    forget("p1")
    work()
    for line, status in (("2.5", 422), ("2", 202)):
        files = {"file": ("more.csv", table(people=1, seed=2, first=900, p900=line))}
        assert gateway.post(f"/v1/datasets/{visits['id']}/records", files=files).status_code == status
    work()
    assert get(f"/models/{model['id']}")["live_version"] == 3


def test_npz_labels_are_counts_if_the_form_states_a_bound(
    gateway: TestClient, new_model: Make, get: Get, work: Callable[[], int], refused: Refused
) -> None:
    """If the upload form states a maximum count, the y array of an npz file is read as counts."""
    generator = np.random.default_rng(0)
    x = generator.normal(size=(200, 3))
    y = np.minimum(generator.poisson(np.exp(1 + x[:, 0])), 20)

    def upload(y: Any) -> httpx.Response:
        buffer = io.BytesIO()
        np.savez(buffer, x=x, y=y, subject=np.array([f"p{row}" for row in range(200)]))
        said = json.dumps({"min": 0, "max": 20, "counts": True})
        files = {"file": ("people.npz", buffer.getvalue())}
        return gateway.post("/v1/datasets", data={"name": "vectors", "target": said}, files=files)

    assert refused(upload(y + 0.5), 422, "row_invalid")["errors"][0]["message"].startswith("expected a whole number")
    answer = upload(y)
    assert answer.json()["target"] == {"min": 0, "max": 20, "outside": "error", "counts": True}
    model = new_model(answer.json()["id"], l2=0.003, noise_scale=0.002)
    work()
    predicted = gateway.post(f"/v1/models/{model['id']}/predictions", json={"records": [[3, 0, 0], [-3, 0, 0]]}).json()
    many, few = (one["value"] for one in predicted["predictions"])
    assert 0 < few < 2 < 4 < many <= 20
