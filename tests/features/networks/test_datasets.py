"""Datasets whose rows are features of a public network: uploads, additions, predictions, and models."""

import io
import json
from collections.abc import Callable
from typing import Any

import numpy as np
from fastapi.testclient import TestClient
from safetensors.numpy import load

from app.catalogue.prediction import probabilities
from lethe.encoding.rows import unit_rows
from lethe.proof.network import PublicNetwork
from tests.features.networks import nets

Make = Callable[..., dict[str, Any]]
Get = Callable[[str], Any]
FORM = {"name": "people", "classes": json.dumps(["no", "yes"])}
DRAWN = np.random.default_rng(11)
X = DRAWN.uniform(-1, 1, size=(120, nets.WIDTH))


def npz(x: Any, *, first: int = 0) -> bytes:
    """Return an npz file with one row per person, alternating between the two classes."""
    buffer = io.BytesIO()
    np.savez(
        buffer, x=x, y=np.arange(len(x)) % 2, subject=np.array([f"p{place}" for place in range(first, first + len(x))])
    )
    return buffer.getvalue()


def network(gateway: TestClient, content: bytes) -> dict[str, Any]:
    answer = gateway.post("/v1/networks", data=nets.FORM, files={"file": ("net.onnx", content)})
    assert answer.status_code == 201, answer.text
    made: dict[str, Any] = answer.json()
    return made


def send(gateway: TestClient, content: bytes, name: str = "people.npz", **form: str) -> Any:
    return gateway.post("/v1/datasets", data=FORM | form, files={"file": (name, content)})


def test_a_model_on_features_learns_forgets_and_predicts(
    gateway: TestClient, get: Get, new_model: Make, forget: Make, work: Any
) -> None:
    """The rows of the dataset are the network's features, and predictions use the same features. The mechanism and the
    certificate name the network."""
    net = network(gateway, nets.linear())
    dataset = send(gateway, npz(X), network_id=net["id"]).json()
    assert (dataset["network_id"], dataset["num_features"]) == (net["id"], nets.OUT)
    model = new_model(dataset["id"])["id"]
    work()
    request = forget("p1")["id"]
    work()
    named = PublicNetwork(sha256=net["sha256"], licence="CC0-1.0", opset=17)
    assert get(f"/models/{model}")["mechanism"]["network"] == named.to_json()
    [certificate] = get(f"/deletion-requests/{request}/certificate")["certificates"]
    assert certificate["statement"]["limits"][-1] == named.rests_on
    assert gateway.post("/v1/certificates:verify", json={"jws": certificate["jws"]}).json()["valid"] is True

    weights = load(gateway.get(f"/v1/models/{model}/versions/2/weights").content)["parameters"]
    features = np.maximum(X[:5].astype(np.float32) @ nets.WEIGHTS, 0).astype(np.float64)
    expected = probabilities(weights, unit_rows(features), 2)
    answer = gateway.post(f"/v1/models/{model}/predictions", json={"records": X[:5].tolist()}).json()
    found = [[one["probabilities"][name] for name in ("no", "yes")] for one in answer["predictions"]]
    np.testing.assert_allclose(found, expected, rtol=1e-5)

    more = gateway.post(f"/v1/datasets/{dataset['id']}/records", files={"file": ("more.npz", npz(X[:1], first=500))})
    assert more.status_code == 202, more.text
    work()
    assert get(f"/datasets/{dataset['id']}")["num_records"] == len(X)
    assert gateway.delete(f"/v1/networks/{net['id']}").json()["code"] == "network_in_use"


def test_a_schema_defines_the_input_of_the_network(gateway: TestClient, get: Get) -> None:
    """The network's input consists of the numbers that the schema derives from a CSV file's columns, in the order of
    the column names."""
    net = network(gateway, nets.linear())
    columns: dict[str, Any] = {f"c{place}": {"kind": "standard", "center": 0, "scale": 1} for place in range(6)}
    columns |= {"y": {"role": "label", "values": ["0", "1"]}, "who": {"role": "subject"}}
    lines = [
        ",".join(columns),
        *(f"{','.join(map(str, row))},{place % 2},p{place}" for place, row in enumerate(X[:30])),
    ]
    table = "\n".join(lines).encode()
    form = {"network_id": net["id"], "schema": json.dumps({"columns": columns})}
    answer = gateway.post("/v1/datasets", data={"name": "t"} | form, files={"file": ("t.csv", table)})
    assert (answer.status_code, answer.json()["num_features"]) == (201, nets.OUT), answer.text
    del columns["c5"]
    form["schema"] = json.dumps({"columns": columns})
    refused = gateway.post("/v1/datasets", data={"name": "t"} | form, files={"file": ("t.csv", table)})
    assert refused.json()["code"] == "schema_invalid"
    assert "expected 6 numbers" in refused.json()["errors"][0]["message"]


def test_rows_without_finite_features_are_refused(gateway: TestClient, get: Get) -> None:
    """If the network returns NaN for a row, the upload is refused with an error that states the row's position but not
    its numbers. Rows of the wrong width and an unknown network are refused too, and nothing is stored."""
    net = network(gateway, nets.logarithm())
    far = X[:40].copy()
    far[36] = -1000.0 * np.sign(nets.WEIGHTS[:, 0])
    refused = send(gateway, npz(far), network_id=net["id"]).json()
    assert refused["code"] == "row_invalid"
    assert [one["path"] for one in refused["errors"]] == ["line 37"]
    assert "1000" not in json.dumps(refused)
    assert send(gateway, npz(X[:, :5]), network_id=net["id"]).json()["code"] == "input_invalid"
    assert send(gateway, npz(X), network_id="net_0").json()["code"] == "network_unknown"
    assert get("/datasets")["items"] == []

    dataset = send(gateway, npz(X), network_id=net["id"]).json()
    plain = send(gateway, npz(X[:, :4] + 7, first=900)).json()
    asked = {"name": "m", "dataset_id": dataset["id"], "evaluation_dataset_id": plain["id"]}
    assert gateway.post("/v1/models", json=asked).json()["code"] == "precondition_failed"
