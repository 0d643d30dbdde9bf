"""Every unsuccessful response is an RFC 9457 problem with a stable code that repeats no part of the call."""

import difflib
import io
import json
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from hypothesis import given, strategies as st

from app.api import problems
from app.config import Settings
from app.db import migrate
from app.installations import Installation
from app.main import create_app
from lethe.contract import fields
from lethe.contract.problems import LedgerCorrupt
from tests.tables import each

Refused = Callable[..., dict[str, Any]]
SECRET = "jane.doe@example.org"


def test_the_type_is_named_after_the_code(gateway: TestClient, refused: Refused) -> None:
    """The type of a problem is a URN that contains its code, and all problems of a type have the same title."""
    first, second = (gateway.get(f"/v1/runs/run_{number}") for number in range(2))
    problem = refused(first, 404, "run_unknown")
    assert problem["type"] == "urn:lethe:problem:run_unknown"
    assert problem["title"] == refused(second, 404, "run_unknown")["title"]
    assert problem["detail"] != second.json()["detail"]


def test_framework_errors_are_problems_too(gateway: TestClient, refused: Refused) -> None:
    """An unknown path returns 404 and a wrong method returns 405, both as problem documents."""
    refused(gateway.get("/v1/nothing"), 404, "not_found")
    refused(gateway.put("/v1/models"), 405, "method_not_allowed")


@pytest.mark.parametrize(
    ("method", "path", "known"),
    [
        ("PUT", "/v1/models", "GET, POST"),
        ("DELETE", "/v1/deletion-requests", "GET, POST"),
        ("POST", "/v1/runs/run_0", "GET"),
        ("GET", "/v1/deletion-requests/dr_0/cancel", "POST"),
        ("OPHELIA", "/openapi.json", "GET, HEAD"),
        ("POST", "/admin/static/style.css", "GET, HEAD"),
    ],
)
def test_a_405_lists_the_allowed_methods(
    gateway: TestClient, refused: Refused, method: str, path: str, known: str
) -> None:
    """A 405 response lists every method that any route of the path allows, both in the Allow header and in the
    detail."""
    answer = gateway.request(method, path)
    problem = refused(answer, 405, "method_not_allowed")
    assert answer.headers["allow"] == known
    assert problem["detail"] == f"This path supports {known}."


UNREADABLE = {
    "no JSON": (b"{", "application/json"),
    "no UTF-8": (b'{"name": "\xff"}', "application/json"),
    "lists that never end": (b"[" * 30, "application/json"),
    "a lone surrogate": (b'{"name": "\\ud800"}', "application/json"),
    "a lone surrogate for a name": (b'{"\\ud800": 1}', "application/json"),
    "a number": (b"1", "application/json"),
    "another content type": (b"<a/>", "application/xml"),
    "nothing": (b"", "application/json"),
}
FORMS = {
    "no boundary": (b"", "multipart/form-data"),
    "nothing in a form": (b"--x--", "multipart/form-data; boundary=x"),
    "nothing in a Form": (b"--x--", "Multipart/Form-Data; boundary=x"),
    "a form of another kind": (b"name=people", "application/x-www-form-urlencoded"),
    "JSON for a form": (b"{}", "application/json"),
}


@each(("path", "case"), [("/v1/models", case) for case in UNREADABLE] + [("/v1/datasets", case) for case in FORMS])
def test_an_unreadable_body_is_a_422(gateway: TestClient, refused: Refused, path: str, case: str) -> None:
    """An unreadable body results in a 422, even where the framework itself would send a different response."""
    content, kind = (UNREADABLE | FORMS)[case]
    refused(gateway.post(path, content=content, headers={"Content-Type": kind}), 422, "input_invalid")


def test_a_422_names_the_field_without_its_value(gateway: TestClient, refused: Refused) -> None:
    """A 422 response names the field and states what was expected, but does not contain the submitted value."""
    body = {"name": SECRET * 20, "dataset_id": 1, "l2": SECRET, "target": {"epsilon": SECRET}}
    problem = refused(gateway.post("/v1/models", json=body), 422, "input_invalid")
    assert {fault["path"] for fault in problem["errors"]} == {"name", "dataset_id", "l2", "target.epsilon"}
    assert SECRET not in str(problem)


def test_ten_faults_of_a_body_are_listed(
    gateway: TestClient, refused: Refused, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a body has thousands of unknown fields, the response lists ten of them. Suggestions are computed only for
    these ten, because comparing every unknown field with every known one used to take minutes of processor time."""
    compared: list[str] = []
    nearest = difflib.get_close_matches
    monkeypatch.setattr(
        difflib, "get_close_matches", lambda word, *rest, **kw: (compared.append(word), nearest(word, *rest, **kw))[1]
    )
    body = {"name": "m", "dataset_id": "ds_1"} | {f"field{number}": 1 for number in range(5000)}
    problem = refused(gateway.post("/v1/models", json=body), 422, "input_invalid")
    assert len(problem["errors"]) == 10
    assert len(compared) <= 10
    batch = {"requests": [body]}
    problem = refused(gateway.post("/v1/deletion-requests:batch", json=batch), 422, "batch_refused")
    assert len(problem["errors"]) == 10
    assert len(compared) <= 20


MANY = {f"field{number}": 1 for number in range(50_000)}
LARGE: dict[str, tuple[str, dict[str, Any]]] = {
    "fields of a batch": ("/v1/deletion-requests:batch", MANY),
    "fields of a certificate": ("/v1/certificates:verify", MANY),
    "metadata": ("/v1/deletion-requests", {"subject_id": "p", "metadata": dict.fromkeys(list(MANY)[:19_000], 1)}),
    "scopes": ("/v1/api-keys", {"name": "k", "scopes": ["no scope"] * 19_000}),
    "layers": ("/v1/models", {"name": "m", "dataset_id": "ds_1", "tangent": {"network_id": "n", "layers": [1] * 9999}}),
    "numbers of records": ("/v1/models/mdl_1/predictions", {"records": [[None] * 20_000] * 10}),
}


@each("case", LARGE)
def test_many_faults_take_little_memory(
    gateway: TestClient, refused: Refused, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    """A large body produces at most a few hundred faults, of which ten are listed. Without this limit, every two bytes
    of the body could produce a fault that takes up a kilobyte of memory."""
    counts: list[int] = []
    listed = problems.faults
    monkeypatch.setattr(
        problems,
        "faults",
        lambda error, *rest, **kw: (counts.append(len(error.errors())), listed(error, *rest, **kw))[1],
    )
    path, body = LARGE[case]
    problem = refused(gateway.post(path, json=body), 422, "input_invalid")
    assert 1 <= len(problem["errors"]) <= 10
    assert sum(counts) <= 300


VALUES = {
    "fields": ("/v1/deletion-requests", '{"subject_id": "p", "metadata": {%s}}', '"%d": 1'),
    "list": ("/v1/api-keys", '{"name": "k", "scopes": [%s]}', "%d"),
    "empty lists": ("/v1/models", '{"name": [%s]}', "[]"),
    "requests of a batch": ("/v1/deletion-requests:batch", '{"requests": [%s]}', "{}"),
}


@each("case", VALUES)
def test_a_body_with_too_many_values_is_refused(
    gateway: TestClient, refused: Refused, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    """A body with hundreds of thousands of values is refused before it is parsed, whatever the values are. The count
    includes commas within strings. A body below the limit is read."""
    parsed: list[int] = []
    loads = json.loads
    monkeypatch.setattr(
        json, "loads", lambda text, *rest, **kw: (parsed.append(len(text)), loads(text, *rest, **kw))[1]
    )
    path, frame, value = VALUES[case]
    num_values = 600_000 if path.endswith("batch") else 60_000
    values = ",".join(value % number if "%" in value else value for number in range(num_values))
    headers = {"Content-Type": "application/json"}
    problem = refused(gateway.post(path, content=frame % values, headers=headers), 413, "upload_too_large")
    assert "values" in problem["detail"]
    assert not [length for length in parsed if length > 100_000]
    short = ",".join(value % number if "%" in value else value for number in range(1000))
    assert gateway.post(path, content=frame % short, headers=headers).status_code != 413


@each(("path", "depth"), [("/v1/models", 33), ("/v1/models", 900), ("/v1/deletion-requests:batch", 100_000)])
def test_a_body_that_is_too_deep_is_refused(
    gateway: TestClient, refused: Refused, monkeypatch: pytest.MonkeyPatch, path: str, depth: int
) -> None:
    """A body with deeply nested lists is refused before it is parsed, even if the lists are not closed."""
    parsed: list[int] = []
    loads = json.loads
    monkeypatch.setattr(
        json, "loads", lambda text, *rest, **kw: (parsed.append(len(text)), loads(text, *rest, **kw))[1]
    )
    headers = {"Content-Type": "application/json"}
    for content in ('{"a":' * depth + "1" + "}" * depth, "[" * depth + "]" * depth, "[" * depth):
        problem = refused(gateway.post(path, content=content, headers=headers), 413, "upload_too_large")
        assert "32 deep" in problem["detail"]
        assert len(content) not in parsed


@each("path", ["/v1/models", "/v1/deletion-requests:batch"])
def test_a_body_of_32_levels_is_read(gateway: TestClient, refused: Refused, path: str) -> None:
    """A body with lists nested 32 levels deep is read, and brackets within strings do not count towards the depth."""
    headers = {"Content-Type": "application/json"}
    for content in ("[" * 32 + "]" * 32, json.dumps({"[" * 500: '\\"' + "[{" * 500})):
        refused(gateway.post(path, content=content, headers=headers), 422, "input_invalid")


def test_json_in_forms_has_the_same_depth_limit(upload: Callable[..., httpx.Response], refused: Refused) -> None:
    """JSON in a form field has the same depth limit as a body."""
    for field, depth in (("classes", 33), ("schema", 100_000)):
        answer = upload(**{field: "[" * depth + "]" * depth})
        assert "32 deep" in refused(answer, 413, "upload_too_large")["detail"]


@given(st.recursive(st.text('[]{}"\\,: a'), lambda inner: st.lists(inner) | st.dictionaries(st.text('[]{}"\\'), inner)))
def test_nesting_depth_is_counted_as_a_parser_counts_it(value: object) -> None:
    """Nested lists and objects count towards the depth. Brackets and quotes within strings do not, regardless of how
    they are escaped."""
    text = json.dumps(value).encode()
    depth = _depth_of(value)
    for levels in (fields.MAX_DEPTH - depth, fields.MAX_DEPTH - depth + 1):
        wrapped = b"[" * levels + text + b"]" * levels
        assert fields.is_deep(wrapped) is (levels + depth > fields.MAX_DEPTH)


def _depth_of(value: object) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inner is None else 1 + max(map(_depth_of, inner), default=0)


@each(
    ("path", "max_bytes"),
    [("/v1/models", 2**20), ("/v1/deletion-requests", 2**20), ("/v1/deletion-requests:batch", 2**25)],
)
def test_a_body_that_is_too_long_is_refused(gateway: TestClient, refused: Refused, path: str, max_bytes: int) -> None:
    """A JSON body of more than a megabyte is refused before it is parsed, unless the operation accepts many objects."""
    padded = b"{" + b" " * (max_bytes - 2) + b"}"
    refused(gateway.post(path, content=padded, headers={"Content-Type": "application/json"}), 422, "input_invalid")
    answer = gateway.post(path, content=padded + b" ", headers={"Content-Type": "application/json"})
    assert str(max_bytes) in refused(answer, 413, "upload_too_large")["detail"]


@pytest.fixture
def log() -> io.StringIO:
    """Return the log of the gateway."""
    return io.StringIO()


@pytest.fixture
def defective(settings: Settings, log: io.StringIO) -> Iterator[Callable[[Exception], Any]]:
    """Start a gateway with a route that raises the given error."""
    app: FastAPI = create_app(settings)
    failures: list[Exception] = []

    @app.get("/fail")
    def fail() -> None:
        raise failures.pop()

    def call(error: Exception) -> Any:
        failures.append(error)
        with redirect_stderr(log):
            return client.get("/fail")

    with TestClient(app) as client:
        yield call


@pytest.mark.parametrize("error", [ValueError(SECRET), LedgerCorrupt("Model mdl_1 does not verify.")])
def test_an_unexpected_error_is_logged_without_its_text(
    log: io.StringIO, defective: Callable[[Exception], Any], refused: Refused, error: Exception
) -> None:
    """An unexpected error returns 500. The log states the error's class and location but not its text, which might
    quote a record."""
    problem = refused(defective(error), 500, getattr(error, "code", "internal_error"))
    assert SECRET not in str(problem) + log.getvalue()
    assert json.loads(log.getvalue())["event"] == "gateway.call_failed"
    assert "ValueError" in log.getvalue() or "ledger_corrupt" in log.getvalue()


def test_an_unusable_database_returns_503(gateway: TestClient, installation: Installation, refused: Refused) -> None:
    """If the database is unavailable, a call returns 503 with the time after which to retry."""
    migrate.downgrade(installation.database.engine)
    answer = gateway.get("/v1/models")
    refused(answer, 503, "unavailable")
    assert int(answer.headers["retry-after"]) > 0


def test_routes_document_their_problems(gateway: TestClient) -> None:
    """Every problem response in the OpenAPI document has the media type and the members of a problem document."""
    document = gateway.get("/openapi.json").json()
    answers = [
        answer
        for methods in document["paths"].values()
        for operation in methods.values()
        for status, answer in operation["responses"].items()
        if status.startswith("4")
    ]
    assert answers
    for answer in answers:
        [(kind, content)] = answer["content"].items()
        assert kind == problems.MEDIA_TYPE
        assert set(content["schema"]["required"]) == {"type", "title", "status", "detail", "code"}
        assert answer["description"].startswith("`")
