"""Endpoints of identity maps, called from outside the gateway, with a real worker."""

import datetime
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi.testclient import TestClient

from app.db.tables import DeletionRequest
from app.deletion import completion
from app.features.identities import jobs
from app.features.identities.tables import Identity
from app.installations import Installation
from lethe.contract.sets import Scope
from lethe.verification import certificates as verification

Make = Callable[..., dict[str, Any]]
Get = Callable[[str], Any]
Work = Callable[[], int]
Refused = Callable[[httpx.Response, int, str], dict[str, Any]]
MAIL, PHONE = "Ada@Example.org", "+49 30 901820"


def link(*identifiers: tuple[str, str]) -> dict[str, Any]:
    """Return a link between identifiers, each given by its kind and text."""
    return {"identifiers": [{"kind": kind, "id": text} for kind, text in identifiers]}


@pytest.fixture
def load(gateway: TestClient) -> Callable[..., httpx.Response]:
    """Return a function that posts links to the map and returns the response."""

    def send(*links: dict[str, Any], headers: dict[str, str] | None = None, **more: Any) -> httpx.Response:
        answer: httpx.Response = gateway.post("/v1/identities", json={"links": list(links)} | more, headers=headers)
        return answer

    return send


@pytest.fixture
def held(new_dataset: Make) -> str:
    """Return the id of a dataset without a model, in which people are known by their customer ids."""
    dataset_id: str = new_dataset()["id"]
    return dataset_id


Load = Callable[..., httpx.Response]
OF_P1 = link(("customer_id", "p1"), ("email", MAIL), ("phone", PHONE))


def test_a_request_by_email_erases_the_rows_of_the_customer_number(
    gateway: TestClient, live: dict[str, Any], load: Load, forget: Make, get: Get, work: Work
) -> None:
    """If a request names a person by e-mail address, its certificate covers the rows stored under the customer number
    and verifies. The response names the kinds of identifiers that led to the rows."""
    assert load(OF_P1).json() == {
        "num_links": 1,
        "num_new": 3,
        "num_joined": 0,
        "num_suppressed": 0,
        "suppressed": [],
    }
    request = forget("ada@EXAMPLE.org".replace("ada", "Ada"), kind="email")
    assert (request["status"], request["identity_unknown"], request["alias_refs"]) == ("accepted", False, [])
    assert gateway.get(f"/v1/datasets/{live['dataset_id']}/subjects/p1").status_code == 200
    assert work() == 1
    done = get(f"/deletion-requests/{request['id']}")
    assert (done["status"], done["outcome"]) == ("completed", "forgotten")
    assert gateway.get(f"/v1/datasets/{live['dataset_id']}/subjects/p1").status_code == 404
    [certificate] = get(f"/deletion-requests/{request['id']}/certificate")["certificates"]
    public = gateway.get("/.well-known/jwks.json").json()
    assert verification.verify(certificate["jws"], public).statement == certificate["statement"]
    identities = get(f"/deletion-requests/{request['id']}/identities")
    assert identities == {
        "kind": "email",
        "identity_unknown": False,
        "reached": [
            {"kind": "customer_id", "num_identifiers": 1, "dataset_ids": [live["dataset_id"]]},
            {"kind": "email", "num_identifiers": 1, "dataset_ids": []},
            {"kind": "phone", "num_identifiers": 1, "dataset_ids": []},
        ],
        "unreached": [],
    }


def test_every_spelling_of_an_identifier_leads_to_the_person(load: Load, forget: Make, get: Get) -> None:
    """Any spelling of an identifier leads to the person, because identifiers are compared in the normal form of their
    kind."""
    load(OF_P1)
    for named, spelling in (
        ("phone", "+49 (0)30 901820"),
        ("phone", "+4930901820"),
        ("email", "Ada@EXAMPLE.ORG"),
        ("customer_id", " p1 "),
    ):
        reached = get(f"/deletion-requests/{forget(spelling, kind=named)['id']}/identities")["reached"]
        assert [one["kind"] for one in reached] == ["customer_id", "email", "phone"], spelling


def test_a_hash_of_an_email_leads_to_the_person(
    gateway: TestClient, held: str, load: Load, get: Get, work: Work
) -> None:
    """Requests and links can contain the SHA-256 of an identifier's normal form instead of the identifier."""
    hashed = hashlib.sha256(b"Ada@example.org").hexdigest()
    loaded = load({"identifiers": [{"id": "p1"}, {"kind": "email", "sha256": hashed}]})
    assert loaded.json()["num_new"] == 2
    answer = gateway.post("/v1/deletion-requests", json={"subject_sha256": hashed, "kind": "email"})
    work()
    assert get(f"/deletion-requests/{answer.json()['id']}")["outcome"] == "forgotten"


def test_identifiers_of_different_kinds_are_different_people(
    gateway: TestClient, held: str, forget: Make, load: Load, work: Work
) -> None:
    """A device id with the same text as a customer number identifies a different person."""
    load(link(("device", "p2"), ("customer_id", "p3")))
    forget("p2", kind="device")
    work()
    subjects = f"/v1/datasets/{held}/subjects"
    assert [gateway.get(f"{subjects}/{name}").status_code for name in ("p2", "p3")] == [200, 404]


def test_a_request_with_an_unresolved_identifier_is_in_review(
    installation: Installation, held: str, load: Load, forget: Make, get: Get, work: Work
) -> None:
    """A request whose identifier is not in the identity map is in review with its clock running. Periodic jobs leave
    the request unchanged, and it continues once the map contains the identifier."""
    request = forget(MAIL, kind="email")
    assert (request["status"], request["identity_unknown"], request["outcome"]) == ("in_review", True, None)
    assert request["clock"]["state"] == "on_time"
    jobs.identify(installation)
    assert get(f"/deletion-requests/{request['id']}")["status"] == "in_review"
    assert get("/identities")["num_unknown"] == 1
    load(OF_P1)
    jobs.identify(installation)
    known = get(f"/deletion-requests/{request['id']}")
    assert (known["status"], known["identity_unknown"]) == ("accepted", False)
    assert work() == 1
    assert get(f"/deletion-requests/{request['id']}")["outcome"] == "forgotten"


def test_review_for_another_reason_outlasts_the_unknown_identity(
    installation: Installation, held: str, load: Load, forget: Make, get: Get
) -> None:
    """A request that also awaits identity verification stays in review when an identity map resolves its identifier."""
    request = forget(MAIL, kind="email", identity_verified=False)
    load(OF_P1)
    jobs.identify(installation)
    known = get(f"/deletion-requests/{request['id']}")
    assert (known["status"], known["identity_unknown"]) == ("in_review", False)


def test_an_officer_settles_an_unknown_identity(gateway: TestClient, held: str, forget: Make, get: Get) -> None:
    """If an officer approves a request of unknown identity, the request covers only the identifier that it names. The
    audit log records that the identity was settled."""
    request = forget(MAIL, kind="email")
    approved = gateway.post(f"/v1/deletion-requests/{request['id']}/approve").json()
    assert (approved["status"], approved["outcome"], approved["identity_unknown"]) == (
        "completed",
        "nothing_held",
        False,
    )
    actions = [entry["action"] for entry in get("/audit-log")["items"]]
    assert "deletion_request.identity_settled" in actions


def test_a_dataset_keyed_by_email_is_reached_by_email_and_through_the_map(
    gateway: TestClient, upload: Callable[..., httpx.Response], npz_of: Callable[..., bytes], load: Load, forget: Make
) -> None:
    """Rows keyed by e-mail address are found by that address, and by customer number through an identity map, but not
    by an identifier without a kind."""
    content = npz_of(subject=[f"p{row}@Example.org" for row in range(20)])
    answer = upload(content, subject_kind="email")
    assert answer.status_code == 201, answer.text
    dataset = answer.json()
    assert dataset["subject_kind"] == "email"
    assert gateway.get(f"/v1/datasets/{dataset['id']}/subjects/p1@EXAMPLE.ORG").json() == {"num_records": 1}
    assert forget("p1@example.org", kind="email")["identity_unknown"] is False
    assert forget("p2@example.org")["identity_unknown"] is True
    load(link(("customer_id", "4711"), ("email", "p3@example.org")))
    reached = forget("4711")
    assert (reached["status"], reached["identity_unknown"]) == ("accepted", False)
    unreached = gateway.get(f"/v1/deletion-requests/{reached['id']}/identities").json()
    assert unreached["unreached"] == []


def test_a_forgotten_person_is_suppressed_under_every_identifier(
    installation: Installation,
    held: str,
    load: Load,
    forget: Make,
    upload: Callable[..., httpx.Response],
    npz_of: Callable[..., bytes],
    refused: Refused,
    work: Work,
) -> None:
    """A forgotten person is suppressed under every identifier that the identity map has for the person, for datasets
    keyed by any kind."""
    load(OF_P1)
    forget("p1")
    work()
    content = npz_of(subject=[f"p{row}@example.org" if row else MAIL for row in range(20)])
    refused(upload(content, subject_kind="email"), 409, "subject_suppressed")


def test_the_map_forgets_a_person_last(
    installation: Installation, held: str, load: Load, forget: Make, get: Get, work: Work
) -> None:
    """A person's links stay until all of the person's requests have ended, and are then deleted. A later load does not
    restore them, and any new identifiers that it links to the person are suppressed too."""
    load(OF_P1, link(("customer_id", "p2"), ("email", "b@example.org")))
    request = forget(MAIL, kind="email")
    jobs.drop_forgotten(installation)
    assert get("/identities")["num_people"] == 2
    work()
    jobs.drop_forgotten(installation)
    assert get("/identities")["num_people"] == 1
    again = load(OF_P1, link(("customer_id", "p1"), ("device", "new"))).json()
    assert (again["num_new"], again["num_suppressed"], again["suppressed"]) == (0, 2, [0, 1])
    assert get("/identities")["num_people"] == 1
    assert get("/suppressions")["items"][0]["request_id"] == request["id"]
    assert len(get("/suppressions")["items"]) == 4
    kinds = {kind["kind"] for kind in get(f"/deletion-requests/{request['id']}/identities")["reached"]}
    assert kinds == {"customer_id", "email", "phone"}


def test_an_identifier_linked_after_the_request_is_suppressed(
    installation: Installation, held: str, load: Load, forget: Make, get: Get, work: Work
) -> None:
    """A link that is loaded while a request is open does not extend the request. Before the person is deleted from the
    identity map, all of the person's identifiers are suppressed."""
    load(OF_P1)
    request = forget("p1")
    load(link(("email", MAIL), ("device", "new")))
    work()
    assert len(get("/suppressions")["items"]) == 3
    jobs.drop_forgotten(installation)
    suppressions = get("/suppressions")["items"]
    assert [one["request_id"] for one in suppressions] == 4 * [request["id"]]


def test_a_join_of_two_people_needs_an_admin(
    gateway: TestClient,
    held: str,
    load: Load,
    get: Get,
    key_with: Callable[..., dict[str, str]],
    refused: Refused,
) -> None:
    """Two customer numbers that share an e-mail address count as two people, and a call that links them loads nothing.
    The links are named only to callers with the required scope, and only an admin can confirm the join."""
    family = [link(("customer_id", f"p{row}"), ("email", "family@example.org")) for row in (1, 2)]
    problem = load(OF_P1, *family).json()
    assert problem["code"] == "people_joined"
    assert [fault["path"] for fault in problem["errors"]] == ["links.0", "links.1", "links.2"]
    assert get("/identities")["num_people"] == 0
    app, loader = key_with(Scope.MODELS_WRITE), key_with(Scope.MODELS_WRITE, Scope.ACCOUNTING_READ)
    assert "errors" not in refused(load(*family, headers=app), 409, "people_joined")
    refused(load(*family, headers=loader, confirm_joins=True), 403, "scope_missing")
    assert load(family[0]).json()["num_new"] == 2
    assert load(family[1]).json()["code"] == "people_joined"
    assert load(*family, confirm_joins=True).json()["num_joined"] == 1
    assert load(*family).json()["num_new"] == 0
    assert get("/identities")["num_people"] == 1


def test_a_wrong_link_is_deleted_by_an_admin(gateway: TestClient, held: str, load: Load, get: Get) -> None:
    """An admin can delete all of a person's identifiers from the identity map. This erases no rows."""
    load(OF_P1)
    answer = gateway.post("/v1/identities:forget", json={"subject_id": PHONE, "kind": "phone"})
    assert answer.json() == {"num_identifiers": 3}
    assert get("/identities")["num_people"] == 0
    assert gateway.get(f"/v1/datasets/{held}/subjects/p1").status_code == 200


def test_malformed_identifiers_are_refused_and_not_quoted(load: Load, get: Get, refused: Refused) -> None:
    """Requests with malformed phone numbers or e-mail addresses, identifiers without visible characters, or unknown
    kinds get a 422 that does not quote them, and no link is loaded."""
    for named, text in (
        ("phone", "030 901820"),
        ("phone", "+49 30 901820 ext. 12"),
        ("phone", "+49 30" + 40 * " " + "901820"),
        ("email", "no address"),
        ("device", "\u200b"),
        ("loyalty", "1"),
    ):
        answer = load(OF_P1, link(("customer_id", "p2"), (named, text)))
        refused(answer, 422, "input_invalid")
        if len(text) > 1:
            assert text not in answer.text
    assert get("/identities")["num_people"] == 0


def test_a_tenant_defines_kinds_and_a_region(gateway: TestClient, load: Load, get: Get, refused: Refused) -> None:
    """Identifiers of a kind that the tenant defines are compared as text. If the tenant has a region, phone numbers can
    be written as they are dialled in that region."""
    define = "/v1/identities:define-kind"
    assert gateway.post(define, json={"name": "loyalty"}).json()["name"] == "loyalty"
    assert gateway.post(define, json={"name": "phone", "region": "DE"}).json()["region"] == "DE"
    refused(gateway.post(define, json={"name": "phone", "region": "XX"}), 422, "input_invalid")
    refused(gateway.post(define, json={"name": "email"}), 422, "input_invalid")
    load(link(("loyalty", "L 1"), ("phone", "030 901820")))
    assert load(link(("loyalty", " L 1 "), ("phone", PHONE))).json()["num_new"] == 0
    kinds = {kind["name"]: kind["num_identifiers"] for kind in get("/identities")["kinds"]}
    assert kinds == {"customer_id": 0, "email": 0, "phone": 1, "device": 0, "loyalty": 1}


def test_the_result_of_a_load_is_hidden_without_the_scope(load: Load, key_with: Callable[..., dict[str, str]]) -> None:
    """A caller without accounting:read gets the same response whether or not the loaded links were new."""
    loader = key_with(Scope.MODELS_WRITE)
    first, second = (load(OF_P1, headers=loader) for _ in range(2))
    assert first.json() == second.json()
    assert first.json()["num_new"] is None


def seen(answer: Any) -> Any:
    """Return a response body without the fields that differ between requests."""
    own = {"id", "subject_ref", "created_at", "submitted_at", "due_at", "deadline", "at", "days_left", "completed_at"}
    if isinstance(answer, dict):
        return {name: seen(value) for name, value in answer.items() if name not in own}
    return [seen(item) for item in answer] if isinstance(answer, list) else answer


def test_an_app_cannot_tell_a_known_identifier_from_an_unknown_one(
    gateway: TestClient,
    installation: Installation,
    live: dict[str, Any],
    load: Load,
    policy: Callable[..., None],
    key_with: Callable[..., dict[str, str]],
    work: Work,
    get: Get,
) -> None:
    """Responses, events, lists by status and customer number, and suppressions are the same for an e-mail address that
    is in the identity map and one that is not, before and after the report time. Officers see the difference."""
    policy(report_seconds=86_400)
    load(OF_P1)
    app = key_with(Scope.REQUESTS_WRITE, Scope.REQUESTS_READ)
    ids = []
    for text in (MAIL, "stranger@example.org"):
        answer = gateway.post("/v1/deletion-requests", json={"subject_id": text, "kind": "email"}, headers=app)
        assert answer.status_code == 202
        ids.append(answer.json()["id"])

    def views() -> list[Any]:
        paths = [
            "/{id}",
            "/{id}/events",
            "?status=accepted",
            "?status=in_review",
            "?status=completed",
            "?subject_id=p1",
        ]
        answers = []
        for id_ in ids:
            got = [gateway.get(f"/v1/deletion-requests{path.format(id=id_)}", headers=app).json() for path in paths]
            lists = [sorted(item["id"] == id_ for item in answer["items"]) for answer in got[2:]]
            answers.append((seen(got[0]), seen(got[1]), lists))
        return answers

    known, unknown = views()
    assert known == unknown
    assert known[0]["status"] == "accepted"
    work()
    jobs.identify(installation)
    jobs.drop_forgotten(installation)
    known, unknown = views()
    assert known == unknown
    full = [get(f"/deletion-requests/{id_}") for id_ in ids]
    assert [(one["status"], one["identity_unknown"]) for one in full] == [("completed", False), ("accepted", True)]
    with installation.database.writing() as session:
        for id_ in ids:
            request = session.get_one(DeletionRequest, id_)
            assert request.reported_at is not None
            request.reported_at -= datetime.timedelta(days=2)
        completion.settle(session)
    known, unknown = views()
    assert known == unknown
    assert known[0]["status"] == "completed"
    assert get(f"/deletion-requests/{ids[1]}")["status"] == "accepted"


def test_an_app_request_continues_when_a_map_resolves_it(
    gateway: TestClient,
    installation: Installation,
    held: str,
    load: Load,
    policy: Callable[..., None],
    key_with: Callable[..., dict[str, str]],
    work: Work,
    get: Get,
) -> None:
    """If an identity map resolves the unknown identity of an application's request, the rows are erased. The
    application sees no event about this."""
    policy(report_seconds=86_400)
    app = key_with(Scope.REQUESTS_WRITE, Scope.REQUESTS_READ)
    made = gateway.post("/v1/deletion-requests", json={"subject_id": MAIL, "kind": "email"}, headers=app).json()
    events = f"/v1/deletion-requests/{made['id']}/events"
    before = gateway.get(events, headers=app).json()
    load(OF_P1)
    jobs.identify(installation)
    with installation.database.writing() as session:
        completion.settle(session)
    assert work() == 1
    with installation.database.writing() as session:
        completion.settle(session)
    assert get(f"/deletion-requests/{made['id']}")["outcome"] == "forgotten"
    assert gateway.get(events, headers=app).json() == before


def test_discreet_readers_do_not_see_which_identifiers_were_linked(
    gateway: TestClient,
    held: str,
    load: Load,
    forget: Make,
    key_with: Callable[..., dict[str, str]],
    get: Get,
) -> None:
    """A key that may read all requests of the tenant finds neither requests nor suppressions by a linked identifier."""
    load(OF_P1)
    forget(MAIL, kind="email")
    reader = key_with(Scope.REQUESTS_READ)
    assert len(get("/deletion-requests?subject_id=p1")["items"]) == 1
    assert gateway.get("/v1/deletion-requests?subject_id=p1", headers=reader).json()["items"] == []
    assert len(get("/suppressions")["items"]) == 3
    assert len(gateway.get("/v1/suppressions", headers=reader).json()["items"]) == 1


def test_no_identifier_is_stored_in_plain_text(
    installation: Installation,
    gateway: TestClient,
    load: Load,
    forget: Make,
    get: Get,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """No identifier of the identity map appears in the files or logs of the installation in any spelling."""
    clear = ["zebulon.quixley@example.org", "+4930901877", "customer-zq-8842", "f47ac10b-58cc-4372-a567-0e02b2c3d479"]
    load(link(*zip(("email", "phone", "customer_id", "device"), clear, strict=True)))
    load(link(("email", clear[0]), ("customer_id", "another-zq-1")))
    forget(clear[1], kind="phone")
    forget("unknown.zq@example.org", kind="email")
    needles = [*clear, "4930901877", "zebulon", "another-zq", "unknown.zq"]
    needles += [hashlib.sha256(text.encode()).hexdigest() for text in clear]
    files = [path for path in Path(installation.settings.data_dir).rglob("*") if path.is_file()]
    assert any(path.suffix == ".db" or "lethe" in path.name for path in files) or files
    content = b"".join(path.read_bytes() for path in files) + caplog.text.encode()
    assert get("/identities")["num_people"] == 1
    assert [needle for needle in needles if needle.encode() in content] == []
    with installation.database.reading() as session:
        assert session.query(Identity).count() == 4


def test_requests_are_found_by_kind_and_identifier(
    gateway: TestClient, held: str, load: Load, forget: Make, refused: Refused
) -> None:
    """Lists, counts and exports find a request by the kind and any spelling of its identifier, by the identifier's
    hash, and by identifiers that the identity map added. The same text as an identifier of another kind finds no
    request."""
    load(OF_P1)
    request, other = forget(MAIL, kind="email"), forget("p2")

    def found(**query: str) -> list[str]:
        ids = [one["id"] for one in gateway.get("/v1/deletion-requests", params=query).json()["items"]]
        assert gateway.get("/v1/deletion-requests:count", params=query).json()["count"] == len(ids)
        export = gateway.get("/v1/deletion-requests.csv", params=query).text
        assert [id_ in export for id_ in (request["id"], other["id"])] == [request["id"] in ids, other["id"] in ids]
        return ids

    assert found(subject_id="Ada@EXAMPLE.org", kind="email") == [request["id"]]
    assert found(subject_sha256=hashlib.sha256(b"Ada@example.org").hexdigest(), kind="email") == [request["id"]]
    assert found(subject_id="p1") == found(subject_id="p1", kind="customer_id") == [request["id"]]
    assert found(subject_id="+4930901820", kind="phone") == [request["id"]]
    assert found(subject_id=MAIL) == found(subject_id="p2", kind="device") == []
    assert found(subject_id="p2") == [other["id"]]
    for query in ({"kind": "email"}, {"kind": "badge", "subject_id": "p1"}, {"kind": "email", "subject_id": "p1"}):
        refused(gateway.get("/v1/deletion-requests", params=query), 422, "input_invalid")


def test_suppressions_are_found_by_kind_and_identifier(
    gateway: TestClient, held: str, load: Load, forget: Make, work: Work
) -> None:
    """A person's suppressions are found by e-mail address as well as by customer number."""
    load(OF_P1)
    request = forget(MAIL, kind="email")
    work()
    for query in ({"subject_id": "Ada@EXAMPLE.org", "kind": "email"}, {"subject_id": "p1"}):
        found = gateway.get("/v1/suppressions", params=query).json()["items"]
        assert {one["request_id"] for one in found} == {request["id"]}
    assert gateway.get("/v1/suppressions", params={"subject_id": MAIL}).json()["items"] == []
