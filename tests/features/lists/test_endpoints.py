"""Many requests at once, from JSON and CSV, and exports of all."""

import csv
import dataclasses
import hashlib
import io
from collections.abc import Callable
from typing import Any

import httpx
import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, given, settings, strategies as st

from app.db.tables import DeletionRequest
from app.features.lists import endpoints
from app.installations import Installation
from lethe.contract.sets import Scope
from lethe.features.lists.contract import MAX_BATCH_REQUESTS
from tests.tables import each

CSV = {"Content-Type": "text/csv"}
Ask = Callable[..., httpx.Response]


@pytest.fixture
def ask(gateway: TestClient) -> Ask:
    """Return a function that posts a batch of requests and returns the response."""

    def send(*requests: Any, headers: dict[str, str] | None = None, **query: str) -> httpx.Response:
        body = {"requests": list(requests)}
        return gateway.post("/v1/deletion-requests:batch", json=body, headers=headers, params=query)

    return send


@pytest.fixture
def ask_csv(gateway: TestClient) -> Ask:
    """Return a function that posts a batch as CSV and returns the response."""

    def send(content: str | bytes, headers: dict[str, str] | None = None, **query: str) -> httpx.Response:
        return gateway.post("/v1/deletion-requests.csv", content=content, headers=CSV | (headers or {}), params=query)

    return send


def stored(installation: Installation) -> list[DeletionRequest]:
    with installation.database.reading() as session:
        found = session.scalars(sa.select(DeletionRequest)).all()
    return sorted(found, key=lambda request: request.particulars.external_id or "")


def test_each_request_has_its_own_result(
    ask: Ask, new_dataset: Callable[..., dict[str, Any]], installation: Installation
) -> None:
    """Valid requests of a batch are stored, and each invalid request gets its own error, in the order of submission."""
    new_dataset()
    answer = ask(
        {"subject_id": "p1", "external_id": "a"},
        {"subject_id": "p2", "subjectid": "typo"},
        {"subject_id": "nobody", "external_id": "b"},
        {"subject_id": "p3", "dataset_ids": ["ds_none"]},
        "not an object",
    )
    assert answer.status_code == 207
    body = answer.json()
    assert (body["accepted"], body["refused"]) == (2, 3)
    assert [item["index"] for item in body["items"]] == [0, 1, 2, 3, 4]
    assert [item["status"] for item in body["items"]] == [202, 422, 202, 404, 422]
    assert [item.get("code") for item in body["items"]] == [
        None,
        "input_invalid",
        None,
        "dataset_unknown",
        "input_invalid",
    ]
    assert body["items"][1]["errors"][0]["path"] == "subjectid"
    assert [(one.id, one.particulars.external_id) for one in stored(installation)] == [
        (body["items"][0]["id"], "a"),
        (body["items"][2]["id"], "b"),
    ]


def test_the_status_of_a_batch_depends_on_acceptance(ask: Ask, installation: Installation) -> None:
    """A batch gets a 202 if every request in it was accepted, and a 422 with one error per request if none was."""
    refused = ask({"subject_id": ""}, {"subject_id": "p1", "dataset_ids": ["ds_none"]})
    assert refused.status_code == 422
    assert refused.headers["Content-Type"] == "application/problem+json"
    assert refused.json()["code"] == "batch_refused"
    assert [fault["path"] for fault in refused.json()["errors"]] == ["requests.0.subject_id", "requests.1"]
    assert stored(installation) == []
    assert ask({"subject_id": "p1"}, {"subject_id": "p2"}).status_code == 202
    assert len(stored(installation)) == 2


@each("count", [0, MAX_BATCH_REQUESTS + 1])
def test_the_size_of_a_batch_is_limited(ask: Ask, count: int) -> None:
    """A batch contains between one and ten thousand requests."""
    assert ask(*[{"subject_id": "p1"}] * count).status_code == 422


def test_a_repeated_batch_is_stored_once(ask: Ask, installation: Installation, monkeypatch: pytest.MonkeyPatch) -> None:
    """Repeating a large batch with its idempotency key stores it once and returns the identical response."""
    monkeypatch.setattr(endpoints, "_GROUP", 10)
    once = {"Idempotency-Key": "nightly"}
    requests = [{"subject_id": f"p{i}", "external_id": str(i)} for i in range(15)]
    first, second = ask(*requests, headers=once), ask(*requests, headers=once)
    assert first.status_code == second.status_code == 202
    assert first.json() == second.json()
    assert len(stored(installation)) == len(requests)
    other = ask({"subject_id": "another"}, headers=once)
    assert (other.status_code, other.json()["code"]) == (409, "idempotency_conflict")
    assert len(stored(installation)) == len(requests)


def test_requests_are_read_from_csv(ask_csv: Ask, gateway: TestClient) -> None:
    """A CSV file can contain a byte order mark, empty cells and metadata columns. Invalid lines are reported."""
    answer = ask_csv(
        "\ufeffsubject_id,regulation,external_id,submitted_at,metadata.shop,identity_verified\r\n"
        'p1,ccpa,"a ""b"", c",2026-01-02T03:04:05Z,berlin,\r\n'
        "p2,,,,,false\r\n"
        "p3,nowhere,,,,\r\n"
        "p4\r\n"
    )
    assert answer.status_code == 207
    items = answer.json()["items"]
    assert [(item["line"], item["status"]) for item in items] == [(2, 202), (3, 202), (4, 422), (5, 422)]
    first = gateway.get(f"/v1/deletion-requests/{items[0]['id']}").json()
    assert (first["regulation"], first["external_id"], first["metadata"]) == ("ccpa", 'a "b", c', {"shop": "berlin"})
    assert first["submitted_at"] == "2026-01-02T03:04:05Z"
    assert items[1]["request_status"] == "in_review"


@each(
    ("content", "path"),
    [
        (b"", "body"),
        (b"subject_id\r\n", "body"),
        (b"subject_id,subject_id\r\np1,p1\r\n", "line 1"),
        (b"subject_id,e-mail\r\np1,x\r\n", "line 1"),
        (b'subject_id\r\n"p1\r\n', "line 2"),
        (b"subject_id\r\n\xff\r\n", "line 2"),
    ],
)
def test_a_malformed_csv_is_refused(ask_csv: Ask, installation: Installation, content: bytes, path: str) -> None:
    """A CSV file is refused as a whole if it cannot be parsed or if its header has no subject column, a duplicate
    column or an unknown column. The error never quotes the file."""
    answer = ask_csv(content)
    assert answer.status_code == 422
    assert [fault["path"] for fault in answer.json()["errors"]] == [path]
    assert "p1" not in answer.text
    assert stored(installation) == []


def test_a_hash_finds_the_same_person(ask_csv: Ask, new_dataset: Callable[..., dict[str, Any]]) -> None:
    """A request that gives the SHA-256 of a subject id finds the same person as a request that gives the id."""
    new_dataset()
    sha256_of_p1 = hashlib.sha256(b"p1").hexdigest()
    items = ask_csv(f"subject_sha256,regulation\n{sha256_of_p1},ccpa\n{'0' * 64},ccpa\n").json()["items"]
    assert [item["request_status"] for item in items] == ["accepted", "completed"]


def test_the_export_has_every_request_once(ask: Ask, gateway: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """The CSV export contains the requests of all pages exactly once. It accepts the same filters as the list."""
    monkeypatch.setattr(endpoints, "_PAGE", 20)
    count = 50
    ask(*[{"subject_id": f"p{i}", "regulation": "ccpa" if i % 2 else "gdpr"} for i in range(count)])
    rows = list(csv.DictReader(io.StringIO(gateway.get("/v1/deletion-requests.csv").text)))
    assert len({row["id"] for row in rows}) == len(rows) == count
    assert {row["outcome"] for row in rows} == {"nothing_held"}
    of_ccpa = gateway.get("/v1/deletion-requests.csv", params={"regulation": "ccpa"}).text
    assert {row["regulation"] for row in csv.DictReader(io.StringIO(of_ccpa))} == {"ccpa"}
    assert gateway.get("/v1/deletion-requests.csv?status=running").text.count("\n") == 1


@pytest.mark.usefixtures("live")
def test_the_export_filters_like_the_list(ask: Ask, gateway: TestClient, work: Callable[[], int]) -> None:
    """Each filter, alone or combined with others, selects the same requests in the CSV export as in the list."""
    first = ask({"subject_id": "p1", "external_id": "a", "regulation": "ccpa"}, source="one").json()["items"][0]["id"]
    work()
    ask({"subject_id": "p1", "refers_to": first}, {"subject_id": "p2", "external_id": "a"}, source="two")
    model_id = gateway.get("/v1/models").json()["items"][0]["id"]
    sha256 = hashlib.sha256(b"p1").hexdigest()
    for sought, count in (
        ({}, 3),
        ({"external_id": "a"}, 2),
        ({"external_id": "b"}, 0),
        ({"refers_to": first}, 1),
        ({"subject_id": "p1"}, 2),
        ({"subject_sha256": sha256}, 2),
        ({"model_id": model_id}, 2),
        ({"model_id": model_id, "status": "accepted", "external_id": "a"}, 1),
        ({"due_before": "2100-01-01T00:00:00Z"}, 1),
        ({"source": "one"}, 1),
        ({"source": "two", "regulation": "gdpr"}, 2),
    ):
        listed = [one["id"] for one in gateway.get("/v1/deletion-requests", params=sought).json()["items"]]
        exported = gateway.get("/v1/deletion-requests.csv", params=sought).text
        assert [row["id"] for row in csv.DictReader(io.StringIO(exported))] == listed, sought
        assert len(listed) == count, sought


def test_the_export_of_an_app_reveals_nothing(
    ask: Ask, gateway: TestClient, new_dataset: Callable[..., dict[str, Any]], key_with: Callable[..., dict[str, str]]
) -> None:
    """No column of an application's export reveals whether data is held."""
    new_dataset()
    app = key_with(Scope.REQUESTS_READ, Scope.REQUESTS_WRITE)
    made = ask({"subject_id": "p1"}, {"subject_id": "nobody"}, headers=app).json()
    assert {item["request_status"] for item in made["items"]} == {"accepted"}
    rows = list(csv.DictReader(io.StringIO(gateway.get("/v1/deletion-requests.csv", headers=app).text)))
    different = {name for name in rows[0] if rows[0][name] != rows[1][name]}
    assert different == {"id", "subject_ref"}


@given(st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=30))
@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_text_round_trips_through_csv(ask_csv: Ask, gateway: TestClient, external_id: str) -> None:
    """An external id with quotes, commas or line breaks survives a round trip through CSV."""
    text = io.StringIO()
    csv.writer(text).writerows([["subject_id", "external_id"], ["p1", external_id]])
    answer = ask_csv(text.getvalue().encode())
    assert answer.status_code == 202, answer.text
    exported = gateway.get("/v1/deletion-requests.csv").content.decode()
    newest = next(iter(csv.DictReader(io.StringIO(exported, newline=""))))
    assert (newest["id"], newest["external_id"]) == (answer.json()["items"][0]["id"], external_id)


def test_a_repeated_batch_gets_the_original_response(ask: Ask, gateway: TestClient, installation: Installation) -> None:
    """Repeating a batch returns the original response, even for refused requests that would be accepted now."""
    state = gateway.app.state  # type: ignore[attr-defined]
    wanted = [
        {"subject_id": "p1", "external_id": "a", "callback_url": "http://10.1.0.1/hook"},
        {"subject_id": "p2", "external_id": "b"},
    ]
    first = ask(*wanted, headers={"Idempotency-Key": "k"})
    assert (first.status_code, [one["status"] for one in first.json()["items"]]) == (207, [422, 202])
    usual = state.installation
    allowing = usual.settings.model_copy(update={"webhook_allowed_networks": "10.0.0.0/8"})
    state.installation = dataclasses.replace(usual, settings=allowing)
    try:
        assert ask(*wanted, headers={"Idempotency-Key": "k"}).json() == first.json()
        again = ask(*wanted, headers={"Idempotency-Key": "l"})
        assert (again.status_code, again.json()["accepted"]) == (202, 2)
    finally:
        state.installation = usual
    assert [request.particulars.external_id for request in stored(installation)] == ["a", "b", "b"]


def test_metadata_is_limited(ask: Ask) -> None:
    """A request's metadata has at most 50 entries of at most 2000 characters each."""
    answer = ask(
        {"subject_id": "p1", "metadata": {"a": "x" * 2000}}, {"subject_id": "p1", "metadata": {"a": "x" * 2001}}
    )
    assert [one["status"] for one in answer.json()["items"]] == [202, 422]


def test_an_idempotency_key_belongs_to_one_endpoint(gateway: TestClient) -> None:
    """An idempotency key used for a batch cannot be used for a single request, or vice versa."""
    single, batch = ("/v1/deletion-requests", {"subject_id": "p1"}), ("/v1/deletion-requests:batch", None)
    many = {"requests": [{"subject_id": f"p{number}"} for number in range(3)]}
    for key, calls in (("a", [single, batch]), ("b", [batch, single])):
        answers = [gateway.post(path, json=body or many, headers={"Idempotency-Key": key}) for path, body in calls]
        assert [one.status_code for one in answers] == [202, 409]
        assert answers[1].json()["code"] == "idempotency_conflict"
        repeated = gateway.post(calls[0][0], json=calls[0][1] or many, headers={"Idempotency-Key": key})
        assert repeated.json() == answers[0].json()
    assert len(gateway.get("/v1/deletion-requests").json()["items"]) == 4
