"""What travels inside a registered model encodes and predicts as the gateway does."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.catalogue.prediction import probabilities
from app.rows.encoding import encode_vectors
from app.rows.schema import stored
from lethe.contract.problems import InputInvalid
from lethe.mlflow_pyfunc import Classifier

SCHEMA: dict[str, Any] = {
    "encoding": 2,
    "columns": {
        "age": {"kind": "numeric", "min": 0, "max": 100},
        "hours": {"kind": "numeric", "min": -5, "max": 5, "outside": "clip", "unknown": "null"},
        "work": {"kind": "categorical", "values": ["a", "b", "7", "true"]},
        "home": {"kind": "categorical", "values": ["x", "007", "1.0", "1e0", "-2.50"], "unknown": "null"},
        "income": {"role": "label", "values": ["low", "mid", "high"]},
        "who": {"role": "subject"},
    },
}
CLASSES = ["low", "mid", "high"]
FIRST = {"columns": SCHEMA["columns"]}
"""As of a dataset from before there were two editions."""
WIDTH = 1 + 2 + 4 + 5 + 1
PARAMETERS = np.random.default_rng(0).normal(size=(3, WIDTH))
VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.sampled_from([7.0, 1.0, 1, -2.5, "7.0", "-2.5", "-3.5"]),
    st.sampled_from(["", "a", "b", "7", "x", "007", "1.0", "nan", "NaN", "12", "1e400", "0x1", "infinity", "٣"]),
)
NAMES = st.sampled_from([*SCHEMA["columns"], "other"])


def expected(document: dict[str, Any], records: list[dict[str, Any]]) -> list[dict[str, float]] | None:
    schema = stored(document)
    try:
        features = schema.encode_records(records)
    except InputInvalid:
        return None
    parameters = PARAMETERS[:, : schema.num_features + 1]
    return [dict(zip(CLASSES, row.tolist(), strict=True)) for row in probabilities(parameters, features, len(CLASSES))]


def found(document: dict[str, Any], records: Any) -> list[dict[str, float]] | None:
    parameters = PARAMETERS[:, : stored(document).num_features + 1]
    model = Classifier(parameters, classes=CLASSES, schema=document)
    try:
        return [one["probabilities"] for one in model.predict(records)]
    except ValueError:
        return None


@given(
    st.sampled_from([SCHEMA, FIRST]),
    st.lists(st.dictionaries(NAMES, VALUES), min_size=1, max_size=3)
    | st.lists(
        st.fixed_dictionaries(
            {"work": st.sampled_from(["a", "b", 7, 7.0, True])},
            optional={"age": st.integers(0, 100) | st.sampled_from(["5", None]), "hours": VALUES, "home": VALUES},
        ),
        min_size=1,
        max_size=3,
    ),
)
def test_records_are_read_as_the_gateway_reads_them(document: dict[str, Any], records: list[dict[str, Any]]) -> None:
    """Whatever is sent, the same records are refused, and the others get the same probabilities, by either edition."""
    assert found(document, records) == expected(document, records)


@pytest.mark.parametrize("document", [SCHEMA, FIRST])
def test_what_tools_write_is_read_as_the_gateway_reads_it(document: dict[str, Any]) -> None:
    """Whole numbers that became floats, and numbers that are missing, mean the same in both places."""
    for home in (None, "x", "007", 7, 1.0, "1.0", "1e0", 1, -2.5, "-2.5", "-2.50"):
        for work in (7, 7.0, "7", "7.0", "007", "a"):
            records = [{"age": 5, "hours": None, "work": work, "home": home}]
            assert found(document, records) == expected(document, records)


def test_an_edition_that_is_unknown_is_refused() -> None:
    """A model by later rules is not predicted with these."""
    model = Classifier(PARAMETERS, classes=CLASSES, schema=SCHEMA | {"encoding": 3})
    with pytest.raises(ValueError, match="encoding 1 or 2"):
        model.predict([{"age": 5, "work": "a"}])


@given(st.lists(st.lists(st.floats(), min_size=3, max_size=3), min_size=1, max_size=3))
def test_vectors_are_read_as_the_gateway_reads_them(vectors: list[list[float]]) -> None:
    """Without a schema: finite vectors of the right width get the same probabilities, all others are refused."""
    parameters = np.array([[0.5, -1.0, 2.0, 0.25]])
    model = Classifier(parameters, classes=["0", "1"], schema=None)
    if not all(math.isfinite(number) for vector in vectors for number in vector):
        with pytest.raises(ValueError, match="Expected vectors of 3 finite numbers"):
            model.predict(vectors)
        return
    chances = probabilities(parameters, encode_vectors(vectors), 2)
    assert [list(one["probabilities"].values()) for one in model.predict(vectors)] == chances.tolist()
    assert [one["label"] for one in model.predict(np.array(vectors))] == [str(row.argmax()) for row in chances]


def test_a_refusal_names_the_place_and_quotes_nothing() -> None:
    """What was sent is not in the error: it may be about a person."""
    good = {"age": 5, "work": "a"}
    model = Classifier(PARAMETERS, classes=CLASSES, schema=SCHEMA)
    for records, place in (
        ([good, good | {"age": 777}], "record 1, column age"),
        ([good | {"work": "777"}], "record 0, column work"),
        ([good | {"height": 777}], "only columns of the schema"),
        ([[777]], "objects by column name"),
    ):
        with pytest.raises(ValueError, match=place) as refusal:
            model.predict(records)
        assert "777" not in str(refusal.value)
