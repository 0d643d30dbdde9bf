"""The endpoints below `/v1/datasets`."""

import io
import json
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient
from sqlalchemy.orm import Session

from app.config import Settings
from app.db.tables import Dataset
from app.installations import Installation
from app.main import create_app
from lethe.contract.sets import Scope
from tests.conftest import FORM
from tests.stored import rows_of
from tests.tables import each

SCHEMA = {
    "columns": {
        "age": {"kind": "numeric", "min": 0, "max": 100},
        "work": {"kind": "categorical", "values": ["state", "private"]},
        "income": {"role": "label", "values": ["low", "high"]},
        "person": {"role": "subject"},
        "note": {"role": "ignored"},
    }
}
CSV = "person,age,work,income,note\nann,31,state,low,x\nbob,42,private,high,y\nann,33,private,high,\n"


def test_an_npz_upload_becomes_a_dataset(
    upload: Callable[..., httpx.Response], get: Callable[[str], Any], npz_of: Callable[..., bytes]
) -> None:
    """An upload returns 201 with a location and the dataset's public facts, and a later GET returns the same facts."""
    answer = upload(npz_of(subject=np.array([f"p{row // 2}" for row in range(20)])))
    created = answer.json()
    assert created.pop("num_suppressed") == 0
    assert answer.status_code == 201
    assert answer.headers["location"] == f"/v1/datasets/{created['id']}"
    assert created["id"].startswith("ds_")
    facts = {"name": "people", "num_records": 20, "num_slots": 20, "num_features": 3, "num_subjects": 10}
    assert created == created | facts | {"num_classes": 2, "classes": ["0", "1"], "schema": None, "revision": 0}
    assert len(bytes.fromhex(created["digest"])) == 32
    assert created.pop("warnings") == []
    assert get(f"/datasets/{created['id']}") == created
    assert get("/datasets")["items"] == [created]


def test_an_npz_file_may_have_a_schema(upload: Callable[..., httpx.Response], npz_of: Callable[..., bytes]) -> None:
    """A schema maps the arrays of an npz file to columns, which are then scaled. If scaling each row would lose
    information, a warning names the column and the remedy."""
    x = {"kind": "vector", "length": 3, "center": [0.0, 0.0, 1000.0], "scale": [1.0, 1.0, 10.0], "clip": 3.0}
    columns = {"x": x, "y": {"role": "label", "values": ["0", "1"]}, "subject": {"role": "subject"}}
    large = np.random.default_rng(0).normal(size=(20, 3)) * [1, 1, 10] + [0, 0, 1000]
    created = upload(npz_of(x=large), schema=json.dumps({"columns": columns}), classes=None).json()
    assert created["schema"]["columns"]["x"] == x | {"unknown": "error"}
    assert (created["num_features"], created["classes"], created["warnings"]) == (3, ["0", "1"], [])
    (warning,) = upload(npz_of(x=large)).json()["warnings"]
    assert "nearly parallel" in warning
    assert "x[2] outweighs the rest" in warning
    assert "state center and scale" in warning


def parquet(text: str) -> bytes:
    buffer = io.BytesIO()
    header, *rows = [line.split(",") for line in text.splitlines()]
    pq.write_table(pa.table(dict(zip(header, map(list, zip(*rows, strict=True)), strict=True))), buffer)
    return buffer.getvalue()


@pytest.mark.parametrize(("filename", "content"), [("rows.csv", CSV.encode()), ("rows.parquet", parquet(CSV))])
def test_a_table_is_read_by_its_schema(upload: Callable[..., httpx.Response], filename: str, content: bytes) -> None:
    """A CSV or Parquet file is read according to its public schema, which defines the row width, the classes and the
    subject column."""
    created = upload(content, filename=filename, schema=json.dumps(SCHEMA)).json()
    assert created["classes"] == ["low", "high"]
    assert (created["num_features"], created["num_records"], created["num_subjects"]) == (3, 3, 2)
    assert created["schema"]["columns"].keys() == SCHEMA["columns"].keys()


def test_models_can_use_random_features(
    upload: Callable[..., httpx.Response],
    gateway: TestClient,
    new_model: Callable[..., dict[str, Any]],
    work: Callable[[], int],
) -> None:
    """A model can be trained on random features, and the stored schema encodes records for prediction in the same
    way."""
    random = SCHEMA | {"random_features": {"features": 20, "seed": 9}}
    created = upload(CSV.encode(), filename="rows.csv", schema=json.dumps(random)).json()
    assert created["num_features"] == 20
    assert created["schema"]["random_features"]["scale"] == pytest.approx(3**-0.5)
    model = new_model(created["id"], noise_scale=1e-3, learn_steps=2000, l2=0.01)
    work()
    ann, bob = ({"age": age, "work": work} for age, work in ((31, "state"), (42, "private")))
    answer = gateway.post(f"/v1/models/{model['id']}/predictions", json={"records": [ann, bob]}).json()
    assert [one["label"] for one in answer["predictions"]] == ["low", "high"]


def test_npz_classes_are_taken_from_the_form(upload: Callable[..., httpx.Response]) -> None:
    """The upload form supplies the classes of an npz file and of a table whose schema does not list the labels."""
    assert upload(classes='["no", "yes"]').json()["classes"] == ["no", "yes"]
    unlisted = {"columns": SCHEMA["columns"] | {"income": {"role": "label"}}}
    sent = {"content": CSV.encode(), "filename": "rows.csv", "schema": json.dumps(unlisted)}
    assert upload(**sent).json()["errors"][0]["path"] == "columns.income.values"
    created = upload(**sent, classes='["high", "low"]').json()
    assert created["classes"] == created["schema"]["columns"]["income"]["values"] == ["high", "low"]


def csv_with(old: str, new: str) -> dict[str, Any]:
    return {"content": CSV.replace(old, new).encode(), "filename": "rows.csv", "schema": json.dumps(SCHEMA)}


X = np.random.default_rng(0).normal(size=(20, 3))
REFUSED: dict[str, tuple[dict[str, Any], str, str]] = {
    "a wrong column": (csv_with("age", "years"), "schema_invalid", "line 1, column age"),
    "a bad number": (csv_with("42", "old"), "row_invalid", "line 3, column age"),
    "an unknown label": (csv_with("high,y", "huge,y"), "row_invalid", "line 3, column income"),
    "a row too short": (csv_with("bob,42,", "bob,"), "row_invalid", "line 3"),
    "a class that never occurs": (csv_with("high", "low"), "dataset_unusable", ""),
    "a header without rows": (csv_with(CSV[CSV.index("\n") :], "\n"), "dataset_unusable", ""),
    "no schema": ({"content": CSV.encode(), "filename": "rows.csv"}, "schema_invalid", "schema"),
    "a schema that is not JSON": (csv_with("", "") | {"schema": "{"}, "schema_invalid", "schema"),
    "an npz file that is not what its schema says": (
        {"schema": json.dumps(SCHEMA), "classes": None},
        "input_invalid",
        "age",
    ),
    "no classes": ({"classes": ""}, "schema_invalid", "classes"),
    "classes that are no list": ({"classes": '{"0": "no"}'}, "schema_invalid", "classes"),
    "one class alone": ({"classes": '["no"]'}, "schema_invalid", "classes"),
    "classes that are not the schema's": (
        csv_with("", "") | {"classes": '["high", "low"]'},
        "schema_invalid",
        "columns.income.values",
    ),
    "a declared class that never occurs": ({"classes": '["0", "1", "2"]'}, "dataset_unusable", "class 2"),
    "another kind of file": ({"filename": "rows.txt"}, "input_invalid", "file"),
    "a damaged file": ({"content": b"PK"}, "input_invalid", "file"),
    "no name": ({"name": ""}, "input_invalid", "name"),
}
ARRAYS: dict[str, tuple[dict[str, Any], str, str]] = {
    "NaN": ({"x": np.where(X[4, 1] == X, np.nan, X)}, "row_invalid", "line 5, column x[1]"),
    "infinity": ({"x": np.where(X[4, 1] == X, np.inf, X)}, "row_invalid", "line 5, column x[1]"),
    "one class": ({"y": np.ones(20, dtype=int)}, "dataset_unusable", ""),
    "a class that is not declared": ({"y": np.arange(20) % 2 * 2}, "row_invalid", "line 2, column y"),
    "a negative class": ({"y": np.arange(20) % 2 - 1}, "row_invalid", "line 1, column y"),
    "no rows": ({"x": X[:0], "y": np.zeros(0, int), "subject": np.zeros(0, "U1")}, "dataset_unusable", ""),
    "too few subjects": ({"subject": np.array(["p1"])}, "input_invalid", "subject"),
    "one array too many": ({"z": X}, "input_invalid", "z"),
    "objects": ({"subject": np.array([{}] * 20, dtype=object)}, "input_invalid", ""),
}


@each("case", [*REFUSED, *ARRAYS])
def test_a_bad_upload_leaves_no_rows_or_files(
    upload: Callable[..., httpx.Response],
    npz_of: Callable[..., bytes],
    refused: Callable[..., dict[str, Any]],
    stored: Callable[[], dict[str, int]],
    nothing: dict[str, int],
    case: str,
) -> None:
    """An upload that cannot be used for training returns 422 with the location of the fault and leaves neither rows nor
    files behind."""
    sent, code, path = (REFUSED | ARRAYS)[case]
    problem = refused(upload(npz_of(**sent)) if case in ARRAYS else upload(**sent), 422, code)
    assert [fault["path"] for fault in problem["errors"]][:1] == ([path] if path else [])
    assert stored() == nothing


@pytest.fixture
def small(settings: Settings, admin_key: str) -> Iterator[TestClient]:
    """Start a gateway that accepts bodies of up to ten thousand bytes."""
    app = create_app(settings.model_copy(update={"max_upload_bytes": 10_000}))
    with TestClient(app, headers={"Authorization": f"Bearer {admin_key}"}) as client:
        yield client


def chunked(request: httpx.Request) -> dict[str, Any]:
    """Return the arguments that send the same upload in pieces, without a declared length."""
    body = request.read()
    pieces = (body[start : start + 1000] for start in range(0, len(body), 1000))
    return {"content": pieces, "headers": {"Content-Type": request.headers["content-type"]}}


@pytest.mark.parametrize("declared", [True, False])
@pytest.mark.parametrize("rows", [20, 500])
def test_an_upload_above_the_limit_is_refused(
    small: TestClient,
    npz_of: Callable[..., bytes],
    refused: Callable[..., dict[str, Any]],
    stored: Callable[[], dict[str, int]],
    nothing: dict[str, int],
    declared: bool,
    rows: int,
) -> None:
    """A body that exceeds the limit returns 413, whether or not its length was declared, and no part of it is kept."""
    x = np.random.default_rng(0).normal(size=(rows, 3))
    content = npz_of(x=x, y=np.arange(rows) % 2, subject=np.arange(rows).astype(str))
    request = small.build_request("POST", "/v1/datasets", data=FORM, files={"file": ("people.npz", content)})
    answer = small.send(request) if declared else small.post("/v1/datasets", **chunked(request))
    if rows == 20:
        assert answer.status_code == 201
    else:
        refused(answer, 413, "upload_too_large")
        assert stored() == nothing


def test_the_body_limit_holds_for_json_too(small: TestClient, refused: Callable[..., dict[str, Any]]) -> None:
    """The body limit applies to every endpoint: a JSON body that exceeds it also returns 413."""
    pieces = (b'{"name": "' if start == 0 else b"a" * 1000 for start in range(20))
    answer = small.post("/v1/models", content=pieces, headers={"Content-Type": "application/json"})
    refused(answer, 413, "upload_too_large")


def test_repeating_an_upload_creates_one_dataset(
    upload: Callable[..., httpx.Response],
    npz_of: Callable[..., bytes],
    refused: Callable[..., dict[str, Any]],
    stored: Callable[[], dict[str, int]],
) -> None:
    """Repeating an upload with the same Idempotency-Key returns the first response; repeating it with a different file
    or name is a conflict."""
    once = {"Idempotency-Key": "first"}
    first = upload(headers=once)
    after = stored()
    again = upload(headers=once)
    assert (again.status_code, again.json(), again.headers["location"]) == (
        201,
        first.json(),
        first.headers["location"],
    )
    refused(upload(npz_of(x=X + 1), headers=once), 409, "idempotency_conflict")
    refused(upload(headers=once, name="others"), 409, "idempotency_conflict")
    assert stored() == after
    assert upload(headers={"Idempotency-Key": "second"}).json()["id"] != first.json()["id"]


def test_admins_see_how_many_rows_are_held_about_a_person(
    gateway: TestClient,
    upload: Callable[..., httpx.Response],
    get: Callable[[str], Any],
    refused: Callable[..., dict[str, Any]],
    key_with: Callable[..., dict[str, str]],
) -> None:
    """An admin sees the number of rows held about a person and gets 404 for an unknown person; callers without
    accounting:read are refused."""
    created = upload(CSV.encode(), filename="rows.csv", schema=json.dumps(SCHEMA)).json()
    place = f"/datasets/{created['id']}/subjects"
    assert get(f"{place}/ann") == {"num_records": 2}
    refused(gateway.get(f"/v1{place}/eve"), 404, "subject_unknown")
    reader = key_with(Scope.MODELS_READ, Scope.REQUESTS_READ)
    refused(gateway.get(f"/v1{place}/ann", headers=reader), 403, "scope_missing")


def test_an_upload_survives_a_lost_commit_acknowledgement(
    upload: Callable[..., httpx.Response], gateway: TestClient, installation: Installation
) -> None:
    """If the database connection is lost during a commit, the call returns 503. If the commit succeeded, a retry finds
    the dataset with its rows."""
    database = gateway.app.state.installation.database  # type: ignore[attr-defined]
    lost: list[bool] = []

    def lose(session: Session) -> None:
        if not lost and session.scalars(sa.select(Dataset)).first() is not None:
            lost.append(True)

    def answer_never(session: Session) -> None:
        if lost == [True]:
            lost.append(False)
            raise sa.exc.OperationalError(None, None, ConnectionError())

    sa.event.listen(database._sessions, "before_commit", lose)
    sa.event.listen(database._sessions, "after_commit", answer_never)
    try:
        assert upload(headers={"Idempotency-Key": "k"}).status_code == 503
    finally:
        sa.event.remove(database._sessions, "before_commit", lose)
        sa.event.remove(database._sessions, "after_commit", answer_never)
    again = upload(headers={"Idempotency-Key": "k"})
    assert again.status_code == 201
    assert rows_of(installation, again.json()["id"]).num_slots == 20


def test_a_digest_does_not_confirm_guessed_rows(
    new_dataset: Any, forget: Any, get: Any, work: Callable[[], int]
) -> None:
    """Uploading the same rows again gives a different digest, whether or not a person has been forgotten, so a caller
    who knows all other rows cannot confirm a guess about the remaining one."""
    one, other = new_dataset("one"), new_dataset("other")
    digests = {one["digest"], other["digest"]}
    forget("p3")
    work()
    digests |= {get(f"/datasets/{dataset['id']}")["digest"] for dataset in (one, other)}
    assert len(digests) == 4
