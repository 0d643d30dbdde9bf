"""`/v1/networks`: accepted files, refusals by name, and the isolation of the process that runs them."""

import hashlib
import pickle
import zipfile
from collections.abc import Callable
from io import BytesIO
from typing import Any

import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient
from onnx import TensorProto, helper

from app.features.networks.tables import NetworkPiece
from app.installations import Installation
from app.main import create_app
from lethe.features.networks.encoders import process
from tests.conftest import FORM, npz
from tests.features.networks import nets
from tests.features.networks.nets import WEIGHTS, node, onnx_file
from tests.tables import each


def send(gateway: TestClient, content: bytes, name: str = "net.onnx", **form: str) -> Any:
    return gateway.post("/v1/networks", data=nets.FORM | form, files={"file": (name, content)})


def test_a_network_is_uploaded_listed_and_deleted(gateway: TestClient, get: Callable[[str], Any]) -> None:
    """An uploaded network is described in the response and in lists, and its file is returned unchanged. Uploading the
    same file again is refused. A deleted network is no longer listed."""
    content = nets.linear()
    answer = send(gateway, content, dp_ledger="https://example.org/ledger")
    made = answer.json()
    assert (answer.status_code, answer.headers["location"]) == (201, f"/v1/networks/{made['id']}")
    said = {"opset": 17, "input_shape": [6], "output_size": 4, "num_parameters": 24, "size": len(content)}
    said |= {"sha256": hashlib.sha256(content).hexdigest(), "dp_ledger": "https://example.org/ledger"}
    assert said | nets.FORM == {name: made[name] for name in (*said, *nets.FORM)}
    assert made["parameters"] == [{"name": "w", "shape": [6, 4]}]
    assert get("/networks")["items"] == [get(f"/networks/{made['id']}")] == [made]
    assert gateway.get(f"/v1/networks/{made['id']}/file").content == content
    assert send(gateway, content).json()["code"] == "network_exists"
    assert gateway.delete(f"/v1/networks/{made['id']}").status_code == 204
    assert gateway.get(f"/v1/networks/{made['id']}").json()["code"] == "network_unknown"
    assert send(gateway, content).status_code == 201


def zipped() -> bytes:
    file = BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("archive/data.pkl", b"")
    return file.getvalue()


def with_external_data() -> bytes:
    import onnx

    model = onnx.load_from_string(nets.linear())
    [tensor] = model.graph.initializer
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="/etc/passwd")
    content: bytes = model.SerializeToString()
    return content


BRANCH = helper.make_graph(
    [node("Identity", "w", "z")], "then", [], [helper.make_tensor_value_info("z", TensorProto.FLOAT, None)]
)
REFUSED = {
    "pickle": (pickle.dumps({"weights": [1.0]}), "may hold code"),
    "zip": (zipped(), "may hold code"),
    "no onnx": (b"\x08\x01 nothing of the kind", "not a whole ONNX file"),
    "text": (b"a network", "not a whole ONNX file"),
    "nothing": (b"", "not a whole ONNX file"),
    "a version alone": (nets.linear()[:2], "no network"),
    "cut off": (nets.linear()[:-40], "not a whole ONNX file"),
    "old opset": (onnx_file([node("MatMul")], opset=7), "opset 7"),
    "unknown opset": (onnx_file([node("MatMul")], opset=900), "opset 900"),
    "custom domain": (onnx_file([node("Run", domain="mine")], domains=[("mine", 1)]), "domain 'mine'"),
    "hidden domain": (onnx_file([node("Gelu", domain="com.microsoft")]), "domain 'com.microsoft'"),
    "random": (onnx_file([node("MatMul", output="h"), node("RandomNormalLike", "h")]), "RandomNormalLike"),
    "a branch": (
        onnx_file([helper.make_node("If", ["x"], ["y"], then_branch=BRANCH, else_branch=BRANCH)]),
        "operator 'If'",
    ),
    "training dropout": (
        onnx_file([node("MatMul", output="h"), helper.make_node("Dropout", ["h", "w", "w"], ["y"])]),
        "model.eval",
    ),
    "external data": (with_external_data(), "other files"),
    "two inputs": (onnx_file([node("MatMul")], inputs=2), "one input"),
    "integers": (onnx_file([node("MatMul")], kind=TensorProto.INT64), "one input"),
    "fixed batch": (onnx_file([node("MatMul")], batch=8), "its batch is fixed to 8. Export it with a dynamic one"),
    "newer format": (onnx_file([node("MatMul")], ir_version=900), "is of IR version 900, and onnxruntime reads "),
    "dynamic width": (onnx_file([node("MatMul")], shape=["d"]), "dynamic batch axis alone"),
    "three axes": (onnx_file([node("MatMul")], shape=(3, 6), out=("batch", 3, 4)), "flatten"),
    "not a function": (onnx_file([node("MatMul")], weights=WEIGHTS[:5]), "onnxruntime"),
    "not finite": (onnx_file([node("MatMul", output="h"), node("Sub", "h h", "z"), node("Div", "h z")]), "not finite"),
}


@pytest.mark.soak
@each("case", REFUSED)
def test_an_unsuitable_file_is_refused(gateway: TestClient, case: str) -> None:
    """A file that contains code, unknown operators or random operators, or is truncated, is refused with an
    explanation, and nothing is stored."""
    content, why = REFUSED[case]
    answer = send(gateway, content)
    assert (answer.status_code, answer.json()["code"]) == (422, "network_invalid"), answer.text
    assert why in answer.json()["detail"]
    assert gateway.get("/v1/networks").json()["items"] == []


def limited(gateway: TestClient, installation: Installation, **limits: Any) -> TestClient:
    """Return a client for the same installation with other limits, using the same key."""
    settings = installation.settings.model_copy(update=limits)
    return TestClient(create_app(settings), raise_server_exceptions=False, headers=gateway.headers)


def test_a_network_over_its_limits_is_refused(
    gateway: TestClient, installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A network that exceeds its memory or time limit is refused over HTTP with a specific error, and so is an upload
    of rows for such a network. Neither is stored."""
    with limited(gateway, installation, network_memory_bytes=2**30, network_seconds=600.0) as poor:
        answer = send(poor, nets.slow(60_000, hidden=True))
    assert (answer.status_code, answer.json()["code"]) == (422, "network_failed"), answer.text
    assert "more memory than 1073741824 bytes" in answer.json()["detail"]
    assert gateway.get("/v1/networks").json()["items"] == []

    made = send(gateway, nets.slow(400)).json()["id"]
    rows = {"data": FORM | {"network_id": made}, "files": {"file": ("people.npz", npz(rows=40, features=nets.WIDTH))}}
    with limited(gateway, installation, network_seconds=1e-4) as hasty:
        answer = hasty.post("/v1/datasets", **rows)
        assert (answer.status_code, answer.json()["code"]) == (422, "network_failed"), answer.text
        assert "longer than 0.0001 seconds" in answer.json()["detail"]
        monkeypatch.setattr(process, "_START_SECONDS", 0.1)
        answer = send(hasty, nets.linear())
        assert (answer.status_code, answer.json()["code"]) == (422, "network_failed"), answer.text
    assert gateway.get("/v1/datasets").json()["items"] == []
    assert [one["id"] for one in gateway.get("/v1/networks").json()["items"]] == [made]


def test_unusable_licences_are_refused(gateway: TestClient) -> None:
    """A blank or multi-line licence is refused before anything is stored."""
    for licence in ("MIT\nand more", " "):
        assert send(gateway, nets.linear(), licence=licence).json()["code"] == "network_invalid"


def test_a_damaged_file_is_not_used(gateway: TestClient, installation: Installation) -> None:
    """If a network's file was changed in the database, the file is not returned."""
    made = send(gateway, nets.linear()).json()
    with installation.database.writing() as session:
        session.execute(sa.update(NetworkPiece).values(content=nets.linear(2.0)))
    assert gateway.get(f"/v1/networks/{made['id']}/file").json()["code"] == "database_damaged"
