"""The code inside a registered model encodes and predicts as the gateway does."""

import math
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from app.catalogue.prediction import probabilities, scores
from app.features.predictions.endpoints import label_probabilities
from benchmarks.vectors import encode_vectors
from lethe.contract.problems import InputInvalid, Problem
from lethe.encoding.schema import stored
from lethe.encoding.targets import TargetColumn
from lethe.features.handover.mlflow_pyfunc import Served, linear_scores
from tests.records import encode_records

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
OF_CLASSES: dict[str, Any] = {"objective": "logistic_regression", "classes": CLASSES, "target": None}
FIRST = {"columns": SCHEMA["columns"]}
"""Schema of a dataset from before there were two editions."""
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


def linear(parameters: Any, **about: Any) -> Served:
    return Served(partial(linear_scores, parameters), **about)


def expected(document: dict[str, Any], records: list[dict[str, Any]]) -> list[dict[str, float]] | None:
    schema = stored(document)
    try:
        features = encode_records(schema, records)
    except InputInvalid:
        return None
    parameters = PARAMETERS[:, : schema.num_features + 1]
    return [dict(zip(CLASSES, row.tolist(), strict=True)) for row in probabilities(parameters, features, len(CLASSES))]


def found(document: dict[str, Any], records: Any) -> list[dict[str, float]] | None:
    parameters = PARAMETERS[:, : stored(document).num_features + 1]
    model = linear(parameters, **OF_CLASSES, schema=document)
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
def test_predictions_for_records_match_the_gateway(document: dict[str, Any], records: list[dict[str, Any]]) -> None:
    """Under each edition of the encoding, the exported model refuses the same records as the gateway and returns the
    same probabilities for all others."""
    assert found(document, records) == expected(document, records)


@pytest.mark.parametrize("document", [SCHEMA, FIRST])
def test_numbers_converted_by_tools_are_accepted(document: dict[str, Any]) -> None:
    """Integers that tools convert to floats, and missing numbers, are interpreted in the same way as by the gateway."""
    for home in (None, "x", "007", 7, 1.0, "1.0", "1e0", 1, -2.5, "-2.5", "-2.50"):
        for work in (7, 7.0, "7", "7.0", "007", "a"):
            records = [{"age": 5, "hours": None, "work": work, "home": home}]
            assert found(document, records) == expected(document, records)


def test_an_unknown_edition_of_the_encoding_is_refused() -> None:
    """A model with an unknown edition of the encoding is refused instead of being evaluated by the rules of an older
    edition."""
    with pytest.raises(Problem, match="encoding: expected 2"):
        linear(PARAMETERS, **OF_CLASSES, schema=SCHEMA | {"encoding": 3})


@given(st.lists(st.lists(st.floats(), min_size=3, max_size=3), min_size=1, max_size=3))
def test_predictions_for_vectors_match_the_gateway(vectors: list[list[float]]) -> None:
    """Without a schema, finite vectors of the right width get the same probabilities as from the gateway. All other
    vectors are refused."""
    parameters = np.array([[0.5, -1.0, 2.0, 0.25]])
    model = linear(parameters, **OF_CLASSES | {"classes": ["0", "1"]}, schema=None)
    if not all(math.isfinite(number) for vector in vectors for number in vector):
        with pytest.raises(ValueError, match="expected a finite number"):
            model.predict(vectors)
        return
    chances = probabilities(parameters, encode_vectors(vectors), 2)
    assert [list(one["probabilities"].values()) for one in model.predict(vectors)] == chances.tolist()
    assert [one["label"] for one in model.predict(np.array(vectors))] == [str(row.argmax()) for row in chances]


@given(st.lists(st.floats(-50, 50), min_size=3, max_size=3))
def test_predicted_targets_match_the_gateway(vector: list[float]) -> None:
    """A model with a numeric target returns values in the target's unit and within its range."""
    parameters, target = np.array([[0.5, -1.0, 2.0, 0.25]]), TargetColumn(low=20.0, high=140.0)
    about = {"objective": "huber_regression", "classes": [], "target": {"min": 20.0, "max": 140.0}, "schema": None}
    expected = target.values(scores(parameters, encode_vectors([vector]))[:, 0]).tolist()
    assert linear(parameters, **about).predict([vector]) == [{"value": value} for value in expected]
    assert 20 <= expected[0] <= 140


@given(st.lists(st.floats(-50, 50), min_size=3, max_size=3))
def test_predicted_rates_match_the_gateway(vector: list[float]) -> None:
    """A model of counts returns positive rates that do not exceed their bound."""
    parameters, bound = np.array([[1.5, -3.0, 2.0, 0.25]]), {"min": 0.0, "max": 40.0}
    about = {"objective": "poisson_regression", "classes": [], "target": bound, "schema": None, "loss_width": 1.0}
    found = linear(parameters, **about).predict([vector])[0]["value"]
    score = float(scores(parameters, encode_vectors([vector]))[0, 0])
    assert found == pytest.approx(40 * min(math.exp(score - 1), 1))
    assert 0 < found <= 40


def test_a_hinge_has_labels_without_probabilities() -> None:
    """A model with hinge loss returns labels without probabilities, because its score is not a logit."""
    about = {"objective": "smoothed_hinge", "classes": ["no", "yes"], "target": None, "schema": None}
    found = linear(np.array([[1.0, 0.0]]), **about).predict([[2.0], [-2.0]])
    assert found == [{"label": "yes", "probabilities": None}, {"label": "no", "probabilities": None}]


def test_predicted_labels_match_the_gateway() -> None:
    """For a multi-label model, each label has its own probability, and the labels above 1/2 are returned."""
    about = {"objective": "multilabel_logistic_regression", "classes": ["a", "b", "c"], "target": None, "schema": None}
    vectors = [[1.0, -2.0, 0.5], [0.0, 3.0, -1.0]]
    chances = label_probabilities(PARAMETERS[:, :4], encode_vectors(vectors))
    found = linear(PARAMETERS[:, :4], **about).predict(vectors)
    assert [list(one["probabilities"].values()) for one in found] == chances.tolist()
    assert [one["labels"] for one in found] == [
        [n for n, c in zip("abc", row, strict=True) if c > 0.5] for row in chances
    ]


def test_a_refusal_names_the_place_and_quotes_nothing() -> None:
    """The error names the location of a fault but does not quote the record, because it can contain personal data."""
    good = {"age": 5, "work": "a"}
    model = linear(PARAMETERS, **OF_CLASSES, schema=SCHEMA)
    for records, place in (
        ([good, good | {"age": 777}], "records.1.age"),
        ([good | {"work": "777"}], "records.0.work"),
        ([good | {"height": 777}], "columns of the schema"),
        ([[777]], "records.0: expected an object"),
    ):
        with pytest.raises(ValueError, match=place) as refusal:
            model.predict(records)
        assert "777" not in str(refusal.value)
