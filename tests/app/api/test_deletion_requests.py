"""The endpoints below `/v1/deletion-requests`, and the life of requests."""

import hashlib
from collections.abc import Callable
from typing import Any

import sqlalchemy as sa
from fastapi.testclient import TestClient

from app.db.tables import IdempotentAnswer
from app.installations import Installation
from app.unlearning.queue import ClaimedRun
from lethe.contract.sets import Scope
from tests.tables import each

Make = Callable[..., dict[str, Any]]
Get = Callable[[str], Any]
Work = Callable[[], int]
Refused = Callable[..., dict[str, Any]]

PLACE = "/v1/deletion-requests"


def test_a_request_is_accepted(gateway: TestClient, live: dict[str, Any], get: Get) -> None:
    """A valid request returns 202 with a location, a deadline and an estimate for each model."""
    body = {
        "subject_id": "p1",
        "regulation": "ccpa",
        "ground": "consent_withdrawn",
        "submitted_at": "2026-01-31T12:00:00+02:00",
        "external_id": "case 7",
        "metadata": {"desk": "4"},
    }
    answer = gateway.post(PLACE, json=body)
    request = answer.json()
    assert (answer.status_code, answer.headers["location"]) == (202, f"{PLACE}/{request['id']}")
    assert request == request | {name: body[name] for name in ("regulation", "ground", "external_id", "metadata")}
    assert (request["submitted_at"], request["due_at"]) == ("2026-01-31T10:00:00Z", "2026-03-17T10:00:00Z")
    assert (request["status"], request["outcome"], request["completed_at"]) == ("accepted", None, None)
    [estimate] = request["estimate"]["models"]
    assert estimate == {"model_id": live["id"], "kind": "unlearn", "steps": request["estimate"]["steps"]}
    owed = {"model_id": live["id"], "status": "pending", "run_id": None, "version": None, "certificate_id": None}
    assert request["models"] == [owed]
    assert get(f"/deletion-requests/{request['id']}") == request


def test_serving_a_request_takes_the_estimated_steps(
    live: dict[str, Any], forget: Make, shown: Make, get: Get, work: Work
) -> None:
    """Serving a request takes the estimated number of steps. A completed request no longer has an estimate."""
    request = forget("p1")
    work()
    [run] = get(f"/runs?model_id={live['id']}&limit=1")["items"]
    assert run["steps_done"] == request["estimate"]["steps"]
    assert shown(request)["estimate"] is None


MALFORMED = {
    "no subject": {},
    "an empty subject": {"subject_id": ""},
    "a number for a subject": {"subject_id": 7},
    "a field that is not ours": {"subject_id": "p1", "email": "p1@example.org"},
    "another regulation": {"subject_id": "p1", "regulation": "none"},
    "a time without a zone": {"subject_id": "p1", "submitted_at": "2026-01-01T00:00:00"},
    "the last day there is": {"subject_id": "p1", "submitted_at": "9999-12-31T23:59:59Z"},
    "the first day there is": {"subject_id": "p1", "submitted_at": "0001-01-01T00:00:00+10:00"},
    "no datasets": {"subject_id": "p1", "dataset_ids": []},
    "metadata that are no texts": {"subject_id": "p1", "metadata": {"a": 1}},
    "NUL in an id": {"subject_id": "p1", "external_id": "a\0"},
    "NUL in a dataset's id": {"subject_id": "p1", "dataset_ids": ["ds_\0"]},
    "NUL in the id of another request": {"subject_id": "p1", "refers_to": "dr_\0"},
    "an id that is too long": {"subject_id": "p1", "refers_to": "d" * 201},
}


@each("case", MALFORMED)
def test_a_malformed_request_is_refused(
    gateway: TestClient, refused: Refused, stored: Callable[[], dict[str, int]], case: str
) -> None:
    """A malformed request returns 422 and is not stored; the error repeats nothing about the person."""
    problem = refused(gateway.post(PLACE, json=MALFORMED[case]), 422, "input_invalid")
    assert "p1" not in str(problem)
    assert stored()["deletion_requests"] == 0


def test_a_batch_may_name_many_unknown_datasets(gateway: TestClient, live: dict[str, Any]) -> None:
    """If a batch names 70,000 unknown datasets, its response contains a result for each item, and its valid request is
    accepted."""
    asked: list[dict[str, Any]] = [
        {"subject_id": "p1", "dataset_ids": [f"ds_{item}_{number}" for number in range(1000)]} for item in range(70)
    ]
    asked.append({"subject_id": "p2", "dataset_ids": [live["dataset_id"]]})
    answer = gateway.post(f"{PLACE}:batch", json={"requests": asked})
    assert answer.status_code == 207
    items = answer.json()["items"]
    assert {item["code"] for item in items[:70]} == {"dataset_unknown"}
    assert items[70]["status"] == 202


def test_an_unstorable_item_is_refused_alone(gateway: TestClient, live: dict[str, Any]) -> None:
    """If one item of a batch contains text that databases cannot store, only that item is refused, wherever the text
    appears."""
    asked = [{"subject_id": "p1"}, {"subject_id": "p2", "refers_to": "\0"}, {"subject_id": "p3"}]
    answer = gateway.post(f"{PLACE}:batch", json={"requests": asked})
    assert [item["status"] for item in answer.json()["items"]] == [202, 422, 202]


def test_a_stored_response_does_not_identify_the_person(
    gateway: TestClient, live: dict[str, Any], installation: Installation
) -> None:
    """The response stored for an idempotency key does not identify the person, and repeating the call returns
    the original response."""
    once = {"Idempotency-Key": "k"}
    first = gateway.post(PLACE, json={"subject_id": "p1", "metadata": {"desk": "4"}}, headers=once).json()
    with installation.database.reading() as session:
        [kept] = session.scalars(sa.select(IdempotentAnswer.answer))
    assert first["id"] in str(kept)
    assert first["subject_ref"] not in str(kept)
    assert gateway.post(PLACE, json={"subject_id": "p1", "metadata": {"desk": "4"}}, headers=once).json() == first


def test_repeating_a_request_creates_one(
    gateway: TestClient, live: dict[str, Any], refused: Refused, stored: Callable[[], dict[str, int]], work: Work
) -> None:
    """Repeating a request with the same Idempotency-Key, which can be up to 255 characters long, creates no second
    request, even after the first has completed. Reusing the key with a different body is a conflict."""
    once = {"Idempotency-Key": "k" * 255}
    first = gateway.post(PLACE, json={"subject_id": "p1"}, headers=once)
    work()
    again = gateway.post(PLACE, json={"subject_id": "p1"}, headers=once)
    assert (again.status_code, again.json(), again.headers["location"]) == (
        202,
        first.json(),
        first.headers["location"],
    )
    refused(gateway.post(PLACE, json={"subject_id": "p2"}, headers=once), 409, "idempotency_conflict")
    assert stored()["deletion_requests"] == 1
    assert work() == 0


def test_an_idempotency_key_belongs_to_its_api_key(
    gateway: TestClient, key_with: Callable[..., dict[str, str]], stored: Callable[[], dict[str, int]]
) -> None:
    """Two callers that use the same Idempotency-Key do not receive each other's responses."""
    for caller in (key_with(Scope.REQUESTS_WRITE), key_with(Scope.REQUESTS_WRITE)):
        answer = gateway.post(
            PLACE, json={"subject_id": caller["Authorization"]}, headers=caller | {"Idempotency-Key": "k"}
        )
        assert answer.status_code == 202
    assert stored()["deletion_requests"] == 2


def test_a_request_about_an_unknown_person_completes_at_once(
    gateway: TestClient, live: dict[str, Any], forget: Make, statuses: Callable[..., list[str]], work: Work
) -> None:
    """A request about an unknown person completes immediately, without a run. It is otherwise indistinguishable from
    other requests."""
    request = forget("stranger")
    assert (request["status"], request["outcome"], request["models"]) == ("completed", "nothing_held", [])
    assert request["completed_at"]
    assert statuses(request) == ["received", "accepted", "completed"]
    assert work() == 0


def test_strict_requests_return_404_for_unknown_people(
    gateway: TestClient,
    live: dict[str, Any],
    key_with: Callable[..., dict[str, str]],
    refused: Refused,
    stored: Callable[[], dict[str, int]],
) -> None:
    """With strict=true, an admin gets 404 for an unknown person and no request is created; a caller without the
    required scope gets 403."""
    refused(gateway.post(f"{PLACE}?strict=true", json={"subject_id": "stranger"}), 404, "subject_unknown")
    writer = key_with(Scope.REQUESTS_WRITE)
    for subject_id in ("stranger", "p1"):
        answer = gateway.post(f"{PLACE}?strict=true", json={"subject_id": subject_id}, headers=writer)
        refused(answer, 403, "scope_missing")
    assert stored()["deletion_requests"] == 0
    assert gateway.post(f"{PLACE}?strict=true", json={"subject_id": "p1"}).status_code == 202


def test_a_waiting_request_can_be_cancelled(
    gateway: TestClient,
    live: dict[str, Any],
    forget: Make,
    statuses: Callable[..., list[str]],
    get: Get,
    work: Work,
    refused: Refused,
) -> None:
    """A waiting request can be cancelled; none of its rows are erased, and cancelling it a second time is refused."""
    request = forget("p1")
    place = f"{PLACE}/{request['id']}/cancel"
    assert gateway.post(place).json()["status"] == "cancelled"
    assert statuses(request) == ["received", "accepted", "cancelled"]
    refused(gateway.post(place), 409, "transition_forbidden")
    assert work() == 0
    assert get(f"/datasets/{live['dataset_id']}")["num_records"] == 60


def test_a_request_cannot_be_cancelled_once_its_rows_are_claimed(
    gateway: TestClient,
    live: dict[str, Any],
    forget: Make,
    claim: Callable[[], ClaimedRun],
    give_up: Callable[[], None],
    work: Work,
    refused: Refused,
) -> None:
    """Once its rows are claimed, a request cannot be cancelled, no matter whether the run is in progress, its worker
    has died or the request has completed."""
    place = f"{PLACE}/{forget('p1')['id']}/cancel"
    claim()
    refused(gateway.post(place), 409, "transition_forbidden")
    give_up()
    refused(gateway.post(place), 409, "transition_forbidden")
    work()
    refused(gateway.post(place), 409, "transition_forbidden")


def test_lists_are_filtered(
    gateway: TestClient, live: dict[str, Any], forget: Make, get: Get, work: Work, refused: Refused
) -> None:
    """Lists of requests can be filtered by status, person, model and external id."""
    done = forget("p1", external_id="case 7")["id"]
    work()
    stranger, waiting = forget("stranger")["id"], forget("p2")["id"]

    def found(query: str) -> set[str]:
        return {item["id"] for item in get(f"/deletion-requests?{query}")["items"]}

    assert found("") == {done, stranger, waiting}
    assert found("status=completed") == {done, stranger}
    assert found("subject_id=p2") == {waiting}
    assert found("external_id=case%207") == {done}
    assert found(f"model_id={live['id']}") == {done, waiting}
    assert found(f"model_id={live['id']}&status=accepted") == {waiting}
    refused(gateway.get(f"{PLACE}?status=lost"), 422, "input_invalid")


def test_a_request_follows_an_earlier_one(
    gateway: TestClient, live: dict[str, Any], forget: Make, get: Get, refused: Refused
) -> None:
    """A request can refer to an earlier request about the same person that has ended. Referring to an open request is a
    conflict; a request about another person is reported as unknown."""
    open_, ended = forget("p1")["id"], forget("stranger")["id"]
    follower = forget("stranger", refers_to=ended)
    assert follower["refers_to"] == ended
    assert [one["id"] for one in get(f"/deletion-requests?refers_to={ended}")["items"]] == [follower["id"]]
    refused(gateway.post(PLACE, json={"subject_id": "p1", "refers_to": open_}), 409, "request_open")
    for other in (ended, "dr_0"):
        refused(gateway.post(PLACE, json={"subject_id": "p1", "refers_to": other}), 404, "request_unknown")


def test_a_subject_can_be_given_by_its_hash(
    gateway: TestClient, live: dict[str, Any], get: Get, refused: Refused
) -> None:
    """A caller must send either a subject id or its SHA-256 hash, but not both."""
    sha256 = hashlib.sha256(b"p1").hexdigest()
    made = gateway.post(PLACE, json={"subject_sha256": sha256}).json()
    assert [owed["model_id"] for owed in made["models"]] == [live["id"]]
    for query in (f"subject_sha256={sha256}", f"subject_sha256={sha256.upper()}", "subject_id=p1"):
        assert [one["id"] for one in get(f"/deletion-requests?{query}")["items"]] == [made["id"]]
    for wrong in (
        {},
        {"subject_id": "p1", "subject_sha256": sha256},
        {"subject_sha256": sha256[1:]},
        {"subject_sha256": f"{sha256[1:]}g"},
    ):
        refused(gateway.post(PLACE, json=wrong), 422, "input_invalid")
    refused(gateway.get(f"{PLACE}?subject_id=p1&subject_sha256={sha256}"), 422, "input_invalid")


def test_lists_are_filtered_by_regulation_and_dates(live: dict[str, Any], forget: Make, get: Get) -> None:
    """Lists can be filtered by regulation, by time of receipt and, for open requests, by deadline."""
    done = forget("stranger", regulation="ccpa")["id"]
    late = forget("p1", submitted_at="2020-01-01T00:00:00Z")["id"]
    other = forget("p2", regulation="ccpa")["id"]

    def found(query: str) -> set[str]:
        return {item["id"] for item in get(f"/deletion-requests?{query}")["items"]}

    assert found("regulation=ccpa") == {done, other}
    assert found("due_before=2020-02-02T00:00:00Z") == {late}
    assert found("due_before=2999-01-01T00:00:00Z") == {late, other}
    assert found("due_from=2020-02-02T00:00:00Z") == {other}
    assert found("due_from=2020-01-31T00:00:00Z&due_before=2020-02-02T00:00:00Z") == {late}
    assert found("received_from=2020-01-01T00:00:01Z") == {done, other}
    assert found("received_from=2020-01-01T00:00:00Z") == {done, late, other}
    assert found("received_before=2020-01-01T00:00:01Z") == {late}
    assert get("/deletion-requests:count?received_from=2020-01-01T00:00:01Z")["count"] == 2
    assert found("source=somewhere") == set()


def test_a_callback_url_is_checked_and_never_shown(gateway: TestClient, refused: Refused) -> None:
    """A callback URL is validated when a request is submitted, and no response contains it."""
    url = "https://example.org/hook?secret=7"
    answer = gateway.post(PLACE, json={"subject_id": "p1", "callback_url": url})
    assert answer.status_code == 202
    assert "secret" not in answer.text
    problem = refused(
        gateway.post(PLACE, json={"subject_id": "p1", "callback_url": "http://127.0.0.1/x"}), 422, "input_invalid"
    )
    assert [fault["path"] for fault in problem["errors"]] == ["callback_url"]
