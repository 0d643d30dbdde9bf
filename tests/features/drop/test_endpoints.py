"""Endpoints of the delete list, called from outside the gateway, with a real worker."""

import base64
import csv
import io
import json
from collections.abc import Callable, Iterable
from typing import Any

import httpx
import pytest
from fastapi.testclient import TestClient

from app.features.drop import jobs
from app.features.identities import jobs as identity_jobs
from app.installations import Installation
from lethe.contract.sets import Scope
from lethe.features.drop.standard import DropList, hash_of, hashes

Make = Callable[..., dict[str, Any]]
Get = Callable[[str], Any]
Work = Callable[[], int]
Refused = Callable[[httpx.Response, int, str], dict[str, Any]]
EMAIL, PHONE, REMOVED = "20260312_4821_Email.csv", "20260312_4821_Phone.csv", "20260312_4821_Removed.csv"
NUM_PEOPLE = 60


def line(number: int, hashed: str, **more: str) -> dict[str, str]:
    """Return a line of DROP."""
    return {"id": f"line{number:08}", "hash": hashed} | more


def of(number: int, hashed: str | None = None) -> dict[str, str]:
    """Return a line with the hash of the e-mail address of a person in the dataset."""
    return line(number, hashed or hash_of(f"p{number}@example.org"))


def load(gateway: TestClient, file: str, lines: Iterable[dict[str, str]], **more: Any) -> httpx.Response:
    """Load a whole file."""
    lines = list(lines)
    answer: httpx.Response = gateway.post(
        "/v1/drop:load", json={"file": file, "lines": lines, "num_lines": len(lines)} | more
    )
    return answer


def answer_of(gateway: TestClient, file: str = EMAIL) -> dict[int, str]:
    """Return the status of each line, keyed by the line's number."""
    answer = gateway.get("/v1/drop/answer.csv", params={"file": file})
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-disposition"] == f'attachment; filename="{file}"'
    header, *lines = csv.reader(io.StringIO(answer.text))
    assert header == ["Id", "Status"]
    return {int(id_[4:]): status for id_, status in lines}


def person(number: int, *emails: str, **more: Any) -> dict[str, Any]:
    """Return a person in the dataset with the hashes of their e-mail addresses."""
    hashed = [one for text in emails for one in hashes(DropList.EMAIL, {"email": text})]
    return {"id": f"p{number}", "hashes": {"Email": hashed}} | more


@pytest.fixture
def state(gateway: TestClient) -> Callable[..., None]:
    """Return a function that posts people, all of whom must be accepted."""

    def send(*people: dict[str, Any]) -> None:
        answer = gateway.post("/v1/drop/people", json={"people": list(people)})
        assert answer.json() == {"num_people": len(people)}, answer.text

    return send


@pytest.fixture
def held(new_dataset: Make) -> dict[str, Any]:
    """Create a dataset without a model, whose people are known only by customer id."""
    return new_dataset()


@pytest.fixture
def known(held: dict[str, Any], state: Callable[..., None]) -> None:
    """Load the e-mail addresses of all people in the dataset."""
    state(*(person(number, f"P{number}@Example.org") for number in range(NUM_PEOPLE)))


def test_a_file_is_answered_when_every_request_has_ended(
    gateway: TestClient, installation: Installation, known: None, get: Get, work: Work, refused: Refused
) -> None:
    """A matched line becomes a request with the line's ID. The line is answered as deleted if the request completes and
    as exempted if it is rejected. A line without a match is answered as not found. The answer is available only once
    every request of the file has ended."""
    assert load(gateway, EMAIL, [of(1), of(2), of(99)]).json() == {
        "file": EMAIL,
        "num_loaded": 3,
        "num_lines": 3,
        "num_irrevocable": 0,
    }
    [file] = get("/drop")["files"]
    assert (file["num_not_found"], file["num_waiting"], file["waiting"][0]["state"]) == (1, 2, "matching")
    jobs.match_drop(installation)
    first, second = sorted(get("/deletion-requests?source=drop")["items"], key=lambda request: request["external_id"])
    assert (first["external_id"], first["regulation"], first["status"]) == ("line00000001", "ccpa", "accepted")
    problem = refused(gateway.get("/v1/drop/answer.csv", params={"file": EMAIL}), 409, "drop_unanswered")
    assert "2 open" in problem["detail"]
    rejection = {"ground": "legal_obligation", "explanation": "Kept by law."}
    rejected = gateway.post(f"/v1/deletion-requests/{second['id']}/reject", json=rejection)
    assert rejected.status_code == 200, rejected.text
    assert work() == 1
    assert answer_of(gateway) == {1: "3", 2: "2", 99: "5"}
    assert gateway.get(f"/v1/datasets/{get('/datasets')['items'][0]['id']}/subjects/p1").status_code == 404
    actions = {entry["action"] for entry in get("/audit-log")["items"]}
    assert {"drop.loaded", "drop.answered"} <= actions


def test_a_list_cannot_be_answered_while_hashes_are_missing(
    gateway: TestClient, held: dict[str, Any], state: Callable[..., None], get: Get, refused: Refused
) -> None:
    """A list cannot be answered while some people have no hashes yet or some identifier is in the identity map only as
    a hash; requesting the answer then fails with a specific error. A person known to have no e-mail address does not
    prevent an answer."""
    load(gateway, EMAIL, [of(99)])
    refusals = []

    def refusal() -> str:
        problem = refused(gateway.get("/v1/drop/answer.csv", params={"file": EMAIL}), 409, "drop_unanswered")
        refusals.append(problem["detail"])
        return refusals[-1]

    assert "60 people and 0 identifiers" in refusal()
    state(*(person(number, "a@example.org") for number in range(NUM_PEOPLE - 1)))
    assert "1 people and 0 identifiers" in refusal()
    state(person(NUM_PEOPLE - 1))
    assert answer_of(gateway) == {99: "5"}
    hashed = {"kind": "email", "sha256": "ab" * 32}
    assert gateway.post("/v1/identities", json={"links": [{"identifiers": [{"id": "p1"}, hashed]}]}).status_code == 200
    assert "0 people and 1 identifiers" in refusal()
    by_list = {one["list_type"]: one for one in get("/drop")["lists"]}
    assert (by_list["Email"]["num_unhashed"], by_list["Email"]["num_unstated"]) == (1, 0)
    assert (by_list["Phone"]["num_people"], by_list["Phone"]["num_unstated"]) == (0, NUM_PEOPLE)


def test_people_are_found_under_both_normal_forms(
    gateway: TestClient, installation: Installation, held: dict[str, Any], state: Callable[..., None], get: Get
) -> None:
    """A person is found even if the tenant and DROP normalise a sharp s, a dotted capital I or blanks differently."""
    forms = {
        "Jo\u00e3o Stra\u00dfe@Example.org": "jo\u00e3ostra\u00dfe@example.org",
        "\u0130rem@example.org": "i\u0307rem@example.org",
        "\u0130nci@example.org": "inci@example.org",
        " A da@EXAMPLE.org": "ada@example.org",
    }
    state(*(person(number, spelling) for number, spelling in enumerate(forms)))
    load(gateway, EMAIL, [of(number, hash_of(listed)) for number, listed in enumerate(forms.values())])
    jobs.match_drop(installation)
    found = {one["external_id"] for one in get("/deletion-requests?source=drop")["items"]}
    assert found == {f"line{number:08}" for number in range(len(forms))}


def test_identifiers_of_the_identity_map_are_hashed(
    gateway: TestClient, installation: Installation, held: dict[str, Any], get: Get, work: Work
) -> None:
    """If the identity map was loaded in plain text, its e-mail addresses and phone numbers are hashed automatically. A
    DROP line then leads through the map to the person's rows, and the hashes are deleted with the person."""
    links = [
        {
            "identifiers": [
                {"id": f"p{number}"},
                {"kind": "email", "id": f"P{number}@Example.org"},
                {"kind": "phone", "id": f"+1 415 555 {number:04}"},
            ]
        }
        for number in range(NUM_PEOPLE)
    ]
    assert gateway.post("/v1/identities", json={"links": links}).status_code == 200
    load(gateway, EMAIL, [of(1), of(99)])
    load(gateway, PHONE, [line(101, hash_of("4155550002")), line(102, hash_of("4155550099"))])
    jobs.match_drop(installation)
    assert work() == 1
    assert answer_of(gateway) == {1: "3", 99: "5"}
    assert answer_of(gateway, PHONE) == {101: "3", 102: "5"}
    before = {one["list_type"]: one["num_people"] for one in get("/drop")["lists"]}
    identity_jobs.drop_forgotten(installation)
    jobs.drop_forgotten(installation)
    after = {one["list_type"]: one["num_people"] for one in get("/drop")["lists"]}
    assert (before["Email"], after["Email"], after["Phone"]) == (60, 58, 58)
    assert answer_of(gateway) == {1: "3", 99: "5"}


def test_a_person_loaded_after_the_line_is_found(
    gateway: TestClient, installation: Installation, known: None, state: Callable[..., None], get: Get
) -> None:
    """Lines without a match are matched again when more people are loaded."""
    load(gateway, EMAIL, [of(99)])
    assert answer_of(gateway) == {99: "5"}
    state(person(5, "p99@example.org"))
    jobs.match_drop(installation)
    [request] = get("/deletion-requests?source=drop")["items"]
    [file] = get("/drop")["files"]
    assert file["waiting"] == [{"id": "line00000099", "state": "open", "request_id": request["id"]}]


def test_a_hash_of_several_people_waits_for_their_opt_out(
    gateway: TestClient, installation: Installation, known: None, state: Callable[..., None], get: Get, refused: Refused
) -> None:
    """A hash shared by several people erases none of them. The line is answered as opted out once the opt-out is
    confirmed. If the identity map shows that they are one person, the line becomes a request."""
    state(person(5, "p1@example.org"), person(6, "p2@example.org"))
    load(gateway, EMAIL, [of(1), of(2), of(3)])
    jobs.match_drop(installation)
    assert [one["external_id"] for one in get("/deletion-requests?source=drop")["items"]] == ["line00000003"]
    [file] = get("/drop")["files"]
    assert [one["state"] for one in file["waiting"]] == ["several", "several", "open"]
    refused(gateway.post("/v1/drop:opt-out", json={"ids": ["line00000003"]}), 409, "drop_unanswered")
    assert gateway.post("/v1/drop:opt-out", json={"ids": ["line00000001"]}).json() == {"num_lines": 1}
    joined = {"links": [{"identifiers": [{"id": "p2"}, {"id": "p6"}]}], "confirm_joins": True}
    assert gateway.post("/v1/identities", json=joined).status_code == 200
    jobs.match_drop(installation)
    [file] = get("/drop")["files"]
    assert (file["num_opted_out"], [one["state"] for one in file["waiting"]]) == (1, ["open", "open"])


def test_removed_lines_cancel_requests_or_lift_suppressions(
    gateway: TestClient, installation: Installation, known: None, get: Get, forget: Make, work: Work
) -> None:
    """Removing a line cancels its open request or lifts the suppression of a completed one. Requests from other sources
    are unaffected, and a line that is removed before it arrives creates no request."""
    load(gateway, EMAIL, [of(1)])
    jobs.match_drop(installation)
    assert work() == 1
    load(gateway, EMAIL, [of(1), of(2), of(3)])
    jobs.match_drop(installation)
    forget("p3")
    assert len(get("/suppressions")["items"]) == 3
    gone = [line(number, hash_of(f"p{number}@example.org"), list_type="Email") for number in (1, 2, 3, 4)]
    assert load(gateway, REMOVED, gone).json()["num_irrevocable"] == 1
    assert load(gateway, REMOVED, gone).json()["num_irrevocable"] == 0
    statuses = {one["external_id"]: one["status"] for one in get("/deletion-requests?source=drop")["items"]}
    assert statuses == {"line00000001": "completed", "line00000002": "cancelled", "line00000003": "cancelled"}
    assert len(get("/suppressions")["items"]) == 1
    load(gateway, EMAIL, [of(1), of(2), of(3), of(4)])
    jobs.match_drop(installation)
    assert len(get("/deletion-requests?source=drop")["items"]) == 3
    assert answer_of(gateway) == {}


def test_partial_and_repeated_calls_form_one_file(
    gateway: TestClient, installation: Installation, known: None, get: Get, refused: Refused
) -> None:
    """An incomplete file has no answer, and a line that is sent repeatedly counts once. A later file takes over the
    lines that it repeats. If a request was cancelled, sending its line again creates a new request."""
    load(gateway, EMAIL, [of(1), of(98)], num_lines=None)
    refused(gateway.get("/v1/drop/answer.csv", params={"file": EMAIL}), 409, "drop_unanswered")
    jobs.match_drop(installation)
    for _ in range(2):
        assert load(gateway, EMAIL, [of(1), of(98), of(99)]).json()["num_loaded"] == 3
        jobs.match_drop(installation)
    [request] = get("/deletion-requests?source=drop")["items"]
    assert gateway.post(f"/v1/deletion-requests/{request['id']}/cancel").status_code == 200
    jobs.match_drop(installation)
    assert get("/drop")["files"][0]["waiting"][0]["state"] == "cancelled"
    later = EMAIL.replace("0312", "0401")
    load(gateway, later, [of(1), of(98)])
    jobs.match_drop(installation)
    assert len(get("/deletion-requests?source=drop")["items"]) == 2
    problem = refused(gateway.get("/v1/drop/answer.csv", params={"file": EMAIL}), 409, "drop_unanswered")
    assert "1 lines of the file are loaded, of 3" in problem["detail"]


def test_malformed_lines_are_refused_without_being_quoted(gateway: TestClient, refused: Refused) -> None:
    """Malformed file names, IDs, hashes and lists, and an ID that was already sent with a different hash, are refused
    without being quoted, and no line of the call is loaded."""
    load(gateway, EMAIL, [of(1)])
    wrong = [
        {"file": "list.csv", "lines": []},
        {"file": EMAIL, "lines": [line(1, "x" * 44)]},
        {"file": EMAIL, "lines": [{"id": "short", "hash": hash_of("a")}]},
        {"file": EMAIL, "lines": [{"id": "line00000001\n", "hash": hash_of("a")}]},
        {"file": EMAIL, "lines": [], "num_lines": 2**31},
        {"file": EMAIL, "lines": [line(2, hash_of("a"), list_type="Email")]},
        {"file": REMOVED, "lines": [of(2)]},
        {"file": EMAIL, "lines": [of(3), of(1, hash_of("another"))]},
        {"file": EMAIL, "lines": [of(3), of(3, hash_of("another"))]},
    ]
    for body in wrong:
        answer = gateway.post("/v1/drop:load", json=body)
        refused(answer, 422, "input_invalid")
        assert hash_of("another") not in answer.text
    assert load(gateway, EMAIL, []).json()["num_loaded"] == 1


def test_files_are_refused_if_the_policy_requires_statements(
    gateway: TestClient, policy: Callable[..., Any], refused: Refused
) -> None:
    """If the policy requires an identity statement, a DROP file is refused, because DROP sends no statements."""
    policy(identity="statement")
    refused(load(gateway, EMAIL, [of(1)]), 409, "drop_unanswered")


def test_a_removed_line_reveals_nothing_to_an_app(
    gateway: TestClient,
    installation: Installation,
    known: None,
    key_with: Callable[..., dict[str, str]],
    work: Work,
) -> None:
    """A key without accounting:read that loads a line and removes it after a possible erasure gets the same response
    whether or not the person's data is held."""
    app = key_with(Scope.REQUESTS_WRITE)
    seen = []
    for number, address in ((1, "p1@example.org"), (2, "stranger@example.org")):
        asked = line(number, hash_of(address))
        answers = [gateway.post("/v1/drop:load", json={"file": EMAIL, "lines": [asked]}, headers=app)]
        jobs.match_drop(installation)
        work()
        gone = {"file": REMOVED, "lines": [asked | {"list_type": "Email"}]}
        answers.append(gateway.post("/v1/drop:load", json=gone, headers=app))
        seen.append([(answer.status_code, answer.json()["num_irrevocable"]) for answer in answers])
    assert seen[0] == seen[1] == [(200, None), (200, None)]


def test_the_number_of_hashes_per_call_is_limited(gateway: TestClient, refused: Refused) -> None:
    """A call with too many hashes is refused before it is parsed, because parsing half a million hashes took the
    gateway ten seconds."""
    people = [person(number) | {"hashes": {"Email": [hash_of("a")] * 100}} for number in range(1000)]
    assert refused(gateway.post("/v1/drop/people", json={"people": people}), 413, "upload_too_large")


def test_stored_hashes_are_keyed(gateway: TestClient, installation: Installation, known: None) -> None:
    """The database contains DROP's hashes neither as bytes nor in hexadecimal."""
    load(gateway, EMAIL, [of(1)])
    hashed = hash_of("p1@example.org")
    with installation.database.reading() as session:
        rows = [*session.connection().exec_driver_sql("SELECT * FROM drop_hashes").all()]
        rows += session.connection().exec_driver_sql("SELECT * FROM drop_lines").all()
    text = json.dumps([list(map(str, row)) for row in rows])
    assert len(rows) == NUM_PEOPLE + 1
    assert hashed not in text
    assert base64.b64decode(hashed).hex() not in text
