"""Models as ONNX files: onnxruntime predicts what the gateway does, and the gateway records the export."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given, strategies as st

from lethe import Client
from lethe.contract.problems import InputInvalid, ModelNotLive
from lethe.encoding.schema import parse_schema
from lethe.errors import NotExpressible
from lethe.features.handover.onnx import GraphBuilder, columns, export, require_expressible, row
from tests.conftest import npz
from tests.features.networks import nets
from tests.records import encode_records

Work = Callable[[], int]

COLUMNS: dict[str, Any] = {
    "age": {"kind": "numeric", "min": 10, "max": 90},
    "bent": {"kind": "numeric", "min": 0, "max": 8, "outside": "clip", "knots": [0, 1, 2.5, 8], "unknown": "null"},
    "home": {"kind": "categorical", "values": ["x", "007", "z"], "unknown": "null"},
    "point": {"kind": "vector", "length": 2, "center": [1, 0], "scale": [2, 3], "clip": 4},
    "rate": {"kind": "standard", "center": 3, "scale": 0.5, "unknown": "null"},
    "work": {"kind": "categorical", "values": ["a", "b"]},
    "y": {"role": "label", "values": ["no", "yes"]},
}
SCHEMA = parse_schema({"columns": COLUMNS})
NUMBERS = st.none() | st.floats() | st.sampled_from([10.0, 90.0, 2.5, 1.0, 0.0])


def run(model: Any, feeds: dict[str, Any]) -> Any:
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (found,) = session.run(None, feeds)
    return found


def fed(records: list[dict[str, Any]], columns: dict[str, Any] = COLUMNS) -> dict[str, Any]:
    """Return a file's inputs for records, keyed by column name."""
    feeds: dict[str, Any] = {}
    for name, column in columns.items():
        values = [record.get(name) for record in records]
        if column.get("kind") == "categorical":
            feeds[name] = np.array([["" if value is None else value] for value in values], dtype=object)
        elif column.get("kind") == "vector":
            feeds[name] = np.array(values, dtype=np.float64)
        elif "kind" in column:
            feeds[name] = np.array([[math.nan if value is None else value] for value in values], dtype=np.float64)
    return feeds


@pytest.fixture(scope="module")
def encoder() -> Any:
    graph = GraphBuilder()
    encoded = row(graph, columns(graph, SCHEMA), SCHEMA.num_features, large=True)
    return graph.finished("probabilities", encoded, SCHEMA.num_features + 1)


@given(
    record=st.fixed_dictionaries(
        {
            "age": NUMBERS | st.floats(10, 90),
            "bent": NUMBERS | st.floats(-1, 9),
            "home": st.sampled_from([None, "x", "007", "z", "7"]),
            "point": st.lists(st.floats(), min_size=2, max_size=2),
            "rate": NUMBERS | st.floats(0, 6),
            "work": st.sampled_from(["a", "b"]) | st.sampled_from([None, "c"]),
        }
    )
)
def test_records_are_encoded_as_the_gateway_encodes_them(encoder: Any, record: dict[str, Any]) -> None:
    """A record that the gateway would refuse is encoded as NaN, and every other record is encoded to the same row that
    the gateway produces."""
    record = {name: None if value != value else value for name, value in record.items()}
    try:
        expected = encode_records(SCHEMA, [record])
    except InputInvalid:
        expected = np.full((1, SCHEMA.num_features + 1), np.nan)
    np.testing.assert_allclose(run(encoder, fed([record])), expected, rtol=1e-6, atol=1e-12)


def test_unsupported_columns_are_named() -> None:
    """Columns that ONNX cannot encode, columns named like an output, and random features are refused with a specific
    error."""
    columns = {
        "born": {"kind": "datetime", "min": "1900-01-01", "max": "2020-01-01"},
        "note": {"kind": "text", "features": 64},
        "value": COLUMNS["age"],
        "age": COLUMNS["age"],
        "y": COLUMNS["y"],
    }
    schema = {"columns": columns, "random_features": {"features": 4, "seed": 1, "scale": 1.0}}
    with pytest.raises(NotExpressible, match=r"lethe\.mlflow") as refused:
        require_expressible(parse_schema(schema))
    assert [one.path for one in refused.value.errors] == [
        "columns.born",
        "columns.note",
        "columns.value",
        "random_features",
    ]


LEARNED: dict[str, tuple[str | None, dict[str, Any]]] = {
    "binary": (None, {"role": "label", "values": ["no", "yes"]}),
    "hinge": ("smoothed_hinge", {"role": "label", "values": ["no", "yes"]}),
    "classes": (None, {"role": "label", "values": ["no", "yes", "maybe"]}),
    "labels": (None, {"role": "labels", "values": ["no", "yes"]}),
    "target": (None, {"role": "target", "min": 20, "max": 340}),
    "counts": (None, {"role": "target", "min": 0, "max": 10, "counts": True}),
}
USED = {name: COLUMNS[name] for name in ("age", "bent", "home", "rate", "work")}


def table(names: list[str]) -> str:
    """Return a CSV file of sixty records with these labels or counts, or with a numeric target if `names` is empty."""
    generator = np.random.default_rng(1)
    lines = [",".join([*USED, "y"])]
    for place in range(60):
        age, bent, rate = generator.uniform((10, 0, 1), (90, 8, 5)).tolist()
        home, work = ["x", "007", "z", ""][place % 4], "ab"[place % 2]
        y: object = names[place % len(names)] if names else age + 100
        lines.append(f"{age},{bent if place % 7 else ''},{home},{rate},{work},{y}")
    return "\n".join(lines)


def test_exported_table_models_match_the_gateway(client: Client, work: Work, tmp_path: Path) -> None:
    """The exported file takes columns as input and returns the same probabilities, values or labels as the gateway. Its
    metadata names the version, and the gateway records the export."""
    models = {}
    for kind, (objective, learned) in LEARNED.items():
        (tmp_path / "t.csv").write_text(table(["0", "2", "10"] if "counts" in learned else learned.get("values", [])))
        dataset = client.datasets.upload(tmp_path / "t.csv", schema={"columns": USED | {"y": learned}})
        models[kind] = client.models.create(name=kind, dataset_id=dataset.id, l2=0.05, objective=objective).id
    work()
    records = [
        {"age": 10, "bent": None, "home": "z", "rate": 2.0, "work": "a"},
        {"age": 55.5, "bent": 1.7, "home": None, "rate": 9.0, "work": "b"},
        {"age": 90, "bent": 7.9, "home": "other", "rate": None, "work": "b"},
    ]
    for kind, model_id in models.items():
        exported = export(client, model_id, tmp_path / "m.onnx")
        file = onnx.load(tmp_path / "m.onnx")
        said = {one.key: one.value for one in file.metadata_props}
        assert (said["lethe.model_id"], said["lethe.version"]) == (model_id, "1")
        assert said["lethe.weights_sha256"] == client.models.version(model_id, 1).weights_sha256
        assert "Copies of weights made before" in said["lethe.limits"]
        assert exported.inputs == tuple(USED)
        assert [one.version for one in client.models.exports(model_id)] == [1]
        predictions: Any = client.models.predictions(model_id, records=records).predictions
        found = run(file, fed(records, USED))
        if kind == "hinge":
            assert ["yes" if score > 0 else "no" for score in found[:, 0]] == [one.label for one in predictions]
        elif kind in ("target", "counts"):
            np.testing.assert_allclose(found[:, 0], [one.value for one in predictions], rtol=1e-5)
        else:
            classes = json.loads(said["lethe.classes"])
            expected = [[one.probabilities[name] for name in classes] for one in predictions]
            np.testing.assert_allclose(found, expected, rtol=1e-5, err_msg=kind)


def test_a_network_and_its_head_are_one_file(client: Client, work: Work, tmp_path: Path) -> None:
    """The exported file of a model on a frozen network takes the network's input, states its opset, digest and licence,
    and returns NaN for input that is not finite. A model without a version and a tangent model cannot be exported, and
    no file is written."""
    (tmp_path / "small.onnx").write_bytes(nets.linear())
    (tmp_path / "people.npz").write_bytes(npz(features=nets.WIDTH, classes=nets.OUT))
    network = client.networks.upload(tmp_path / "small.onnx", licence="CC0-1.0", provenance="Drawn numbers.")
    classes = [str(place) for place in range(nets.OUT)]
    plain = client.datasets.upload(tmp_path / "people.npz", classes=classes)
    dataset = client.datasets.upload(tmp_path / "people.npz", classes=classes, network_id=network.id)
    model = client.models.create(name="m", dataset_id=dataset.id, l2=0.05)
    work()
    exported = export(client, model.id, tmp_path / "m.onnx")
    assert (exported.inputs, exported.output) == (("x",), "probabilities")
    file = onnx.load(tmp_path / "m.onnx")
    said = {one.key: one.value for one in file.metadata_props}
    assert (said["lethe.network_sha256"], said["lethe.network_licence"]) == (network.sha256, "CC0-1.0")
    assert f"public network of SHA-256 {network.sha256}" in said["lethe.limits"]
    records = np.random.default_rng(5).normal(size=(40, nets.WIDTH)).astype(np.float32)
    predictions = client.models.predictions(model.id, records=records.tolist()).predictions
    expected = [list(one.probabilities.values()) for one in predictions]
    np.testing.assert_allclose(run(file, {"x": records}), expected, rtol=1e-5)
    records[1, 2] = np.inf
    assert np.isnan(run(file, {"x": records})).all(axis=1).tolist() == [row == 1 for row in range(40)]

    for made in ({}, {"tangent": {"network_id": network.id, "layers": ["w"]}}):
        other = client.models.create(name="m", dataset_id=plain.id, l2=0.05, **made)
        with pytest.raises(NotExpressible if made else ModelNotLive):
            export(client, other.id, tmp_path / "other.onnx")
        assert (list(client.models.exports(other.id)), (tmp_path / "other.onnx").exists()) == ([], False)
