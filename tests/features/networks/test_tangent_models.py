"""Models that adapt the weights of a public network: created, learned, measured, forgotten, certified and exported."""

import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from fastapi.testclient import TestClient

from benchmarks.vectors import encode_vectors
from lethe import verification
from lethe.features.networks.tangents.graph import Graph
from lethe.features.networks.tangents.model import Tangent, scores
from lethe.proof.network import Linearisation
from tests.features.networks.networks import exported, perceptron
from tests.tables import each

Make = Callable[..., dict[str, Any]]
Get = Callable[[str], Any]
FEATURES, LAYERS = 6, ["0.weight", "2.weight", "2.bias"]
CLASSES = ("a", "b", "c")
FORM = {"name": "small", "licence": "CC0-1.0", "provenance": "Numbers that were drawn."}


def records(num_rows: int, *, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return points with labels; a point's class is the position of the largest of its first three numbers."""
    points = np.random.default_rng(seed).standard_normal((num_rows, FEATURES))
    return points, points[:, :3].argmax(axis=1)


@pytest.fixture
def points(gateway: TestClient) -> Callable[..., dict[str, Any]]:
    def send(num_rows: int = 300, *, seed: int = 0) -> dict[str, Any]:
        x, y = records(num_rows, seed=seed)
        file = io.BytesIO()
        np.savez(file, x=x, y=y, subject=np.array([f"p{seed}-{n}" for n in range(num_rows)]))
        form = {"name": f"points {seed}", "classes": '["a", "b", "c"]'}
        answer = gateway.post("/v1/datasets", data=form, files={"file": ("points.npz", file.getvalue())})
        assert answer.status_code == 201, answer.text
        return dict(answer.json())

    return send


@pytest.fixture
def network(gateway: TestClient) -> Callable[..., dict[str, Any]]:
    def send(made: torch.nn.Module | None = None) -> dict[str, Any]:
        content = exported(made or perceptron(FEATURES, 3, width=16), FEATURES)
        answer = gateway.post("/v1/networks", data=FORM, files={"file": ("small.onnx", content)})
        assert answer.status_code == 201, answer.text
        return dict(answer.json())

    return send


def test_a_tangent_model_is_trained_forgets_and_is_certified(
    gateway: TestClient,
    points: Make,
    network: Make,
    new_model: Make,
    forget: Make,
    get: Get,
    work: Callable[[], int],
) -> None:
    """A tangent model is trained, forgets a person and is certified. The mechanism names the network and its layers,
    and the certificate states its assumptions. The accuracy is measured with the tangent's scores, and the exported
    weights reproduce those scores."""
    dataset, held_out, public = points(), points(200, seed=1), network()
    asked = {"network_id": public["id"], "layers": LAYERS, "rank": 3, "seed": 5}
    settings = {"l2": 0.02, "noise_scale": 0.003, "learn_steps": 150, "evaluation_dataset_id": held_out["id"]}
    model = new_model(dataset["id"], tangent=asked, **settings)
    stated = model["mechanism"]["network"]
    assert (stated["sha256"], stated["licence"], stated["opset"]) == (public["sha256"], "CC0-1.0", public["opset"])
    assert stated["linearisation"] == {k: v for k, v in asked.items() if k != "network_id"} | {
        "least_norm": 1e-6,
        "offset": True,
    }
    assert model["mechanism"]["num_parameters"] == 16 * 3 + 3 * 3 + 3
    work()
    live = get(f"/models/{model['id']}")
    assert live["live_version"] == 1, live["error_code"]

    content = gateway.get(f"/v1/networks/{public['id']}/file").content
    tangent = Tangent(Graph(content), Linearisation(**asked_of(stated)), num_scores=3)
    parameters = parameters_of(gateway.get(f"/v1/models/{model['id']}/versions/1/weights").content)
    x, y = records(200, seed=1)
    found = scores(tangent, parameters, encode_vectors(x))
    accuracy = float((found.argmax(axis=1) == y).mean())
    assert live["metrics"]["accuracy"] == pytest.approx(accuracy, abs=0.011)
    assert accuracy > 0.6

    request = forget("p0-3")
    work()
    assert get(f"/models/{model['id']}")["live_version"] == 2
    [certificate] = get(f"/deletion-requests/{request['id']}/certificate")["certificates"]
    verdict = verification.verify(certificate["jws"], gateway.get("/.well-known/jwks.json").json())
    assert public["sha256"] in verdict.statement["limits"][-1]
    assert verdict.statement["evidence"]["mechanism"]["network"]["linearisation"]["rank"] == 3

    refused = gateway.post(f"/v1/models/{model['id']}/predictions", json={"records": x[:2].tolist()})
    assert (refused.status_code, refused.json()["code"]) == (409, "tangent_served_elsewhere")
    assert gateway.delete(f"/v1/networks/{public['id']}").json()["code"] == "network_in_use"


def asked_of(stated: dict[str, Any]) -> dict[str, Any]:
    return stated["linearisation"] | {"layers": tuple(stated["linearisation"]["layers"])}


def parameters_of(content: bytes) -> np.ndarray:
    from safetensors.numpy import load

    return load(content)["parameters"]


class Cosine(torch.nn.Module):
    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return torch.cos(rows)[:, :3]


@each(
    ("made", "change", "field"),
    [
        (perceptron(FEATURES, 4), {}, "tangent.network_id"),
        (perceptron(FEATURES, 3), {"layers": ["0.weigth"]}, "tangent.layers"),
        (Cosine(), {}, "tangent.network_id"),
    ],
)
def test_a_network_that_does_not_fit_is_refused(
    gateway: TestClient, points: Make, network: Make, made: torch.nn.Module, change: dict[str, Any], field: str
) -> None:
    """A network whose number of outputs does not match the classes, an unknown layer, or an operator without a
    supported derivative is refused before any training, with an error that names the field."""
    body = {
        "name": "m",
        "dataset_id": points()["id"],
        "tangent": {"network_id": network(made)["id"], "layers": LAYERS} | change,
    }
    answer = gateway.post("/v1/models", json=body)
    assert answer.status_code == 422, answer.text
    assert [error["path"] for error in answer.json()["errors"]] == [field]
    assert gateway.get("/v1/models").json()["items"] == []


def test_a_network_with_the_wrong_input_width_is_refused(gateway: TestClient, points: Make, network: Make) -> None:
    """A network whose number of inputs differs from the dataset's number of features is refused. An unknown network is
    refused too."""
    made = torch.nn.Sequential(torch.nn.Unflatten(1, (2, 3)), torch.nn.Flatten(), torch.nn.Linear(6, 3))
    body = {"name": "m", "dataset_id": points()["id"], "tangent": {"network_id": "net_0", "layers": ["2.weight"]}}
    assert gateway.post("/v1/models", json=body).json()["code"] == "network_unknown"
    file = exported(perceptron(5, 3), 5)
    five = gateway.post("/v1/networks", data=FORM, files={"file": ("five.onnx", file)}).json()
    body["tangent"] = {"network_id": five["id"], "layers": ["0.weight"]}
    refused = gateway.post("/v1/models", json=body)
    assert (refused.status_code, refused.json()["code"]) == (422, "precondition_failed")
    body["tangent"] = {"network_id": network(made)["id"], "layers": ["2.weight"]}
    assert gateway.post("/v1/models", json=body).status_code == 202


@pytest.mark.soak
def test_a_tangent_model_is_rehearsed(
    gateway: TestClient, points: Make, network: Make, new_model: Make, get: Get, work: Callable[[], int]
) -> None:
    """A rehearsal evaluates a tangent model by its network's scores and agrees with the version's metrics."""
    held_out = points(2000, seed=1)
    asked = {"network_id": network()["id"], "layers": LAYERS, "rank": 3}
    settings = {"l2": 0.02, "noise_scale": 0.003, "learn_steps": 60, "evaluation_dataset_id": held_out["id"]}
    model = new_model(points(100)["id"], tangent=asked, **settings)
    work()
    place = gateway.post(f"/v1/models/{model['id']}/rehearsals", json={"people": 10}).headers["Location"]
    assert work() == 1
    found = get(place.removeprefix("/v1"))
    assert found["status"] == "completed", found
    measured = found["report"]["before"]["sets"]["test"]
    metrics = get(f"/models/{model['id']}")["metrics"]
    assert measured["accuracy"] == pytest.approx(metrics["accuracy"], abs=0.05)
    assert measured["loss"] == pytest.approx(metrics["log_loss"], abs=0.05)
