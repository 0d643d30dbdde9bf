"""What travels inside a registered model encodes and predicts as the gateway does."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.errors import InputInvalid
from app.registry.encoding import encode_vectors
from app.registry.prediction import probabilities
from app.registry.schema import parse_schema
from lethe.mlflow_pyfunc import Classifier

SCHEMA: dict[str, Any] = {
    "columns": {
        "age": {"kind": "numeric", "min": 0, "max": 100},
        "hours": {"kind": "numeric", "min": -5, "max": 5, "outside": "clip", "unknown": "null"},
        "work": {"kind": "categorical", "values": ["a", "b", "7", "true"]},
        "home": {"kind": "categorical", "values": ["x", "y"], "unknown": "null"},
        "income": {"role": "label", "values": ["low", "mid", "high"]},
        "who": {"role": "subject"},
    }
}
CLASSES = ["low", "mid", "high"]
WIDTH = 1 + 1 + 4 + 2 + 1
PARAMETERS = np.random.default_rng(0).normal(size=(3, WIDTH))
VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.sampled_from(["", "a", "b", "7", "x", "y", "nan", "NaN", "12", "1e400", "0x1", "-3.5", "infinity", "٣"]),
)
NAMES = st.sampled_from([*SCHEMA["columns"], "other"])


def expected(records: list[dict[str, Any]]) -> list[dict[str, float]] | None:
    try:
        features = parse_schema(SCHEMA).encode_records(records)
    except InputInvalid:
        return None
    return [dict(zip(CLASSES, row.tolist(), strict=True)) for row in probabilities(PARAMETERS, features, len(CLASSES))]


def found(records: Any) -> list[dict[str, float]] | None:
    try:
        return [one["probabilities"] for one in Classifier(PARAMETERS, classes=CLASSES, schema=SCHEMA).predict(records)]
    except ValueError:
        return None


@given(
    st.lists(st.dictionaries(NAMES, VALUES), min_size=1, max_size=3)
    | st.lists(
        st.fixed_dictionaries(
            {"work": st.sampled_from(["a", "b", 7, True])},
            optional={"age": st.integers(0, 100) | st.sampled_from(["5", None]), "hours": VALUES, "home": VALUES},
        ),
        min_size=1,
        max_size=3,
    )
)
def test_records_are_read_as_the_gateway_reads_them(records: list[dict[str, Any]]) -> None:
    """Whatever is sent, the same records are refused, and the others get the same probabilities."""
    assert found(records) == expected(records)


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
