"""`/v1/networks`: what is taken, what is refused by name, and what the process that runs it can reach."""

import hashlib
import os
import pickle
import subprocess
import sys
import zipfile
from collections.abc import Callable
from io import BytesIO
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient
from onnx import TensorProto, helper

from app.db.tables import NetworkPiece
from app.encoders import child, graph, process
from app.encoders.process import Limits
from app.installations import Installation
from app.main import create_app
from lethe.contract.problems import NetworkFailed
from tests.app.encoders import nets
from tests.app.encoders.nets import WEIGHTS, node, onnx_file
from tests.conftest import FORM, npz

LIMITS = Limits(memory_bytes=4 * 2**30, seconds=60.0)
ROWS = np.random.default_rng(5).normal(size=(70, nets.WIDTH))


def send(gateway: TestClient, content: bytes, name: str = "net.onnx", **form: str) -> Any:
    return gateway.post("/v1/networks", data=nets.FORM | form, files={"file": (name, content)})


def test_a_network_is_taken_found_and_let_go_of(gateway: TestClient, get: Callable[[str], Any]) -> None:
    """A network says what it is; its file comes back as it was; the same file twice is refused; a deletion ends it."""
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
    "no onnx": (b"\x08\x01 nothing of the kind", "no ONNX file"),
    "text": (b"a network", "no ONNX file"),
    "nothing": (b"", "no ONNX file"),
    "a version alone": (nets.linear()[:2], "no network"),
    "cut off": (nets.linear()[:-40], "cut off"),
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
    "fixed batch": (onnx_file([node("MatMul")], batch=8), "dynamic batch"),
    "dynamic width": (onnx_file([node("MatMul")], shape=["d"]), "dynamic batch axis alone"),
    "three axes": (onnx_file([node("MatMul")], shape=(3, 6), out=("batch", 3, 4)), "flatten"),
    "not a function": (onnx_file([node("MatMul")], weights=WEIGHTS[:5]), "onnxruntime"),
    "neighbours": (
        onnx_file(
            [
                node("MatMul", output="h"),
                helper.make_node("ReduceMean", ["h"], ["m"], axes=[0], keepdims=1),
                node("Sub", "h m"),
            ]
        ),
        "changes with the other rows",
    ),
    "not finite": (onnx_file([node("MatMul", output="h"), node("Sub", "h h", "z"), node("Div", "h z")]), "not finite"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_public_function_of_a_row_is_refused(gateway: TestClient, case: str) -> None:
    """A file with code, of unknown operators, at random, or cut off is refused in words, and nothing is stored."""
    content, why = REFUSED[case]
    answer = send(gateway, content)
    assert (answer.status_code, answer.json()["code"]) == (422, "network_invalid"), answer.text
    assert why in answer.json()["detail"]
    assert gateway.get("/v1/networks").json()["items"] == []


def test_a_network_whose_runs_differ_is_refused() -> None:
    """The examination runs a network twice itself, whatever the list of operators lets pass: one that adds drawn
    numbers, and a file that computes other numbers than the one in hand, are refused."""
    drawn = onnx_file([node("MatMul", output="h"), node("RandomNormalLike", "h", "r"), node("Add", "h r")])
    named = graph.parse(nets.linear())  # of the same input and output
    for content, network in (
        (drawn, child.Network(drawn, named)),
        (nets.linear(2.0), child.Network(nets.linear(), named)),
    ):
        with pytest.raises(graph.Refused, match="output changed between two runs"):
            child._examined(content, network)
    assert child._examined(nets.linear(), child.Network(nets.linear(), named))["output_size"] == nets.OUT


def limited(gateway: TestClient, installation: Installation, **limits: Any) -> TestClient:
    """The same installation with other limits, called with the same key."""
    settings = installation.settings.model_copy(update=limits)
    return TestClient(create_app(settings), raise_server_exceptions=False, headers=gateway.headers)


def test_a_network_over_its_limits_is_refused_and_not_stored(
    gateway: TestClient, installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A network that needs more memory, or more time, than it may have is refused by name over HTTP, and so is an
    upload of rows that it would encode; neither is there afterwards."""
    with limited(gateway, installation, network_memory_bytes=2**30) as poor:
        answer = send(poor, nets.slow(60_000))
    assert (answer.status_code, answer.json()["code"]) == (422, "network_failed"), answer.text
    assert "more memory than 1073741824 bytes" in answer.json()["detail"]
    assert gateway.get("/v1/networks").json()["items"] == []

    made = send(gateway, nets.slow(400)).json()["id"]
    rows = {"data": FORM | {"network_id": made}, "files": {"file": ("people.npz", npz(rows=40, features=nets.WIDTH))}}
    with limited(gateway, installation, network_seconds=1e-4) as hasty:
        answer = hasty.post("/v1/datasets", **rows)
        assert (answer.status_code, answer.json()["code"]) == (422, "network_failed"), answer.text
        assert "longer than 0.0001 seconds" in answer.json()["detail"]
        monkeypatch.setattr(process, "_STARTS_WITHIN", 0.1)  # seconds in which no process starts
        answer = send(hasty, nets.linear())
        assert (answer.status_code, answer.json()["code"]) == (422, "network_failed"), answer.text
    assert gateway.get("/v1/datasets").json()["items"] == []
    assert [one["id"] for one in gateway.get("/v1/networks").json()["items"]] == [made]


def test_texts_that_no_certificate_can_state_are_refused(gateway: TestClient) -> None:
    """A licence of two lines, or of white space, is refused before anything is stored."""
    for licence in ("MIT\nand more", " "):
        assert send(gateway, nets.linear(), licence=licence).json()["code"] == "network_invalid"


def test_features_are_those_of_the_row_alone() -> None:
    """A row has bit by bit the same features wherever it stands, and are those of numpy up to rounding."""
    with process.examined(nets.linear(), LIMITS) as encoder:
        found = encoder.encode(ROWS)
        backwards = encoder.encode(ROWS[::-1])[::-1]
        alone = np.concatenate([encoder.encode(row[None]) for row in ROWS])
    assert np.array_equal(found, backwards)
    assert np.array_equal(found, alone)
    np.testing.assert_allclose(found, np.maximum(ROWS.astype(np.float32) @ WEIGHTS, 0), rtol=1e-5, atol=1e-6)


def test_a_network_that_was_examined_starts_again() -> None:
    """A process that is started later computes bit by bit the same."""
    with process.examined(nets.linear(), LIMITS) as encoder:
        found, size = encoder.encode(ROWS), encoder.facts["batch_size"]
        assert encoder.facts["shut_in"] is True
    with process.started(nets.linear(), input_size=nets.WIDTH, batch_size=size, limits=LIMITS) as again:
        assert np.array_equal(again.encode(ROWS), found)
        with pytest.raises(ValueError, match="70, 5"):
            again.encode(ROWS[:, :5])


def test_time_and_memory_end() -> None:
    """A network that takes too long, or more memory than it may, ends with its process and is named as such."""
    hasty, poor = (Limits(memory_bytes=most, seconds=s) for most, s in ((2**33, 0.01), (2**30, 60.0)))
    with (
        process.started(nets.slow(), input_size=nets.WIDTH, batch_size=32, limits=hasty) as encoder,
        pytest.raises(NetworkFailed, match=r"longer than 0\.01 seconds"),
    ):
        encoder.encode(ROWS)
    with (
        process.started(nets.slow(60_000), input_size=nets.WIDTH, batch_size=32, limits=poor) as encoder,
        pytest.raises(NetworkFailed, match=r"more memory than 1073741824 bytes"),
    ):
        encoder.encode(ROWS)


def test_a_damaged_file_is_not_used(gateway: TestClient, installation: Installation) -> None:
    """A file that somebody changed in the database is not given out."""
    made = send(gateway, nets.linear()).json()
    with installation.database.writing() as session:
        session.execute(sa.update(NetworkPiece).values(content=nets.linear(2.0)))
    assert gateway.get(f"/v1/networks/{made['id']}/file").json()["code"] == "database_damaged"


def test_a_process_that_is_shut_in_reaches_nothing() -> None:
    """Behind the walls no socket, file or program can be opened, in Python or below it; a pipe that is open works."""
    program = """
import ctypes, os, socket, subprocess, sys
from app.encoders import sandbox
assert sandbox.enter(memory_bytes=2**33)
tried = (
    lambda: socket.socket(),
    lambda: open("/etc/hostname"),
    lambda: os.open("/tmp/made", os.O_CREAT | os.O_WRONLY),
    lambda: os.unlink("/tmp/made"),
    lambda: os.execv("/bin/true", ["true"]),
)
refused = 0
for attempt in tried:
    try:
        attempt()
    except PermissionError:
        refused += 1
libc = ctypes.CDLL(None, use_errno=True)
refused += libc.socket(2, 1, 0) == -1
try:
    bytearray(2**34)
except MemoryError:
    refused += 1
os.write(1, str(refused).encode())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, env=dict(os.environ), check=False)
    assert done.stdout == b"7", done.stderr.decode()
