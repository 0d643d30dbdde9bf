"""Error messages for likely mistakes, which state what was expected as well as what was wrong."""

import io
import json
from collections.abc import Callable
from typing import Any

import httpx
import numpy as np
import pytest
from fastapi.testclient import TestClient

from lethe.contract import fields
from tests.conftest import CLASSES, FORM, npz
from tests.tables import each

AGE = {"kind": "numeric", "min": 0, "max": 100}
COLUMNS: dict[str, Any] = {
    "age": AGE,
    "work": {"kind": "categorical", "values": ["state", "private"]},
    "income": {"role": "label", "values": ["low", "high"]},
    "person": {"role": "subject"},
    "note": {"role": "ignored"},
}
CSV = "age,work,income,person,note\n1,state,low,a,\n2,private,high,b,\n"


def with_columns(**changed: Any) -> dict[str, Any]:
    return {"schema": {"columns": COLUMNS | changed}}


def with_header(old: str, new: str) -> dict[str, Any]:
    return {"csv": CSV.replace(old, new, 1)}


UPLOADS: dict[str, tuple[dict[str, Any], str, str]] = {
    "a key of a schema": ({"schema": {"column": {}, "columns": COLUMNS}}, "schema.column", "did you mean columns?"),
    "a key of a column": (with_columns(age=AGE | {"minimum": 0}), "columns.age.minimum", "did you mean min?"),
    "a key of another kind": (
        with_columns(age=AGE | {"values": []}),
        "columns.age.values",
        "expected one of kind,",
    ),
    "a kind": (with_columns(age={"kind": "numerical"}), "columns.age", "did you mean kind numeric?"),
    "a role": (with_columns(person={"role": "subject_id"}), "columns.person", "did you mean role subject?"),
    "a role for a kind": (with_columns(person={"kind": "subject"}), "columns.person", "did you mean role subject?"),
    "a kind for a role": (with_columns(age={"role": "numeric"}), "columns.age", "did you mean kind numeric?"),
    "a text for a column": (with_columns(age="numeric"), "columns.age", '{"kind": "numeric", "min": 0, "max": 100}'),
    "what is outside": (with_columns(age=AGE | {"outside": "clipped"}), "columns.age.outside", "did you mean clip?"),
    "null for null": (with_columns(age=AGE | {"unknown": None}), "columns.age.unknown", 'expected error or "null"'),
    "a column's name": (
        with_header("work", "wrok"),
        "line 1, column 2",
        "'wrok' is not declared in the schema; did",
    ),
    "a column too many": (
        {"csv": "\n".join(f"{line},x" for line in CSV.split()).replace(",x", ",city", 1)},
        "line 1, column 6",
        "'city' is not declared in the schema; declare it",
    ),
    "no header": ({"csv": CSV.split("\n", 1)[1]}, "line 1, column 1", "is not declared in the schema"),
    "a value": ({"csv": CSV.replace("state", "State")}, "line 2, column work", "expected one of private, state"),
    "a label": ({"csv": CSV.replace("low", "<=50K")}, "line 2, column income", "expected one of high, low"),
    "a range": ({"csv": CSV.replace("\n1,", "\n101,")}, "line 2, column age", "expected a number from 0 to 100"),
    "a field of the form": ({"schemas": "{}"}, "schemas", "did you mean schema?"),
    "classes in the singular": ({"class": CLASSES}, "class", "did you mean classes?"),
}


@each("case", UPLOADS)
def test_upload_errors_state_what_was_expected(gateway: TestClient, case: str) -> None:
    """The error for an upload with a small mistake in its schema, header, values or form states what was expected."""
    given, path, expected = UPLOADS[case]
    given = {"csv": CSV, "schema": {"columns": COLUMNS}} | given
    content = given.pop("csv")
    form = {name: one if isinstance(one, str) else json.dumps(one) for name, one in given.items()} | {"name": "people"}
    answer = gateway.post("/v1/datasets", data=form, files={"file": ("rows.csv", content)})
    assert answer.status_code == 422, answer.text
    said = {fault["path"]: fault["message"] for fault in answer.json()["errors"]}
    assert expected in said[path]


def arrays(**changed: Any) -> bytes:
    found = dict(np.load(io.BytesIO(npz(rows=4)))) | changed
    buffer = io.BytesIO()
    np.savez(buffer, **{name: array for name, array in found.items() if array is not None})
    return buffer.getvalue()


@each(
    ("content", "path", "expected"),
    [
        (arrays(y=None, labels=np.zeros(4, int)), "labels", "expected y"),
        (arrays(subject=None, subjects=np.array(list("abcd"))), "subjects", "expected subject"),
        (arrays(x=None, y=None, X=np.zeros((4, 2))), "X", "did you mean x?"),
        (arrays(y=np.zeros((4, 1), int)), "y", "found (4, 1) int64"),
        (arrays(y=np.zeros(4)), "y", "expected (n,) integers"),
        (arrays(x=np.zeros((4, 2), int)), "x", "expected (n, d) floats"),
        (arrays(subject=np.arange(4)), "subject", "found (4,) int64"),
        (arrays(y=np.array([0, 1, 2, 0])), "line 3, column y", "from 0 to 1"),
    ],
)
def test_array_errors_state_what_was_expected(gateway: TestClient, content: bytes, path: str, expected: str) -> None:
    """The error for an array with the wrong name, shape or type states both what was expected and what was found."""
    answer = gateway.post("/v1/datasets", data=FORM, files={"file": ("rows.npz", content)})
    said = {fault["path"]: fault["message"] for fault in answer.json()["errors"]}
    assert expected in said[path]


CALLS: dict[str, tuple[str, dict[str, Any], str, str]] = {
    "subject": ("/deletion-requests", {"subject": "p1"}, "subject", "did you mean subject_id?"),
    "alias": ("/deletion-requests", {"subject_id": "p1", "alias": ["p2"]}, "alias", "did you mean aliases?"),
    "dataset": ("/models", {"name": "m", "dataset": "ds_1"}, "dataset", "did you mean dataset_id?"),
    "target": ("/models", {"name": "m", "dataset_id": "d", "target": {"eps": 1}}, "target.eps", "mean epsilon?"),
    "batching": ("/models", {"name": "m", "dataset_id": "d", "batching": {"max": 1}}, "batching.max", "max_requests"),
    "record": ("/models/mdl_1/predictions", {"record": []}, "record", "expected records"),
    "key": ("/api-keys", {"name": "k", "scope": ["admin"]}, "scope", "did you mean scopes?"),
    "tenant": ("/tenants", {"name": "t", "policy": {"auto_acept": True}}, "policy.auto_acept", "mean auto_accept?"),
    "a limit": (
        "/tenants",
        {"name": "t", "policy": {"regulations": {"lgpd": {"day": 15}}}},
        "policy.regulations.lgpd.day",
        "did you mean days?",
    ),
    "a truth": (
        "/deletion-requests",
        {"subject_id": "p1", "identity_verified": "yes"},
        "identity_verified",
        "expected true or false",
    ),
    "a batch": (
        "/deletion-requests:batch",
        {"requests": [{"subject": "p1"}]},
        "requests.0.subject",
        "did you mean subject_id?",
    ),
}


@each("case", CALLS)
def test_an_unknown_field_is_refused_with_the_known_fields(gateway: TestClient, case: str) -> None:
    """A body with an unknown field is refused; the error lists the known fields and suggests the closest match."""
    path, body, place, expected = CALLS[case]
    answer = gateway.post(f"/v1{path}", json=body)
    assert answer.status_code == 422, answer.text
    said = {fault["path"]: fault["message"] for fault in answer.json()["errors"]}
    assert expected in said[place]


def test_a_misspelled_csv_header_is_refused_with_the_correct_spelling(gateway: TestClient) -> None:
    """A CSV file of requests with a misspelled header or boolean is refused, and the error states the correct
    spelling."""

    def sent(content: str) -> httpx.Response:
        return gateway.post("/v1/deletion-requests.csv", content=content.encode(), headers={"Content-Type": "text/csv"})

    assert "did you mean subject_id?" in sent("subject\np1\n").json()["errors"][0]["message"]
    refused = sent("subject_id,identity_verified\np1,yes\n").json()["errors"]
    assert [fault["message"] for fault in refused] == ["expected true or false"]


def test_an_unknown_column_is_refused_with_the_known_columns(
    gateway: TestClient, work: Callable[[], int], new_model: Any
) -> None:
    """A prediction request with an unknown column is refused, and the error lists the columns of the schema."""
    form = {"name": "people", "schema": json.dumps({"columns": COLUMNS})}
    made = gateway.post("/v1/datasets", data=form, files={"file": ("rows.csv", CSV)}).json()
    model = new_model(made["id"])
    assert work() == 1
    records = {"records": [{"age": 1, "wrok": "state"}]}
    (fault,) = gateway.post(f"/v1/models/{model['id']}/predictions", json=records).json()["errors"]
    assert (fault["path"], "did you mean work?" in fault["message"]) == ("records.0", True)


@pytest.mark.parametrize(
    ("found", "meant"),
    [
        ("subjct", "subject_id"),
        ("Subject-ID", "subject_id"),
        ("regulaton", "regulation"),
        ("zzz", None),
        ("", None),
        (7, None),
    ],
)
def test_the_nearest_name_is_suggested(found: object, meant: str | None) -> None:
    """The closest known name is suggested if it differs only by a few characters, by case or by punctuation; otherwise,
    nothing is suggested."""
    assert fields.nearest(found, ["subject_id", "regulation", "ground"]) == meant
