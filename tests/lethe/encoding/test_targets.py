"""Targets, numbers in a public range: declaration, storage and refusals."""

import io
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from app.rows import ingest
from lethe.contract.problems import RowInvalid, SchemaInvalid
from lethe.encoding.schema import parse_schema, parse_target, stored
from lethe.encoding.targets import MAX_COUNT, UNIT, TargetColumn, y_of_scores

SPEC: dict[str, Any] = {"role": "target", "min": 0, "max": 200}
COLUMNS: dict[str, Any] = {"age": {"kind": "numeric", "min": 0, "max": 100}, "cost": SPEC}
SCHEMA = parse_schema({"columns": COLUMNS})
CLIPPED = parse_schema({"columns": COLUMNS | {"cost": SPEC | {"outside": "clip"}}})


def faults_of(document: Any, **beside: Any) -> dict[str, str]:
    with pytest.raises(SchemaInvalid) as refusal:
        parse_schema(document, **beside)
    return {fault.path: fault.message for fault in refusal.value.errors}


# --- numbers ---------------------------------------------------------------------------------------------------------


@given(low=st.floats(-1e9, 1e9), width=st.floats(1e-3, 1e9), share=st.floats(0, 1))
def test_labels_round_trip_to_values(low: float, width: float, share: float) -> None:
    """A value in the range is stored as a label between -2^23 and 2^23, which float32 represents exactly. Reading it
    back gives the value to within half the spacing between adjacent labels."""
    target = TargetColumn(low=low, high=low + width)
    value = np.clip(np.array([low + share * width]), target.low, target.high)
    [label] = target.labels(value)
    assert -UNIT <= label <= UNIT
    assert np.float32(label) * np.float32(2.0**-23) == label / UNIT
    step = (target.high - target.low) / (2 * UNIT)
    assert target.values(np.array([label / UNIT])) == pytest.approx(value, abs=0.51 * step + 1e-15 * (abs(low) + width))


def test_the_ends_of_the_range_map_to_the_extreme_labels() -> None:
    """The minimum is stored as -2^23, the middle as 0 and the maximum as 2^23. A prediction beyond either end is moved
    to that end."""
    target = TargetColumn(low=0.0, high=200.0)
    assert target.labels(np.array([0.0, 100.0, 200.0])).tolist() == [-UNIT, 0, UNIT]
    assert target.values(np.array([-7.0, -1.0, 0.0, 0.5, 7.0])).tolist() == [0.0, 0.0, 100.0, 150.0, 200.0]


@given(bound=st.integers(1, MAX_COUNT), share=st.floats(0, 1))
def test_counts_round_trip(bound: int, share: float) -> None:
    """A count up to the largest possible bound is read back exactly from its label, and no two neighbouring counts
    share a label."""
    target, count = TargetColumn(low=0, high=bound, counts=True), round(share * bound)
    near = np.unique(np.clip([count - 1, count, count + 1], 0, bound)).astype(float)
    labels = target.labels(near)
    assert len(set(labels.tolist())) == len(near)
    assert np.rint(target.values(labels / UNIT)).tolist() == near.tolist()


@given(number=st.floats())
def test_a_malformed_count_is_refused(number: float) -> None:
    """Whole numbers from 0 to the bound are accepted, and so are larger ones with `clip`. All other values are
    refused."""
    is_count = math.isfinite(number) and number >= 0 and number == math.floor(number)
    for outside, right in (("error", is_count and number <= 9), ("clip", is_count)):
        target = TargetColumn.from_json({"min": 0, "max": 9, "outside": outside, "counts": True})
        assert target.wrong(np.array([number])).tolist() == [not right]
        assert TargetColumn.from_json(target.to_json()) == target


def test_schemas_of_counts_round_trip() -> None:
    """The schema of a count target states that it is a count. Schemas with other targets do not mention counts, and
    their stored form is the same as before counts were introduced."""
    counts = parse_schema({"columns": COLUMNS | {"cost": SPEC | {"counts": True}}})
    assert counts.target == TargetColumn(low=0.0, high=200.0, counts=True)
    assert stored(counts.to_json()) == counts
    plain = parse_schema({"columns": COLUMNS | {"cost": SPEC | {"counts": False}}})
    assert plain == SCHEMA
    assert "counts" not in json.dumps(plain.to_json())
    assert y_of_scores(np.array([0.5, 9.0]), objective="huber_regression", loss_width=0.2).tolist() == [0.5, 9.0]
    shares = (y_of_scores(np.array([2.0, 1.0, 9.0]), objective="poisson_regression", loss_width=2.0) + 1) / 2
    assert shares == pytest.approx([1.0, math.exp(-1), 1.0])


# --- declarations ----------------------------------------------------------------------------------------------------


def test_schemas_with_a_target_round_trip() -> None:
    """A schema with a target is stored with the target's range and the rule for values outside it, and is read back
    unchanged."""
    assert CLIPPED.target == TargetColumn(low=0.0, high=200.0, outside="clip")
    assert (CLIPPED.classes, CLIPPED.label) == ((), "cost")
    assert stored(CLIPPED.to_json()) == CLIPPED
    assert SCHEMA.to_json()["columns"]["cost"] == {"role": "target", "min": 0.0, "max": 200.0, "outside": "error"}  # type: ignore[index]


@pytest.mark.parametrize(
    ("columns", "path"),
    [
        ({"cost": {"role": "ignored"}}, "columns"),
        ({"kind": {"role": "label", "values": ["a", "b"]}}, "columns"),
        ({"other": SPEC}, "columns"),
        ({"cost": {"role": "target", "min": 0}}, "columns.cost.max"),
        ({"cost": SPEC | {"max": "200"}}, "columns.cost.max"),
        ({"cost": SPEC | {"min": 200}}, "columns.cost.max"),
        ({"cost": SPEC | {"outside": "drop"}}, "columns.cost.outside"),
        ({"cost": SPEC | {"unknown": "null"}}, "columns.cost.unknown"),
        ({"cost": SPEC | {"values": ["a"]}}, "columns.cost.values"),
    ],
)
def test_an_unusable_target_is_refused(columns: dict[str, Any], path: str) -> None:
    """A schema must have exactly one target column, and that column must have a range. An error about a missing or
    unknown field names the field's path."""
    assert path in faults_of({"columns": COLUMNS | columns})


def test_classes_with_a_target_are_refused() -> None:
    """Classes are refused if the schema already has a target."""
    assert "classes" in faults_of({"columns": COLUMNS}, classes=("a", "b"))


def test_a_schema_without_a_label_is_refused_with_advice() -> None:
    """The error for a schema without a label column explains how to declare a numeric target."""
    assert '"role": "target", "min"' in faults_of({"columns": {"age": COLUMNS["age"]}})["columns"]


@pytest.mark.parametrize("document", [[0, 1], {"min": 0}, {"min": 1, "max": 0}, SPEC, {"min": 0, "max": float("nan")}])
def test_a_range_without_a_schema_is_validated(document: Any) -> None:
    """The target range uploaded with vectors must be an object with two finite numbers."""
    with pytest.raises(SchemaInvalid) as refusal:
        parse_target(document)
    assert all(fault.path.startswith("target") for fault in refusal.value.errors)


# --- several labels --------------------------------------------------------------------------------------------------

LABELS: dict[str, Any] = {"role": "labels", "values": ["a", "b c", "7"], "separator": "|"}
SEVERAL = parse_schema({"columns": {"age": COLUMNS["age"], "tags": LABELS}})


def test_labels_of_a_cell_are_a_set(tmp_path: Path) -> None:
    """The labels in a cell form a set, so order and repetition do not matter. An empty cell is the empty set."""
    cells = ["a", "7|a", "a | b c|a", "", "b c", "7"]
    (tmp_path / "a.csv").write_text("".join(["age,tags\n", *(f"1,{cell}\n" for cell in cells)]))
    assert labels_of(tmp_path / "a.csv", schema=SEVERAL) == [1, 5, 3, 0, 2, 4]
    assert stored(SEVERAL.to_json()) == SEVERAL


@pytest.mark.parametrize("cell", ["d", "a|d", "a|", "A", "a,b c", "a||7"])
def test_an_unknown_label_is_located(tmp_path: Path, cell: str) -> None:
    """A file with an unknown label is refused, and the error names the label's location without quoting it."""
    (tmp_path / "a.csv").write_text(f'age,tags\n1,a\n2,"{cell}"\n')
    with pytest.raises(RowInvalid) as refusal:
        labels_of(tmp_path / "a.csv", schema=SEVERAL)
    [fault] = refusal.value.errors
    assert fault.path == "line 3, column tags"
    assert fault.message == "expected names in the schema, with | between them"


@pytest.mark.parametrize(
    ("changed", "path"),
    [
        ({"values": ["a"]}, "values"),
        ({"values": [f"{number}" for number in range(32)]}, "values"),
        ({"values": ["a", "b|c"]}, "values"),
        ({"values": ["a", " b"]}, "values"),
        ({"separator": ""}, "separator"),
        ({"separator": " "}, "separator"),
        ({"separator": "||"}, "separator"),
        ({"separator": 1}, "separator"),
        ({"unknown": "null"}, "unknown"),
    ],
)
def test_unusable_labels_are_refused(changed: dict[str, Any], path: str) -> None:
    """A column of labels needs 2 to 31 values, none of which contains the separator. Errors name the invalid part."""
    assert f"columns.tags.{path}" in faults_of({"columns": {"age": COLUMNS["age"], "tags": LABELS | changed}})


# --- values in files -------------------------------------------------------------------------------------------------


def labels_of(path: Path, **given: Any) -> list[int]:
    with path.open("rb", buffering=0) as file:
        batches = list(ingest.read(file, kind=ingest.kind_of(path.name), folder=path.parent, **given))
    return [label for batch in batches for label in batch.labels.tolist()]


def test_targets_are_read_and_clipped(tmp_path: Path) -> None:
    """Numbers are converted to labels, and a number outside the range is moved to the nearer end if the schema
    permits it."""
    (tmp_path / "a.csv").write_text("age,cost\n1,0\n2,150.0\n3,1e2\n4,250\n5,-1\n")
    assert labels_of(tmp_path / "a.csv", schema=CLIPPED) == [-UNIT, UNIT // 2, 0, UNIT, -UNIT]


@pytest.mark.parametrize("value", ["", "nan", "inf", "200.001", "-0.001", "cheap"])
def test_a_missing_target_is_located(tmp_path: Path, value: str) -> None:
    """A file with a target that is missing or out of range is refused, and the error names the location without quoting
    the value."""
    (tmp_path / "a.csv").write_text(f"age,cost\n1,5\n2,{value}\n")
    with pytest.raises(RowInvalid) as refusal:
        labels_of(tmp_path / "a.csv", schema=SCHEMA)
    [fault] = refusal.value.errors
    assert (fault.path, fault.message) == ("line 3, column cost", "expected a number from 0 to 200")


def vectors(folder: Path, y: Any) -> Path:
    buffer = io.BytesIO()
    np.savez(buffer, x=np.ones((len(y), 2)), y=y, subject=np.array([f"p{row}" for row in range(len(y))]))
    (folder / "a.npz").write_bytes(buffer.getvalue())
    return folder / "a.npz"


def test_vectors_can_have_targets(tmp_path: Path) -> None:
    """The targets in an npz file can be floats or integers if they lie within the range."""
    pytest.importorskip("app.features.npz")
    target = TargetColumn(low=0.0, high=200.0)
    for y in (np.array([0.0, 150.0], np.float32), np.array([0, 150])):
        assert labels_of(vectors(tmp_path, y), schema=None, target=target) == [-UNIT, UNIT // 2]
    with pytest.raises(RowInvalid) as refusal:
        labels_of(vectors(tmp_path, np.array([1.0, np.nan, 201.0])), schema=None, target=target)
    assert [fault.path for fault in refusal.value.errors] == ["line 2, column y", "line 3, column y"]
