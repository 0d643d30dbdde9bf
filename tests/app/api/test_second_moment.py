"""Models with a second moment, tested through the gateway."""

from collections.abc import Callable
from typing import Any

from fastapi.testclient import TestClient

from tests.conftest import npz
from tests.tables import each

Make = Callable[..., dict[str, Any]]
Get = Callable[[str], Any]
Work = Callable[[], int]
Refused = Callable[..., dict[str, Any]]


def test_a_bound_on_the_second_moment_reduces_training_steps(
    gateway: TestClient, new_dataset: Make, new_model: Make, forget: Make, get: Get, work: Work, refused: Refused
) -> None:
    """A model with a stated bound on the second moment takes fewer training steps than one without. Its certificate
    states the bound and verifies. Rows can be added to the model's dataset only after the model is retired."""
    dataset = new_dataset(rows=300, features=6)["id"]
    model = new_model(dataset, second_moment=0.9)
    assert model["mechanism"]["learn_steps"] < new_model(dataset)["mechanism"]["learn_steps"]
    work()
    assert get(f"/models/{model['id']}")["live_version"] == 1
    request = forget("p3")["id"]
    work()
    certificates = get(f"/deletion-requests/{request}/certificate")["certificates"]
    stated = [one["statement"]["evidence"]["mechanism"].get("second_moment") for one in certificates]
    assert sorted(stated, key=str) == [0.9, None]
    verdicts = [gateway.post("/v1/certificates:verify", json={"jws": one["jws"]}) for one in certificates]
    assert [verdict.status_code for verdict in verdicts] == [200, 200]
    row = {"file": ("p.npz", npz(rows=2, features=6, first=900))}
    refused(gateway.post(f"/v1/datasets/{dataset}/records", files=row), 422, "precondition_failed")
    assert gateway.delete(f"/v1/models/{model['id']}").status_code == 200
    free = gateway.post(
        f"/v1/datasets/{dataset}/records", files={"file": ("p.npz", npz(rows=2, features=6, first=900))}
    )
    assert free.json()["code"] == "dataset_full"  # one free slot for two rows; the bound no longer prevents it


def test_a_run_that_exceeds_the_second_moment_is_not_published(
    new_dataset: Make, new_model: Make, get: Get, work: Work
) -> None:
    """If a model's batches exceed its bound on the second moment, no version is published and the run reports the
    reason."""
    model = new_model(new_dataset()["id"], second_moment=0.05)
    work()
    assert get(f"/models/{model['id']}")["live_version"] is None
    assert get("/runs")["items"][0]["error_code"] == "second_moment_exceeded"


@each("wrong", [0, -0.5, 1.5])
def test_a_malformed_bound_is_refused(new_dataset: Make, gateway: TestClient, refused: Refused, wrong: float) -> None:
    """A bound on the second moment must be greater than 0 and at most 1; any other value is refused."""
    body = {"name": "m", "dataset_id": new_dataset()["id"], "second_moment": wrong}
    refused(gateway.post("/v1/models", json=body), 422, "input_invalid")
