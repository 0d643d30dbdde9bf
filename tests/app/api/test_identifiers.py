"""A person with several spellings and several identifiers is found by each of them."""

import hashlib
import itertools
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import httpx
import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient

from app.access.service import DEFAULT_TENANT
from app.db.tables import DeletionRequest, Record, RequestAlias, Suppression, Tenant
from app.deletion import repository, search_repository
from app.installations import Installation
from app.unlearning import queue, service as unlearning
from lethe.contract.sets import Scope
from lethe.contract.tenants import Policy
from tests.app.access.test_subjects import COMPOSED, DECOMPOSED
from tests.app.deletion.people import OFFICER, ask, hold
from tests.conftest import people
from tests.tables import each
from worker import runner

Make = Callable[..., dict[str, Any]]
Get = Callable[[str], Any]
Upload = Callable[..., httpx.Response]
Refused = Callable[..., dict[str, Any]]
SPELLINGS = (DECOMPOSED, f" {COMPOSED} ", COMPOSED)


def sha256(subject_id: str) -> str:
    return hashlib.sha256(subject_id.encode()).hexdigest()


def rule(gateway: TestClient, name: str) -> httpx.Response:
    return gateway.patch("/v1/tenant", json={"policy": {"subject_rule": name}})


def held_of(installation: Installation) -> dict[str, int]:
    """Return the number of rows held for each subject reference."""
    with installation.database.reading() as session:
        query = sa.select(Record.subject_ref, sa.func.count()).group_by(Record.subject_ref)
        return {str(ref): count for ref, count in session.execute(query)}


def by_opendsr(gateway: TestClient, who: str) -> httpx.Response:
    """Submit a request as an OpenDSR controller whose customer ids are the subject ids."""
    kind = "controller_customer_id"
    assert gateway.patch("/v1/tenant", json={"policy": {"opendsr_identities": [kind]}}).is_success
    asked = {
        "subject_request_id": "a7551968-d5d6-44b2-9831-815ac9017798",
        "regulation": "gdpr",
        "subject_request_type": "erasure",
        "submitted_time": "2026-01-01T00:00:00Z",
        "subject_identities": [{"identity_type": kind, "identity_format": "raw", "identity_value": who}],
    }
    return gateway.post("/opendsr/v2/requests", json=asked)


WAYS: dict[str, Callable[[TestClient, str], httpx.Response]] = {
    "one": lambda gateway, who: gateway.post("/v1/deletion-requests", json={"subject_id": who}),
    "alias": lambda gateway, who: gateway.post("/v1/deletion-requests", json={"subject_id": "x", "aliases": [who]}),
    "batch": lambda gateway, who: gateway.post("/v1/deletion-requests:batch", json={"requests": [{"subject_id": who}]}),
    "csv": lambda gateway, who: gateway.post(
        "/v1/deletion-requests.csv", content=f'subject_id\n"{who}"\n'.encode(), headers={"Content-Type": "text/csv"}
    ),
    "hash": lambda gateway, who: gateway.post("/v1/deletion-requests", json={"subject_sha256": sha256(COMPOSED)}),
    "hash in capitals": lambda gateway, who: gateway.post(
        "/v1/deletion-requests", json={"subject_sha256": sha256(COMPOSED).upper()}
    ),
    "opendsr": by_opendsr,
}
BY_TEXT = list(itertools.product(("text", "exact"), sorted(WAYS.keys() - {"hash", "hash in capitals"})))
"""Subject rules and ways to give an id itself."""


def test_invisible_characters_make_no_difference(
    gateway: TestClient, upload: Upload, forget: Make, work: Callable[[], int], refused: Refused
) -> None:
    """Invisible characters in an id, such as a zero-width space, do not prevent the person from being found. An id that
    consists only of invisible characters is refused."""
    dataset = upload(people("p0", "p1", "p\u200b2", "\ufeffp3")).json()["id"]
    forget("p2\u200e")
    assert work() == 1
    held = [gateway.get(f"/v1/datasets/{dataset}/subjects/{who}").status_code for who in ("p2", "\u2060p2", "p3\u00ad")]
    assert held == [404, 404, 200]
    refused(upload(people("p0", "\u200b\ufeff")), 422, "row_invalid")


@each(("name", "way"), BY_TEXT)
def test_an_id_rewritten_as_a_number_is_refused(gateway: TestClient, name: str, way: str) -> None:
    """An id that a spreadsheet has rewritten as a number is refused by every endpoint and under every rule, because no
    upload would accept such an id either."""
    assert rule(gateway, name).is_success
    for written in ("4.86E+16", "4712.0", " 4712,0\u200b"):
        answer = WAYS[way](gateway, written)
        assert "a spreadsheet or data frame wrote this one as a number" in answer.text
        assert written.strip("\u200b ") not in answer.text
    assert gateway.get("/v1/deletion-requests").json()["items"] == []


@pytest.mark.parametrize("way", WAYS)
def test_a_person_is_found_under_every_spelling(
    gateway: TestClient, installation: Installation, upload: Upload, work: Callable[[], int], way: str
) -> None:
    """A request erases rows that were uploaded under another spelling of the person's id, however the request was
    submitted. A hash is assumed to be computed from the normal form."""
    assert upload(people("p0", "p1", "p2", "p3", *SPELLINGS[:2])).json()["num_subjects"] == 5
    assert WAYS[way](gateway, SPELLINGS[1]).is_success
    assert work() == 1
    assert sorted(held_of(installation).values()) == [1, 1, 1, 1]


def test_lookups_normalize_subject_ids(gateway: TestClient, upload: Upload, get: Get, refused: Refused) -> None:
    """Looking up held people, requests or suppressions works with every spelling of an id, and a suppressed person
    cannot be added under any spelling."""
    dataset = upload(people("p0", "p1", "p2", "p3", COMPOSED)).json()["id"]
    assert get(f"/datasets/{dataset}/subjects/{DECOMPOSED}%20") == {"num_records": 1}
    assert gateway.post("/v1/lineage", json={"subject_id": DECOMPOSED}).json()["datasets"] != []
    made = gateway.post("/v1/deletion-requests", json={"subject_id": DECOMPOSED}).json()
    for spelling in SPELLINGS:
        assert [one["id"] for one in get(f"/deletion-requests?subject_id={spelling}")["items"]] == [made["id"]]
        assert len(get(f"/suppressions?subject_id={spelling}")["items"]) == 1
        refused(upload(people("p0", "p1", "p2", "p3", spelling)), 409, "subject_suppressed")
    lifted = gateway.post("/v1/suppressions:lift", json={"subject_id": SPELLINGS[1], "reason": "consent_given"})
    assert lifted.json() == {"num_lifted": 1}


@each("body", [{"subject_id": " "}, {"subject_id": "p1", "aliases": ["p2", "\t\u200b "]}])
@each("name", ["text", "exact"])
def test_a_blank_id_is_refused(gateway: TestClient, refused: Refused, body: dict[str, Any], name: str) -> None:
    """An id that consists only of white space is refused, and the error states its location, even under the rule that
    compares ids byte for byte."""
    assert rule(gateway, name).is_success
    problem = refused(gateway.post("/v1/deletion-requests", json=body), 422, "input_invalid")
    assert problem["errors"][0]["path"] == ("aliases.1" if "aliases" in body else "subject_id")


@each("who", ["ann+news@example.org", "+4915112345678", "Ann Smith", "4711+B C"])
def test_a_bare_plus_sign_in_a_query_is_refused(gateway: TestClient, forget: Make, refused: Refused, who: str) -> None:
    """A bare plus sign in a query's subject id is refused because it could mean a space; a percent-encoded plus sign or
    space is accepted."""
    made = forget(who)["id"]
    for path in ("deletion-requests", "suppressions"):
        percent_coded = gateway.get(f"/v1/{path}?limit=9&subject_id={quote(who, safe='')}").json()["items"]
        assert [item.get("request_id", item["id"]) for item in percent_coded] == [made]
        bare = gateway.get(f"/v1/{path}?limit=9&subject_id={who.replace(' ', '+')}")
        problem = refused(bare, 422, "input_invalid")
        assert problem["errors"][0]["path"] == "subject_id"
        assert "%2B for a plus sign and %20 for a space" in problem["errors"][0]["message"]
    assert gateway.get("/v1/deletion-requests?external_id=a+b").json()["items"] == []


@each(("name", "way"), BY_TEXT)
def test_an_id_that_no_record_can_have_is_refused(
    gateway: TestClient, installation: Installation, name: str, way: str
) -> None:
    """A request is refused if its id contains a line break or the end-of-file mark of old text files. No row can have
    such an id, so the request would complete without forgetting anything."""
    assert rule(gateway, name).is_success
    answers = [WAYS[way](gateway, who) for who in ("ann\nbob", "\x1a")]
    assert {answer.status_code for answer in answers} == {400 if way == "opendsr" else 422}
    assert all("expected no control characters" in answer.text for answer in answers)
    with installation.database.reading() as session:
        assert session.scalars(sa.select(DeletionRequest)).all() == []


def test_the_subject_rule_is_fixed_once_people_are_known(
    gateway: TestClient,
    installation: Installation,
    upload: Upload,
    forget: Make,
    work: Callable[[], int],
    refused: Refused,
) -> None:
    """The subject rule can be changed until there is a dataset or a request; after that, it is fixed."""
    assert rule(gateway, "email").is_success
    upload(people("p0", "p1", "p2", "Ann@Example.com"))
    forget("ann@EXAMPLE.com")
    assert work() == 1
    assert len(held_of(installation)) == 3
    refused(rule(gateway, "text"), 409, "subject_rule_fixed")
    assert rule(gateway, "email").is_success
    assert gateway.patch("/v1/tenant", json={"policy": {"grace_seconds": 1}}).is_success


def test_a_request_fixes_the_subject_rule(gateway: TestClient, forget: Make, refused: Refused) -> None:
    """The subject rule cannot be changed once a request has been made, because a different rule might not find the
    person."""
    forget("p1")
    refused(rule(gateway, "caseless"), 409, "subject_rule_fixed")


def test_an_outdated_subject_rule_is_refused(
    gateway: TestClient,
    installation: Installation,
    upload: Upload,
    refused: Refused,
    stored: Callable[[], dict[str, int]],
) -> None:
    """A gateway that uses an outdated subject rule refuses to store rows and requests."""
    assert gateway.get("/v1/tenant").json()["policy"]["subject_rule"] == "text"
    with installation.database.writing() as session:  # as another gateway would
        tenant = session.get_one(Tenant, DEFAULT_TENANT)
        tenant.policy = tenant.policy | {"subject_rule": "email"}
    asked = "P1@Example.org", "P2@Example.org"
    answers = [upload(people(*asked)), gateway.post("/v1/deletion-requests", json={"subject_id": asked[0]})]
    by_the_new = {installation.keys.subject_ref(DEFAULT_TENANT, one.lower()) for one in asked}
    for answer in answers:
        if not answer.is_success:
            refused(answer, 409, "subject_rule_fixed")
    if answers[0].is_success:  # this gateway has read the change by now
        assert held_of(installation).keys() == by_the_new
    if answers[1].is_success:
        assert answers[1].json()["subject_ref"] in by_the_new
    count = sum(answer.is_success for answer in answers)
    assert sum(stored()[name] for name in ("datasets", "deletion_requests")) == count


# --- aliases ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def crowd(new_dataset: Make, new_model: Make, work: Callable[[], int]) -> dict[str, Any]:
    """Create a dataset of p0 ... p19 with two rows each and a model with a live version."""
    dataset = new_dataset(rows=40, rows_each=2)
    new_model(dataset["id"])
    assert work() == 1
    return dataset


def test_one_request_erases_all_aliases(
    gateway: TestClient,
    installation: Installation,
    crowd: dict[str, Any],
    forget: Make,
    get: Get,
    work: Callable[[], int],
) -> None:
    """A request with aliases erases the rows of all aliases, completes once, and gets one certificate for all of
    them."""
    made = forget("p1", aliases=["p2", "p3", "p1", " p2 ", "nobody"])
    assert len(made["alias_refs"]) == len(set(made["alias_refs"]) - {made["subject_ref"]}) == 3
    assert work() == 1
    done = get(f"/deletion-requests/{made['id']}")
    assert (done["status"], done["outcome"], len(done["models"])) == ("completed", "forgotten", 1)
    assert get(f"/datasets/{crowd['id']}")["num_records"] == 34
    assert len(get(f"/deletion-requests/{made['id']}/certificate")["certificates"]) == 1
    assert len(get(f"/deletion-requests/{made['id']}/lineage")["datasets"]) == 1
    for one in ("p1", "p2", "p3", "nobody"):
        assert [found["id"] for found in get(f"/deletion-requests?subject_id={one}")["items"]] == [made["id"]]
        assert len(get(f"/suppressions?subject_id={one}")["items"]) == 1


@pytest.mark.parametrize("first", ["p2", "p1"])
def test_requests_that_share_an_identifier_all_complete(
    installation: Installation, crowd: dict[str, Any], forget: Make, get: Get, work: Callable[[], int], first: str
) -> None:
    """Requests that share an identifier all complete as forgotten, regardless of the order in which they were made."""
    requests = [forget(first), forget("p1", aliases=["p2", "p3"]), forget("p3"), forget("p9", aliases=["p1"])]
    assert work() >= 1
    for made in requests:
        found = get(f"/deletion-requests/{made['id']}")
        assert (found["status"], found["outcome"]) == ("completed", "forgotten")
    assert get(f"/datasets/{crowd['id']}")["num_records"] == 32


def test_requests_that_share_a_person_are_served_in_order(
    crowd: dict[str, Any], forget: Make, get: Get, installation: Installation, work: Callable[[], int]
) -> None:
    """Requests about a shared person are served in order, even if each run serves only one request. If all rows that a
    request covers have already been erased, the request names the request that erased them."""
    installation.settings.max_requests_per_run = 1
    requests = [forget("p1"), forget("p5"), forget("p2", aliases=["p1", "p3"]), forget("p3")]
    assert work() >= 3
    *first, last = [get(f"/deletion-requests/{made['id']}") for made in requests]
    assert {done["outcome"] for done in first} == {"forgotten"}
    assert (last["outcome"], last["erased_by"]) == ("erased_already", requests[2]["id"])
    assert get(f"/datasets/{crowd['id']}")["num_records"] == 32


def _die_after_claiming(installation: Installation) -> None:
    """Claim the due work for a worker that is then treated as dead."""
    with installation.database.writing() as session:
        assert queue.claim(session, worker="w", lease_seconds=60, max_requests=100)
    with installation.database.writing() as session:
        assert unlearning.take_back(session, worker="w") == 1


def test_joined_requests_count_each_row_once(
    installation: Installation, crowd: dict[str, Any], forget: Make, get: Get, work: Callable[[], int]
) -> None:
    """A request that joins several requests in progress about the same people completes together with them, and its
    certificate counts each row once."""
    made = [forget("p1", aliases=["p2"]), *(forget("p1") for _ in range(5))]
    _die_after_claiming(installation)
    made += [forget("p1", aliases=["p2"]), forget("p2", aliases=["p1"])]
    work()
    assert {get(f"/deletion-requests/{one['id']}")["outcome"] for one in made} == {"forgotten"}
    for one in (made[0], *made[-2:]):
        [certificate] = get(f"/deletion-requests/{one['id']}/certificate")["certificates"]
        assert certificate["statement"]["request"]["records"] == 4


def test_a_request_joins_requests_at_different_stages(
    installation: Installation,
    crowd: dict[str, Any],
    new_model: Make,
    forget: Make,
    get: Get,
    work: Callable[[], int],
) -> None:
    """A request completes even if it joins both a partially completed request and a later request."""
    new_model(crowd["id"])
    assert work() == 1
    made = [forget("p1")]
    assert runner.run_next(installation, worker="test")  # one of the two models
    made.append(forget("p2"))
    _die_after_claiming(installation)
    made.append(forget("p1", aliases=["p2"]))
    work()
    assert {get(f"/deletion-requests/{one['id']}")["outcome"] for one in made} == {"forgotten"}


def test_requests_can_have_more_aliases_than_sql_parameters(installation: Installation) -> None:
    """Requests with 130,000 aliases, more than one SQL statement can have parameters, can be looked up and are found in
    the queue."""
    aliases = [f"sub_{number}" for number in range(130_000)]
    with installation.database.writing() as session:
        hold(session, ["sub_held"])
    with installation.database.writing(by=OFFICER) as session:
        made = ask(session, "sub_held", Policy()).request.id
    with installation.database.writing() as session:
        session.get_one(DeletionRequest, made).alias_refs = aliases
        assert repository.look_up(session, subject_refs=[*aliases, "sub_held"]).holding == {"sub_held": ["ds_1"]}
        [(_, found)] = repository.pending_erasures(session, dataset_id="ds_1", limit=1)
        assert found.id == made


def test_cancelling_a_request_lifts_the_suppression_of_its_aliases(
    gateway: TestClient, installation: Installation, forget: Make, get: Get, upload: Upload
) -> None:
    """Cancelling a request lifts the suppression of its aliases, except for aliases that another request also names."""
    gateway.patch("/v1/tenant", json={"policy": {"grace_seconds": 3600}})
    made = forget("p1", aliases=["p2", "p3"])
    stands = forget("p9", aliases=["p3"])
    assert gateway.post(f"/v1/deletion-requests/{made['id']}/cancel").is_success
    with installation.database.reading() as session:
        of = dict(session.execute(sa.select(Suppression.subject_ref, Suppression.request_id)).all())
    assert of == dict.fromkeys([stands["subject_ref"], *stands["alias_refs"]], stands["id"])


def test_held_and_unknown_aliases_get_the_same_responses(
    gateway: TestClient, crowd: dict[str, Any], key_with: Callable[..., dict[str, str]], work: Callable[[], int]
) -> None:
    """A key that is not allowed to know who is held gets the same responses for held and unknown aliases, before and
    after a run."""
    key = key_with(Scope.REQUESTS_READ, Scope.REQUESTS_WRITE)

    def seen(*aliases: str) -> tuple[dict[str, Any], dict[str, Any]]:
        body = {"subject_id": "nobody", "aliases": list(aliases)}
        made = gateway.post("/v1/deletion-requests", json=body, headers=key).json()
        work()
        later = gateway.get(f"/v1/deletion-requests/{made['id']}", headers=key).json()
        differ = {"id", "alias_refs", "submitted_at", "due_at", "created_at", "clock"}
        return tuple({name: one[name] for name in one.keys() - differ} for one in (made, later))  # type: ignore[return-value]

    assert seen("p4", "p5") == seen("nobody else", "and nobody")


def test_requests_with_identity_statements_take_no_aliases(gateway: TestClient, refused: Refused) -> None:
    """If a tenant requires identity statements, requests with aliases are refused, because an identity statement covers
    only one subject."""
    gateway.patch("/v1/tenant", json={"policy": {"identity": "statement"}})
    body = {"subject_id": "p1", "aliases": ["p2"], "identity_statement": "a.b.c"}
    problem = refused(gateway.post("/v1/deletion-requests", json=body), 422, "identity_statement_required")
    assert problem["errors"][0]["path"] == "aliases"


def test_a_batch_takes_aliases(gateway: TestClient, get: Get) -> None:
    """Batches accept aliases, and CSV files accept them in a column, separated by semicolons."""
    answers = [
        gateway.post("/v1/deletion-requests:batch", json={"requests": [{"subject_id": "p1", "aliases": ["a1", "a2"]}]}),
        gateway.post("/v1/deletion-requests.csv", content=b"subject_id,aliases\np2,a1;a2\np3,\n"),
    ]
    made = [item["id"] for answer in answers for item in answer.json()["items"]]
    assert [len(get(f"/deletion-requests/{one}")["alias_refs"]) for one in made] == [2, 2, 0]
    assert {one["id"] for one in get("/deletion-requests?subject_id=a2")["items"]} == set(made[:2])


def test_aliases_are_dropped_with_the_subject(installation: Installation, forget: Make, get: Get) -> None:
    """When a request's subject is removed, all its aliases are removed too."""
    made = forget("p1", aliases=["p2"])
    with installation.database.writing() as session:
        search_repository.erase_details(session, request_ids=[made["id"]], trace_only=True)
    assert get(f"/deletion-requests/{made['id']}")["alias_refs"] == []
    with installation.database.reading() as session:
        assert session.scalars(sa.select(RequestAlias)).all() == []
        assert session.scalars(sa.select(Suppression)).all() == []


@each("asked", ["ada.l@example.org", "ADA.L@EXAMPLE.ORG", "Ada.l@example.org"])
def test_admins_are_warned_of_ids_that_differ_by_case(
    gateway: TestClient, upload: Upload, refused: Refused, asked: str
) -> None:
    """If no rows are held for an id, a lookup or strict request returns 404 and reports how many people in the datasets
    concerned have an id that differs only by case. No request is created."""
    other = upload(people("p0", "p1", "p2")).json()["id"]
    dataset = upload(people("p0", "p1", "p2", "Ada.L@example.org")).json()["id"]
    one = "one person is held whose id is equal without regard to case."
    strict = "/v1/deletion-requests?strict=true"
    for answer in (
        gateway.get(f"/v1/datasets/{dataset}/subjects/{asked}"),
        gateway.post(strict, json={"subject_id": asked}),
        gateway.post(strict, json={"subject_id": "stranger", "aliases": [asked]}),
    ):
        assert refused(answer, 404, "subject_unknown")["detail"].endswith(f" But {one}")
    for answer in (
        gateway.get(f"/v1/datasets/{other}/subjects/{asked}"),
        gateway.post(strict, json={"subject_id": asked, "dataset_ids": [other]}),
        gateway.post(strict, json={"subject_id": "stranger"}),
    ):
        assert "case" not in refused(answer, 404, "subject_unknown")["detail"]
    assert gateway.get("/v1/deletion-requests").json()["items"] == []


def test_people_who_differ_by_case_are_counted_once_each(gateway: TestClient, upload: Upload, refused: Refused) -> None:
    """If several people's ids differ only by case, each person is counted."""
    upload(people("p0", "p1", "ada@example.org", "ADA@example.org", "Ada@example.org"))
    answer = gateway.post("/v1/deletion-requests?strict=true", json={"subject_id": "aDa@EXAMPLE.org"})
    detail = refused(answer, 404, "subject_unknown")["detail"]
    assert detail.endswith(" But 3 people are held whose ids are equal without regard to case.")


@pytest.mark.parametrize(
    ("name", "asked", "status"), [("exact", "ADA", 404), ("email", "ADA", 404), ("caseless", "ADA", 202)]
)
def test_rules_determine_case_handling(gateway: TestClient, upload: Upload, name: str, asked: str, status: int) -> None:
    """Under a case-sensitive rule, a strict request reports people whose ids differ only by case. Under the
    case-insensitive rule, it finds them."""
    assert rule(gateway, name).is_success
    upload(people("p0", "p1", "p2", "Ada"))
    answer = gateway.post("/v1/deletion-requests?strict=true", json={"subject_id": asked})
    assert answer.status_code == status
    assert ("one person is held whose id" in answer.text) == (status == 404)


def test_case_variants_are_hidden_without_the_scope(
    gateway: TestClient, upload: Upload, work: Callable[[], int], key_with: Callable[..., dict[str, str]]
) -> None:
    """A key that is not allowed to know who is held gets the same response for an unknown id and for an id that is held
    in a different case."""
    upload(people("p0", "p1", "p2", "Ada"))
    app = key_with(Scope.REQUESTS_WRITE, Scope.REQUESTS_READ)

    def answers(subject_id: str) -> list[tuple[int, dict[str, Any]]]:
        made = gateway.post("/v1/deletion-requests", json={"subject_id": subject_id}, headers=app)
        place = f"/v1/deletion-requests/{made.json()['id']}"
        strict = gateway.post("/v1/deletion-requests?strict=true", json={"subject_id": subject_id}, headers=app)
        seen = [made, gateway.get(place, headers=app), strict]
        varying = {"id", "subject_ref", "created_at", "submitted_at", "due_at", "clock", "instance", "request_id"}
        return [
            (one.status_code, {name: value for name, value in one.json().items() if name not in varying})
            for one in seen
        ]

    assert answers("ADA") == answers("stranger")
