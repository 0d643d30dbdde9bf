import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient
from safetensors.numpy import load

Make = Callable[..., dict[str, Any]]
Work = Callable[[], int]
Refused = Callable[..., dict[str, Any]]

TABLE = "age,income\n10,low\n20,low\n80,high\n90,high\n"
SCHEMA = {
    "columns": {
        "age": {"kind": "numeric", "min": 0, "max": 100},
        "income": {"role": "label", "values": ["low", "high"]},
    }
}


def test_vectors_are_predicted(gateway: TestClient, live: dict[str, Any], refused: Refused) -> None:
    """For each vector of the right width, the response contains a label and probabilities that sum to one. Other
    records are refused."""
    place = f"/v1/models/{live['id']}/predictions"
    answer = gateway.post(place, json={"records": [[0.1, -2, 3], [1e300, 0, 0]]})
    assert answer.status_code == 200
    assert answer.json()["version"] == 1
    for prediction in answer.json()["predictions"]:
        assert sum(prediction["probabilities"].values()) == pytest.approx(1)
        assert prediction["label"] == max(prediction["probabilities"], key=prediction["probabilities"].get)
    for records in ("[[1, 2]]", '[{"x": 1}]', "[]", "[[1, 2, NaN]]", "[[1, 2, Infinity]]", '[[1, 2, "three"]]', "[7]"):
        headers = {"Content-Type": "application/json"}
        answer = gateway.post(place, content=f'{{"records": {records}}}', headers=headers)
        refused(answer, 422, "input_invalid")


def test_records_are_predicted(
    gateway: TestClient, new_model: Make, upload: Callable[..., Any], work: Work, refused: Refused
) -> None:
    """If the dataset has a schema, records are objects with the schema's columns. The error for an invalid record does
    not quote the invalid value."""
    dataset = upload(TABLE.encode(), filename="t.csv", schema=json.dumps(SCHEMA)).json()
    model = new_model(dataset["id"], l2=0.5, noise_scale=1e-3)
    place = f"/v1/models/{model['id']}/predictions"
    refused(gateway.post(place, json={"records": [{"age": 5}]}), 409, "model_not_live")
    work()
    answer = gateway.post(place, json={"records": [{"age": 5}, {"age": 95, "income": "low"}]})
    assert answer.json()["predictions"][0]["probabilities"].keys() == {"low", "high"}
    for records, path in (
        ([{"age": 5}, {"age": 777}], "records.1.age"),
        ([{}], "records.0.age"),
        ([{"age": 5, "height": 777}], "records.0"),
        ([[777]], "records"),
    ):
        problem = refused(gateway.post(place, json={"records": records}), 422, "input_invalid")
        assert problem["errors"][0]["path"] == path
        assert "777" not in json.dumps(problem)


def test_predictions_follow_the_weights(gateway: TestClient, live: dict[str, Any]) -> None:
    """The gateway's predictions equal those computed from the published weights and the encoded record."""
    weights = load(gateway.get(f"/v1/models/{live['id']}/versions/1/weights").content)["parameters"]
    record = np.array([0.5, -1.0, 2.0, 1.0])  # the bias comes last
    score = weights[0] @ (record / np.linalg.norm(record))
    answer = gateway.post(f"/v1/models/{live['id']}/predictions", json={"records": [[0.5, -1, 2]]})
    probability = answer.json()["predictions"][0]["probabilities"]["1"]
    assert probability == pytest.approx(1 / (1 + np.exp(-score)), rel=1e-4)
