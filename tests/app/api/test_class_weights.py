"""Models with class weights, tested through the gateway."""

from collections.abc import Callable
from typing import Any

import numpy as np
from fastapi.testclient import TestClient

from tests.conftest import npz

Make = Callable[..., dict[str, Any]]
Get = Callable[[str], Any]
Work = Callable[[], int]
Refused = Callable[..., dict[str, Any]]


def test_a_class_with_a_low_weight_is_predicted_less_often(
    gateway: TestClient, new_dataset: Make, new_model: Make, forget: Make, get: Get, work: Work
) -> None:
    """Class weights are given by class name, and the model states them in normalised form. A model whose first class
    has almost no weight predicts the other class more often, and its certificate states the weights."""
    dataset = new_dataset(rows=400)["id"]
    records = np.random.default_rng(5).normal(size=(200, 3)).tolist()
    found = []
    for weights in (None, {"1": 20}):
        model = new_model(dataset, class_weights=weights, l2=0.01)
        work()
        answer = gateway.post(f"/v1/models/{model['id']}/predictions", json={"records": records}).json()
        found.append(sum(one["label"] == "1" for one in answer["predictions"]))
    assert model["mechanism"]["class_weights"] == [0.05, 1.0]
    assert found[1] > found[0] + 20
    request = forget("p3")["id"]
    work()
    work()
    certificates = get(f"/deletion-requests/{request}/certificate")["certificates"]
    stated = [one["statement"]["evidence"]["mechanism"].get("class_weights") for one in certificates]
    assert sorted(stated, key=str) == [None, [0.05, 1.0]] or sorted(stated, key=str) == [[0.05, 1.0], None]


def test_malformed_weights_are_refused(new_dataset: Make, gateway: TestClient, refused: Refused) -> None:
    """A weight for an unknown class is refused, and the error lists the known classes. Invalid weights and class
    weights for a numeric target are also refused."""
    dataset = new_dataset()["id"]

    def asked(weights: dict[str, float], dataset_id: str = dataset) -> Any:
        body = {"name": "m", "dataset_id": dataset_id, "class_weights": weights}
        return gateway.post("/v1/models", json=body)

    problem = refused(asked({"yes": 2.0}), 422, "precondition_failed")
    assert problem["errors"][0]["path"] == "class_weights"
    refused(asked({"1": 0.0}), 422, "input_invalid")
    form = {"name": "rents", "target": '{"min": 0, "max": 1}'}
    of_target = gateway.post("/v1/datasets", data=form, files={"file": ("p.npz", npz())}).json()["id"]
    refused(asked({"1": 2.0}, of_target), 422, "precondition_failed")
