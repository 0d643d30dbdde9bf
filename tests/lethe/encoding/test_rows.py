import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from benchmarks.vectors import encode_vectors
from lethe.contract.problems import DatasetUnusable, InputInvalid, RowInvalid, SchemaInvalid
from lethe.encoding import columns as values, rows as encoding, schema as schemas
from lethe.encoding.rows import SHRINK, Schema
from lethe.encoding.schema import parse_schema
from tests.records import encode_records
from tests.tables import each

ADULT = Path(__file__).parents[3] / "examples" / "adult"
AGE = {"kind": "numeric", "min": 0, "max": 100}
WORK = {"kind": "categorical", "values": ["none", "some"]}
INCOME = {"role": "label", "values": ["<=50K", ">50K"]}


def schema_of(**columns: object) -> Schema:
    return parse_schema({"columns": {"income": INCOME, **columns}})


FORGIVING = schema_of(
    age={**AGE, "outside": "clip", "unknown": "null"}, work={**WORK, "unknown": "null"}, person={"role": "subject"}
)


def norms(features: encoding.Features) -> Any:
    return np.sqrt(np.square(features.astype(np.float64)).sum(axis=1))


# --- the schema ------------------------------------------------------------------------------------------------------


def test_schemas_round_trip() -> None:
    """A schema with every kind of column and every rule is unchanged after it is written as JSON and parsed again."""
    schema = parse_schema(json.loads((ADULT / "schema.json").read_text()))
    assert parse_schema(json.loads(json.dumps(schema.to_json()))) == schema
    assert schema.num_features == 104
    assert schema.classes == ("<=50K", ">50K")
    assert schema.subject == "person"
    assert schema.ignored == ("fnlwgt",)


def test_the_order_of_json_keys_does_not_matter() -> None:
    """Features are ordered by name, so that a store can reorder JSON objects without changing the encoding."""
    document = json.loads((ADULT / "schema.json").read_text())
    backwards = {"columns": dict(reversed(document["columns"].items()))}
    assert parse_schema(backwards) == parse_schema(document)


@each(
    ("columns", "path"),
    [
        ({"age": AGE}, "columns"),
        ({"income": INCOME}, "columns"),
        ({"age": AGE, "income": INCOME, "wage": INCOME}, "columns"),
        ({"age": AGE, "income": INCOME, "a": {"role": "subject"}, "b": {"role": "subject"}}, "columns"),
        ({"age": AGE, "income": INCOME, "": {"role": "ignored"}}, "columns"),
        ({"age": AGE, "income": INCOME, "\ud800": {"role": "ignored"}}, "columns"),
        ({"age": {**AGE, "colour": 1}, "income": INCOME}, "columns.age.colour"),
        ({"age": {**AGE, "role": "label"}, "income": INCOME}, "columns.age.role"),
        ({"age": {**AGE, "min": 100}, "income": INCOME}, "columns.age.max"),
        ({"age": {**AGE, "min": "0"}, "income": INCOME}, "columns.age.min"),
        ({"age": {**AGE, "min": True}, "income": INCOME}, "columns.age.min"),
        ({"age": {"kind": "numeric", "min": 0}, "income": INCOME}, "columns.age.max"),
        ({"age": {**AGE, "max": math.nan}, "income": INCOME}, "columns.age.max"),
        ({"age": {**AGE, "max": 10**400}, "income": INCOME}, "columns.age.max"),
        ({"age": {"kind": "numeric", "min": -1e308, "max": 1e308}, "income": INCOME}, "columns.age.max"),
        ({"age": {**AGE, "outside": "wrap"}, "income": INCOME}, "columns.age.outside"),
        ({"age": {**AGE, "unknown": None}, "income": INCOME}, "columns.age.unknown"),
        ({"age": {"kind": "ordinal"}, "income": INCOME}, "columns.age"),
        ({"age": [], "income": INCOME}, "columns.age"),
        ({"work": {"kind": "categorical"}, "income": INCOME}, "columns.work.values"),
        ({"work": {**WORK, "values": []}, "income": INCOME}, "columns.work.values"),
        ({"work": {**WORK, "values": ["a", "a"]}, "income": INCOME}, "columns.work.values"),
        ({"work": {**WORK, "values": ["a", ""]}, "income": INCOME}, "columns.work.values"),
        ({"work": {**WORK, "values": ["a", 1]}, "income": INCOME}, "columns.work.values"),
        ({"age": AGE, "income": {"role": "label", "values": ["one"]}}, "columns.income.values"),
        ({"age": AGE, "income": {"role": "label", "values": ["one", "one"]}}, "columns.income.values"),
    ],
)
def test_a_malformed_schema_is_refused_by_path(columns: dict[str, object], path: str) -> None:
    """A schema with a missing, unknown, empty or contradictory part is refused, and the error names the part's path."""
    with pytest.raises(SchemaInvalid) as refusal:
        parse_schema({"columns": columns})
    assert path in [fault.path for fault in refusal.value.errors]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["columns", "kind", "role", "values", "min", "max", "unknown"]) | st.text(max_size=3),
            inner | st.sampled_from(["numeric", "categorical", "label", "subject", "ignored", "null"]),
            max_size=5,
        )
    ),
    max_leaves=20,
)


@given(json_values | st.fixed_dictionaries({"columns": json_values}))
def test_any_document_is_parsed_or_refused(document: object) -> None:
    """Any JSON document is either parsed as a schema or refused with a `SchemaInvalid` whose errors can be encoded as
    text."""
    try:
        parse_schema(document)
    except SchemaInvalid as refusal:
        for fault in refusal.errors:
            fault.path.encode()


# --- encoding --------------------------------------------------------------------------------------------------------


def test_a_record_is_encoded_by_the_schema() -> None:
    """A number is encoded as its position in the range and a category as a one-hot vector. A bias follows, and the row
    has norm 1."""
    schema = schema_of(age=AGE, work=WORK)
    (row,) = schema.encode({"age": ["25"], "work": ["some"]})
    expected = np.array([0.25, 0, 1, 1]) / np.sqrt(0.0625 + 2)
    np.testing.assert_allclose(row, SHRINK * expected, rtol=1e-7)
    assert row.dtype == np.float32


def test_a_missing_number_differs_from_the_lowest() -> None:
    """With "unknown": "null", a missing number or NaN sets a feature of its own, and the features of an unknown
    category are all zero."""
    columns = {"age": ["", None, "NaN", math.nan], "work": ["", None, "else", math.nan]}
    missing = SHRINK * np.array([0, 1, 0, 0, 1]) / np.sqrt(2)
    np.testing.assert_allclose(FORGIVING.encode(columns), [missing] * 4, rtol=1e-7)
    np.testing.assert_array_equal(FORGIVING.encode({"age": [0], "work": [None]}), [[0, 0, 0, 0, np.float32(SHRINK)]])
    assert (FORGIVING.num_features, schema_of(age=AGE, work=WORK).num_features) == (4, 3)


def test_an_old_schema_keeps_its_encoding() -> None:
    """A stored schema without an edition uses the first edition. It encodes a missing number as the lowest one, matches
    categories by text alone, and accepts any number of unknown values."""
    columns = {"age": {**AGE, "unknown": "null"}, "y": {**WORK, "values": ["1", "2"], "unknown": "null"}}
    first = schemas.stored({"columns": columns | {"income": INCOME}})
    np.testing.assert_array_equal(
        first.encode({"age": [None, 0], "y": [1.0, "1.0"]}), [[0, 0, 0, np.float32(SHRINK)]] * 2
    )
    first.check_known(np.array([2, 2]), 2)
    assert schemas.stored(first.to_json()) == first
    written_out = {"encoding": 1, "columns": columns | {"income": INCOME}, "max_unknown": 1}
    assert schemas.is_same({"columns": columns | {"income": INCOME}}, parse_schema(written_out).to_json())
    assert not schemas.is_same(first.to_json(), parse_schema({"columns": columns | {"income": INCOME}}).to_json())


@pytest.mark.parametrize(
    ("values", "found"),
    [
        (
            ["1", "2", "3"],
            [
                ("2", 1),
                (2, 1),
                (2.0, 1),
                ("2.0", 1),
                ("2.00", 1),
                ("+2", 1),
                ("2e0", 1),
                ("02", -1),
                ("2.5", -1),
                (True, -1),
            ],
        ),
        (
            ["0.5", "1e3", "-4"],
            [(0.5, 0), ("0.50", 0), (1000, 1), ("1000.0", 1), (-4.0, 2), ("4", -1), ("", -1), (math.inf, -1)],
        ),
        (["3", "3.0", "4"], [("3", 0), ("3.0", 1), (3, 0), (3.0, -1), ("3.00", -1), (4.0, 2)]),
        (["007", "8"], [("7", -1), (7, -1), ("007", 0), ("8.0", 1)]),
        (["true", "1"], [(True, 0), (1, 1), (1.0, 1), ("True", -1)]),
        (["9007199254740993"], [("9007199254740993.0", 0), (2.0**53, -1), (9007199254740993, 0)]),
    ],
)
def test_numeric_categories_match_equal_values(values: list[str], found: list[tuple[object, int]]) -> None:
    """A numeric category matches equal values of any type, unless the category has leading zeros or equals another
    category."""
    column = {"kind": "categorical", "values": values, "unknown": "null"}
    rows = schema_of(work=column).encode({"work": [value for value, _ in found]})
    codes = [int(row[:-1].argmax()) if row[:-1].any() else -1 for row in rows]
    assert codes == [code for _, code in found]


def test_integers_read_as_floats_match_their_categories() -> None:
    """Integers that a tool converted to floats because a value was missing still match their categories and labels."""
    column = {**WORK, "values": ["1", "2"], "unknown": "null"}
    declared = parse_schema({"columns": {"a": column, "y": {**INCOME, "values": ["0", "1"]}}})
    floats = {"a": pa.array([1.0, None, 2.0]), "y": pa.array([0.0, 1.0, 1.0])}
    texts = {"a": ["1.0", "", "2.0"], "y": ["0", "1.0", "1"]}
    for columns in (floats, texts):
        rows = declared.encode_labelled(columns, [1, 2, 3])
        np.testing.assert_array_equal(rows.features, declared.encode({"a": ["1", "", "2"]}))
        assert (rows.labels.tolist(), rows.num_unknown.tolist()) == ([0, 1, 1], [1])


def test_a_column_that_is_mostly_unknown_is_refused() -> None:
    """The schema limits the share of unknown values in a column, by default to half. The error names the column and the
    expected values."""
    null: dict[str, object] = {**WORK, "unknown": "null"}
    for said, count, refused in (
        ({}, 2, False),
        ({}, 3, True),
        ({"max_unknown": 0.75}, 3, False),
        ({"max_unknown": 0}, 1, True),
    ):
        declared = schema_of(work={**null, **said})
        if not refused:
            declared.check_known(np.array([count]), 4)
            continue
        with pytest.raises(DatasetUnusable, match="unknown in") as refusal:
            declared.check_known(np.array([count]), 4)
        (fault,) = refusal.value.errors
        assert fault.path == "column work"
        assert "expected one of none, some" in fault.message
    everywhere = parse_schema({"columns": {"income": INCOME, "work": null}, "max_unknown": 1})
    everywhere.check_known(np.array([4]), 4)
    schema_of(work=WORK).check_known(np.array([4]), 4)  # each is refused by itself


def test_numbers_outside_the_range_are_clipped() -> None:
    """With "outside": "clip", a number outside the range is replaced by the nearer end of the range."""
    features = FORGIVING.encode({"age": [-5, 0, 100, 1e300], "work": [None] * 4})
    np.testing.assert_array_equal(features[0], features[1])
    np.testing.assert_array_equal(features[2], features[3])


@each(
    ("age", "work", "path"),
    [
        ("", "some", "line 8, column age"),
        ("nan", "some", "line 8, column age"),
        ("inf", "some", "line 8, column age"),
        ("1_0", "some", "line 8, column age"),
        (" 1", "some", "line 8, column age"),
        ("1e999", "some", "line 8, column age"),
        ("101", "some", "line 8, column age"),
        (-1, "some", "line 8, column age"),
        (True, "some", "line 8, column age"),
        ([1], "some", "line 8, column age"),
        (10**400, "some", "line 8, column age"),
        (1, "", "line 8, column work"),
        (1, "Some", "line 8, column work"),
        (1, None, "line 8, column work"),
        (1, ["some"], "line 8, column work"),
    ],
)
def test_a_bad_value_is_reported_by_line_and_column(age: object, work: object, path: str) -> None:
    """A value that the schema does not allow is reported by line and column but is not quoted."""
    with pytest.raises(RowInvalid) as refusal:
        schema_of(age=AGE, work=WORK).encode({"age": [1, age, 2], "work": ["some", work, "none"]}, first_line=7)
    (fault,) = refusal.value.errors
    assert fault.path == path
    assert refusal.value.detail == f"{fault.path}: {fault.message}."
    assert fault.message in {
        "expected a value",
        "expected a finite number, with a point before decimals",
        "expected a number from 0 to 100",
        "expected one of none, some",
    }


def test_the_first_twenty_errors_are_reported_by_line() -> None:
    """Only the first twenty errors are reported, ordered by line first and then by column."""
    with pytest.raises(RowInvalid) as refusal:
        schema_of(age=AGE, work=WORK).encode({"age": ["x"] * 100, "work": ["x"] * 100}, first_line=2)
    paths = [fault.path for fault in refusal.value.errors]
    assert paths == [f"line {line}, column {column}" for line in range(2, 12) for column in ("age", "work")]


@pytest.mark.parametrize(
    "numbers",
    [pa.array([1, None, 99]), pa.array([1.0, math.nan, 99.0], pa.float32()), pa.array(["1", "", "99"])],
)
def test_arrow_columns_and_lists_agree(numbers: Any) -> None:
    """Integers, floats and texts are encoded identically in lists and in Arrow arrays, chunked or not."""
    work = pa.array(["some", None, "none"]).dictionary_encode()
    expected = FORGIVING.encode({"age": [1, None, 99], "work": ["some", "", "none"]})
    np.testing.assert_array_equal(FORGIVING.encode({"age": numbers, "work": work}), expected)
    np.testing.assert_array_equal(FORGIVING.encode({"age": pa.chunked_array([numbers]), "work": work}), expected)


def test_integers_and_booleans_can_be_categories() -> None:
    """Integer and boolean columns match categories and labels by their text form."""
    schema = parse_schema({"columns": {"a": {**WORK, "values": ["1", "true"]}, "y": {**INCOME, "values": ["0", "1"]}}})
    rows = schema.encode_labelled({"a": pa.array([1, 1]), "y": pa.array([1, 0])}, [1, 2])
    np.testing.assert_array_equal(rows.features, schema.encode({"a": ["1", 1]}))
    np.testing.assert_array_equal(schema.encode({"a": [True]}), schema.encode({"a": ["true"]}))
    assert rows.labels.tolist() == [1, 0]
    assert rows.subjects == [None, None]


# --- predictions -----------------------------------------------------------------------------------------------------


def test_records_are_encoded_without_label_and_subject() -> None:
    """A record for prediction is encoded like a row of a file, whether or not it contains a label and a subject."""
    bare = encode_records(FORGIVING, [{"age": 25, "work": "some"}])
    full = encode_records(FORGIVING, [{"age": "25", "work": "some", "income": 7, "person": None}])
    np.testing.assert_array_equal(bare, full)
    np.testing.assert_array_equal(bare, FORGIVING.encode({"age": ["25"], "work": ["some"]}))
    assert encode_records(FORGIVING, []).shape == (0, 5)


@pytest.mark.parametrize(
    ("record", "path"),
    [
        ({"age": 200, "work": "some"}, "records.1.age"),
        ({"age": 1}, "records.1.work"),
        ({"age": 1, "work": "some", "wrok": "some"}, "records.1"),
        ([1, 2], "records.1"),
        (None, "records.1"),
    ],
)
def test_a_bad_record_is_named_by_its_path(record: object, path: str) -> None:
    """A record that is not an object, has a missing or unknown column, or has an invalid value is refused, and the
    error names its path."""
    with pytest.raises(InputInvalid) as refusal:
        encode_records(schema_of(age=AGE, work=WORK), [{"age": 1, "work": "some"}, record])
    assert [fault.path for fault in refusal.value.errors] == [path]


# --- vectors ---------------------------------------------------------------------------------------------------------


@given(
    st.lists(
        st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=3, max_size=3), min_size=1, max_size=20
    )
)
def test_every_vector_has_norm_at_most_one(x: list[list[float]]) -> None:
    """Any finite vector, even one with the largest floats, is encoded as a row of norm at most one, independently of
    other rows."""
    features = encode_vectors(x)
    assert (norms(features) <= 1).all()
    np.testing.assert_array_equal(features, np.vstack([encode_vectors([vector]) for vector in x]))


def test_vectors_are_the_same_in_any_memory_order() -> None:
    """Vectors in column-major and row-major order are encoded bit-identically."""
    x = np.random.default_rng(0).normal(size=(50, 37))
    np.testing.assert_array_equal(encode_vectors(np.asfortranarray(x)), encode_vectors(x))


@pytest.mark.parametrize("x", [[1.0], [[]], [[1], [1, 2]], [["a"]], [[None, 1]], [[10**400]], [[[1]]], "x"])
def test_ragged_vectors_are_refused(x: Any) -> None:
    """Anything other than a list of equally long vectors of finite numbers is refused."""
    with pytest.raises(InputInvalid):
        encode_vectors(x)


def test_a_nan_in_a_vector_is_located() -> None:
    """A NaN or infinity in a vector is reported with its row and its position in the row."""
    x = [[1.0, 2.0], [3.0, math.nan], [math.inf, 1.0]]
    with pytest.raises(InputInvalid) as refusal:
        encode_vectors(x)
    assert [fault.path for fault in refusal.value.errors] == ["records.1.1", "records.2.0"]
    with pytest.raises(RowInvalid) as refusal:
        encode_vectors(x, first_line=10)
    assert [fault.path for fault in refusal.value.errors] == ["line 11, column x[1]", "line 12, column x[0]"]


@given(st.lists(st.text("0123456789+-.eE_nN aAiIfF١", max_size=6) | st.floats().map(repr), max_size=4))
def test_texts_are_parsed_alike_alone_and_in_columns(texts: list[str]) -> None:
    """Parsing a column of texts gives the same numbers as parsing each text separately."""
    np.testing.assert_array_equal(values.numbers(texts), [values.number(text) for text in texts])
