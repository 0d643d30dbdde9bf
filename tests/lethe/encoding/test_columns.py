"""Each kind of column is encoded as its schema states, whatever form its values have."""

import datetime
import json
import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from lethe.contract.problems import InputInvalid, RowInvalid, SchemaInvalid
from lethe.encoding import columns
from lethe.encoding.columns import MAX_TEXT_LENGTH, Column, Faults
from lethe.encoding.rows import Schema
from lethe.encoding.schema import parse_schema, stored
from tests.records import encode_records
from tests.tables import each

LABEL = {"role": "label", "values": ["no", "yes"]}
KINDS: dict[str, dict[str, Any]] = {
    "numeric": {"min": 0, "max": 10, "knots": [0, 1, 4, 10], "unknown": "null"},
    "standard": {"center": 5, "scale": 2, "unknown": "null"},
    "datetime": {"min": "2000-01-01", "max": "2010-01-01", "outside": "clip", "unknown": "null"},
    "categorical": {"values": ["a", "b"], "unknown": "null"},
    "hashed": {"features": 16, "unknown": "null"},
    "text": {"features": 64, "words": [1, 2], "characters": [3, 4], "unknown": "null"},
    "vector": {"length": 3, "center": [1, 2, 3], "scale": 2, "clip": 1.5},
}
ALL = parse_schema({"columns": {"y": LABEL} | {kind: {"kind": kind, **said} for kind, said in KINDS.items()}})
numbers = st.floats(0, 10)
moments = st.datetimes(timezones=st.none() | st.just(datetime.UTC))
records = st.fixed_dictionaries(
    {
        "numeric": st.none() | numbers | numbers.map(repr) | st.integers(0, 10) | st.just(math.nan),
        "standard": st.none() | st.floats(allow_nan=False, allow_infinity=False),
        "datetime": st.none() | moments.map(datetime.datetime.isoformat),
        "categorical": st.none() | st.sampled_from("ab") | st.text(),
        "hashed": st.none() | st.text(),
        "text": st.none() | st.text(),
        "vector": st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=3, max_size=3),
    }
)


def column(kind: str, **said: Any) -> Column:
    found: Column = parse_schema({"columns": {"y": LABEL, "c": {"kind": kind, **said}}}).features[0]
    return found


def features(kind: str, values: Any, **said: Any) -> Any:
    faults = Faults.in_records()
    found, _ = column(kind, **said).encode(values, faults)
    faults.refuse()
    return found


@given(st.lists(records, min_size=1, max_size=5))
def test_rows_have_norm_at_most_one(found: list[dict[str, Any]]) -> None:
    """For any values in columns of every kind, an encoded row has a norm at or just below 1, and its last feature is a
    positive bias."""
    rows = encode_records(ALL, found)
    assert rows.shape == (len(found), ALL.num_features + 1)
    norms = np.sqrt(np.square(rows, dtype=np.float64).sum(axis=1))
    assert ((norms > 1 - 2e-6) & (norms <= 1)).all()
    assert (rows[:, -1] > 0).all()


@given(st.lists(records, min_size=2, max_size=5))
def test_a_row_depends_only_on_its_record(found: list[dict[str, Any]]) -> None:
    """A record is encoded in the same way alone and together with other records, so that no row contains traces of
    other people."""
    alone = [encode_records(ALL, [record])[0] for record in found]
    np.testing.assert_array_equal(encode_records(ALL, found), alone)


def test_schemas_round_trip() -> None:
    """A stored schema with any kind of column and any setting is read back unchanged."""
    assert stored(json.loads(json.dumps(ALL.to_json()))) == ALL


def test_numbers_are_standardised() -> None:
    """A number is encoded as its distance from the centre, divided by the scale and clipped. A missing number is
    encoded as 0 and flagged."""
    found = features("standard", [5, 7, 4, 1e9, None], center=5, scale=2, unknown="null")
    np.testing.assert_array_equal(found, [[0, 0], [1, 0], [-0.5, 0], [3, 0], [0, 1]])
    assert features("standard", [-100], center=0, scale=1, clip=2).tolist() == [[-2.0]]
    assert features("standard", [-1.7e308], center=3, scale=0.5, clip=2).tolist() == [[-2.0]]


@given(st.floats(-5, 15))
def test_knots_interpolate_linearly(number: float) -> None:
    """A spline's features lie in [0, 1] and sum to 1, and the knots, weighted by these features, sum to the number."""
    knots = [0.0, 1.0, 4.0, 10.0]
    (found,) = features("numeric", [number], min=0, max=10, outside="clip", knots=knots)
    assert ((found >= 0) & (found <= 1)).all()
    assert math.isclose(found.sum(), 1)
    assert math.isclose(found @ knots, min(max(number, 0), 10), abs_tol=1e-12)


def test_nanosecond_times_are_read() -> None:
    """Nanosecond timestamps from pandas and Parquet are read to the microsecond, like Python datetimes, regardless of
    which other packages are installed."""
    for zone in (None, "Europe/Berlin"):
        column = pa.array([1_500_000_001, None], pa.timestamp("ns", zone))
        assert columns.seconds(column)[0] == 1.5
        assert type(columns.listed(column)[0]) is datetime.datetime
        assert math.isnan(columns.seconds(column)[1])


def test_times_are_encoded_as_positions() -> None:
    """A date or time, in any format and time zone, is encoded as its position between the declared minimum and
    maximum."""
    said = {"min": "2000-01-01", "max": "2000-01-03"}
    noon = datetime.datetime(2000, 1, 2, 12, tzinfo=datetime.UTC)
    forms = ["2000-01-02T12:00:00", "2000-01-02T14:00:00+02:00", noon, noon.replace(tzinfo=None)]
    assert features("datetime", forms, **said).tolist() == [[0.75]] * 4
    assert features("datetime", pa.array([noon, noon]), **said).tolist() == [[0.75]] * 2
    assert features("datetime", pa.array([datetime.date(2000, 1, 2)]), **said).tolist() == [[0.5]]
    for wrong in ("yesterday", 946684800, "1999-12-31", None):
        with pytest.raises(InputInvalid):
            features("datetime", [wrong], **said)


def test_texts_are_hashed() -> None:
    """Equal texts get the same feature, a missing text gets none, and a large number of texts uses almost all
    features."""
    found = features("hashed", ["Berlin", "Berlin", 7, "7", None], features=32, unknown="null")
    assert found.sum(axis=1).tolist() == [1, 1, 1, 1, 0]
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[2], found[3])
    assert features("hashed", [f"city {one}" for one in range(1000)], features=32).any(axis=0).all()


def test_hashes_of_texts_never_change() -> None:
    """The hashes of known texts are unchanged, because stored datasets depend on them."""
    (found,) = features("hashed", ["Berlin"], features=1000)
    assert np.flatnonzero(found).tolist() == [645]
    (found,) = features("text", ["good day"], features=1000)
    assert {place: round(found[place], 6) for place in np.flatnonzero(found).tolist()} == {
        72: 0.57735,
        573: 0.57735,
        960: -0.57735,
    }


def test_texts_have_norm_one() -> None:
    """The features of a text have norm 1 and ignore case and punctuation. The order of words matters only if n-grams
    are used."""
    said = {"features": 4096, "unknown": "null"}
    found = features("text", ["Good day, Ann!", "good DAY ann", "day good ann", "...", None], **said)
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), [1, 1, 1, 0, 0])
    np.testing.assert_array_equal(found[0], found[1])
    assert 0.5 < found[0] @ found[2] < 0.99
    single = features("text", ["good day", "day good"], words=[1, 1], **said)
    np.testing.assert_array_equal(single[0], single[1])
    alike = features("text", ["colour", "colours"], words=None, characters=[3, 4], **said)
    assert 0.6 < alike[0] @ alike[1] < 1


def test_a_text_that_is_too_long_is_refused() -> None:
    """A text longer than the maximum length is refused, and the error names its position. A text of exactly that length
    is accepted."""
    assert features("text", ["a" * MAX_TEXT_LENGTH], features=8).any()
    with pytest.raises(InputInvalid, match="at most 65536 characters"):
        features("text", ["a" * (MAX_TEXT_LENGTH + 1)], features=8)


def test_vectors_are_accepted_in_every_form() -> None:
    """A list, a JSON list in a CSV cell, an Arrow list and an array give the same features, scaled and clipped as the
    schema specifies."""
    lists = [[1.0, 2.0, 3.0], [3.0, 0.0, 100.0]]
    expected = [[0, 0, 0], [1, -1, 1.5]]
    for form in (lists, [json.dumps(one) for one in lists], pa.array(lists), np.array(lists), np.array(lists, "f4")):
        np.testing.assert_array_equal(features("vector", form, **KINDS["vector"]), expected)


@each(
    "value",
    [[1.0, 2.0], [1.0, 2.0, math.nan], [1.0, None, 2.0], None, "[1,2", "x", 7, [[1], [2], [3]]],
)
def test_invalid_vectors_are_refused(value: object) -> None:
    """A list that has the wrong length or a missing element is refused, and so is a value of another type."""
    with pytest.raises(InputInvalid, match="list of 3 finite numbers"):
        features("vector", [value], length=3)


def test_a_bare_vector_may_be_the_record() -> None:
    """If the only column is a vector, a record for prediction can be a bare list without the column's name."""
    schema = parse_schema({"columns": {"y": LABEL, "e": {"kind": "vector", "length": 2}}})
    np.testing.assert_array_equal(encode_records(schema, [[1.0, 2.0]]), encode_records(schema, [{"e": [1.0, 2.0]}]))
    assert not ALL.takes_vectors


@each(
    ("kind", "said", "key"),
    [
        ("standard", {"center": 0}, "scale"),
        ("standard", {"center": 0, "scale": 0}, "scale"),
        ("standard", {"center": "0", "scale": 1}, "center"),
        ("standard", {"center": 0, "scale": 1, "clip": 0}, "clip"),
        ("standard", {"center": 0, "scale": 1, "min": 0}, "min"),
        ("numeric", {"min": 0, "max": 1, "knots": [0]}, "knots"),
        ("numeric", {"min": 0, "max": 1, "knots": [0.5, 0.2]}, "knots"),
        ("numeric", {"min": 0, "max": 1, "knots": [0, 2]}, "knots"),
        ("numeric", {"min": 0, "max": 1, "knots": 3}, "knots"),
        ("datetime", {"min": "2000-01-01", "max": "1999-01-01"}, "max"),
        ("datetime", {"min": "soon", "max": "1999-01-01"}, "min"),
        ("datetime", {"min": 0, "max": "2000-01-01"}, "min"),
        ("hashed", {}, "features"),
        ("hashed", {"features": 0}, "features"),
        ("hashed", {"features": True}, "features"),
        ("text", {"features": 70_000}, "features"),
        ("text", {"features": 8, "words": [2, 1]}, "words"),
        ("text", {"features": 8, "words": None}, "words"),
        ("text", {"features": 8, "characters": [3, 99]}, "characters"),
        ("vector", {}, "length"),
        ("vector", {"length": 2, "center": [1, 2, 3]}, "center"),
        ("vector", {"length": 2, "scale": [1, 0]}, "scale"),
        ("vector", {"length": 2, "unknown": "null"}, "unknown"),
    ],
)
def test_invalid_settings_of_a_kind_are_refused(kind: str, said: dict[str, Any], key: str) -> None:
    """A setting that is missing, out of range or meant for another kind of column is refused, and the error names its
    path."""
    with pytest.raises(SchemaInvalid) as refusal:
        column(kind, **said)
    assert [fault.path for fault in refusal.value.errors] == [f"columns.c.{key}"]


def test_missing_values_are_counted() -> None:
    """Missing values are counted in columns of every kind, so that a file in an unexpected format can be refused."""
    nothing: dict[str, Any] = {kind: [None, None] for kind in KINDS if kind != "vector"}
    found = ALL.encode_labelled(nothing | {"vector": [[0, 0, 0]] * 2, "y": ["no", "yes"]}, range(1, 3))
    assert found.num_unknown.tolist() == [0 if one.name == "vector" else 2 for one in ALL.features]


def test_a_fault_names_line_and_column() -> None:
    """An error in a file is reported by line and column, without quoting the value."""
    schema: Schema = parse_schema({"columns": {"y": LABEL, "v": {"kind": "vector", "length": 2}}})
    with pytest.raises(RowInvalid, match="line 8, column v: expected a list of 2 finite numbers") as refusal:
        schema.encode_labelled({"v": [[1, 2], [777]], "y": ["no", "yes"]}, [7, 8])
    assert "777" not in str(refusal.value)
