"""Row weights: schema and storage."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from app.rows import ingest
from lethe.contract.problems import RowInvalid, SchemaInvalid
from lethe.encoding.rows import Weight, as_factors, labels_in, weights_in
from lethe.encoding.schema import is_same, parse_schema, stored
from lethe.encoding.targets import UNIT
from tests.records import encode_records

COLUMNS: dict[str, Any] = {
    "age": {"kind": "numeric", "min": 0, "max": 100},
    "ill": {"role": "label", "values": ["no", "yes"]},
    "w": {"role": "weight", "max": 8},
}
SCHEMA = parse_schema({"columns": COLUMNS})


@given(most=st.floats(1e-300, 1e300), share=st.floats(0, 1))
def test_stored_weights_are_at_most_one(most: float, share: float) -> None:
    """A weight is stored as its fraction of the bound, from 0 to 1, rounded to the nearest number that can be
    stored."""
    weight = Weight(column="w", bound=most)
    number = np.array([min(share * most, most)])
    assert not weight.wrong(number).any()
    [factor] = as_factors(weight.stored(number)).tolist()
    assert 0 <= factor <= 1
    assert abs(factor - number[0] / most) <= 0.5 / UNIT
    assert as_factors(weight.stored(np.array([most]))).tolist() == [1.0]


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf, -1e-300, 8.0000001])
def test_a_malformed_weight_is_refused(number: float) -> None:
    """A weight that is missing, infinite or negative is refused; a weight above the bound is refused unless the
    schema clips it."""
    assert SCHEMA.weight
    assert SCHEMA.weight.wrong(np.array([number])).all()
    clipping = Weight(column="w", bound=8, outside="clip")
    assert clipping.wrong(np.array([number])).any() == (not 8 < number < np.inf)


def test_weights_are_read_from_every_kind_of_file(tmp_path: Path) -> None:
    """CSV and npz files give the same labels and weights, and a file without the weight column is refused."""
    (tmp_path / "a.csv").write_text("age,ill,w\n1,no,0\n2,yes,8\n3,yes,2.5\n")
    pytest.importorskip("app.features.npz")
    table = {"age": [1, 2, 3], "ill": ["no", "yes", "yes"], "w": [0.0, 8.0, 2.5]}
    np.savez(tmp_path / "a.npz", **{name: np.array(column) for name, column in table.items()})  # type: ignore[arg-type]
    for file in ("a.csv", "a.npz"):
        found = read(tmp_path / file)
        assert labels_in(found).tolist() == [0, 1, 1]
        weights = weights_in(found)
        assert weights is not None
        assert weights.tolist() == [0, UNIT, 2.5 / 8 * UNIT]
    (tmp_path / "b.csv").write_text("age,ill\n1,no\n")
    with pytest.raises(SchemaInvalid, match="column w"):
        read(tmp_path / "b.csv")
    (tmp_path / "c.csv").write_text("age,ill,w\n1,no,\n2,no,9\n")
    with pytest.raises(RowInvalid) as refusal:
        read(tmp_path / "c.csv")
    assert [fault.path for fault in refusal.value.errors] == ["line 2, column w", "line 3, column w"]


def read(path: Path) -> Any:
    file: io.RawIOBase = path.open("rb", buffering=0)
    batches = ingest.read(file, kind=ingest.kind_of(path.name), schema=SCHEMA, folder=path.parent)
    return np.concatenate([batch.labels for batch in batches])


@pytest.mark.parametrize(
    ("changed", "path"),
    [
        ({"max": 0}, "max"),
        ({"max": -1}, "max"),
        ({"max": None}, "max"),
        ({"max": "much"}, "max"),
        ({"min": 1}, "min"),
        ({"outside": "error?"}, "outside"),
    ],
)
def test_a_malformed_bound_is_refused(changed: dict[str, Any], path: str) -> None:
    """A bound that is missing, infinite or not above 0 is refused with a specific error."""
    with pytest.raises(SchemaInvalid) as refusal:
        parse_schema({"columns": COLUMNS | {"w": COLUMNS["w"] | changed}})
    assert [fault.path for fault in refusal.value.errors] == [f"columns.w.{path}"]


def test_two_weight_columns_are_refused() -> None:
    """A schema with two weight columns is refused."""
    with pytest.raises(SchemaInvalid, match="at most one weight"):
        parse_schema({"columns": COLUMNS | {"v": COLUMNS["w"]}})


def test_schemas_with_weights_round_trip() -> None:
    """A weight column is read back from the stored schema. Evaluation data must have the same other columns but can
    omit the weights, and records for prediction need no weights."""
    document = SCHEMA.to_json()
    assert stored(document) == SCHEMA
    without = parse_schema({"columns": {name: COLUMNS[name] for name in ("age", "ill")}})
    assert is_same(document, without.to_json())
    with_weight, without_weight = [{"age": 3, "w": 100}], [{"age": 3}]
    assert encode_records(SCHEMA, with_weight).tolist() == encode_records(SCHEMA, without_weight).tolist()
