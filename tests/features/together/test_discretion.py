"""Discretion: an app's key may not learn whether anything is held about a person."""

import datetime
import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, given, settings, strategies as st

from app.access import service as access
from app.db import Actor
from app.deletion import completion
from app.features.webhooks.tables import WebhookDelivery
from app.installations import Installation
from lethe.contract.sets import Scope
from lethe.contract.tenants import Policy
from tests.app.deletion import people
from tests.features.trainers import made as trainers
from tests.tables import at_length

PLACE = "/v1/deletion-requests"
HOUR = datetime.timedelta(hours=1)
Make = Callable[..., dict[str, Any]]

POLICIES = {
    "the usual": Policy(report_seconds=3 * 3600),
    "with a grace period": Policy(report_seconds=3 * 3600, grace_seconds=2 * 3600),
    "reviewed": Policy(report_seconds=3 * 3600, auto_accept=False),
    "reviewed, with a grace period": Policy(report_seconds=2 * 3600, grace_seconds=3 * 3600, auto_accept=False),
}
ACTS = st.sampled_from(["wait", "wait", "cancel", "approve", "reject", "extend", "pause", "resume", "follow", "again"])
BODIES: dict[str, Any] = {
    "reject": {"ground": "legal_claims", "explanation": "a lawsuit"},
    "extend": {"reason": "so many"},
    "pause": {"reason": "identity"},
}


class Pair:
    """Two people with the same requests, one with rows and one without."""

    def __init__(self, gateway: TestClient, app: dict[str, str], held: str, unknown: str) -> None:
        self.gateway, self.app = gateway, app
        self.people = (held, unknown)
        self.requests: list[list[str]] = [[], []]

    def ask(self, **asked: Any) -> None:
        answers = [
            self.gateway.post(PLACE, json={"subject_id": who} | asked | self._reference(which), headers=self.app)
            for which, who in enumerate(self.people)
        ]
        self.same([self.seen(answer.json()) | {"code": answer.status_code} for answer in answers])
        for mine, answer in zip(self.requests, answers, strict=True):
            mine += [answer.json()["id"]] if answer.status_code == 202 else []

    def act(self, verb: str) -> None:
        officer = None if verb != "cancel" else self.app
        answers = [
            self.gateway.post(f"{PLACE}/{mine[-1]}/{verb}", json=BODIES.get(verb), headers=officer)
            for mine in self.requests
        ]
        if verb == "cancel":
            self.same([self.seen(answer.json()) | {"code": answer.status_code} for answer in answers])

    def look(self) -> None:
        """Read everything an app can read, and check that it is the same for both people: the last request, its events,
        and the lists that contain the person."""
        last = [mine[-1] for mine in self.requests]
        self.same([self.seen(self.gateway.get(f"{PLACE}/{one}", headers=self.app).json()) for one in last])
        self.same([self.events(one) for one in last])
        for query in ("status=accepted", "status=completed", "due_before=2999-01-01T00:00:00Z"):
            self.same([self.listed(f"subject_id={who}&{query}") for who in self.people])

    def listed(self, query: str) -> list[Any]:
        page = self.gateway.get(f"{PLACE}?{query}", headers=self.app).json()
        return [self.seen(one) for one in page["items"]]

    def events(self, request_id: str) -> list[Any]:
        found = self.gateway.get(f"{PLACE}/{request_id}/events", headers=self.app).json()["items"]
        began = moment(found[0]["at"])
        return [one | {"at": rounded(moment(one["at"]) - began)} for one in found]

    @staticmethod
    def seen(body: dict[str, Any]) -> dict[str, Any]:
        """Return a response body without ids and with times relative to its creation."""
        flat = body | {f"clock.{name}": value for name, value in body.get("clock", {}).items()}
        began = moment(body["created_at"]) if "created_at" in body else None
        return {
            name: rounded(moment(value) - began) if began and is_moment(value) else value
            for name, value in flat.items()
            if name not in ("id", "subject_ref", "refers_to", "clock")
        }

    @staticmethod
    def same(views: list[Any]) -> None:
        assert views[0] == views[1]

    def _reference(self, which: int) -> dict[str, str]:
        return {"refers_to": self.requests[which][-1]} if self.requests[which] and self.following else {}

    following = False


def is_moment(value: object) -> bool:
    return isinstance(value, str) and value[:2] == "20" and value.endswith("Z")


def moment(text: str) -> datetime.datetime:
    return datetime.datetime.fromisoformat(text)


def rounded(passed: datetime.timedelta) -> float:
    """Round a duration to whole hours, because calls take some time."""
    return round(passed / HOUR)


@pytest.fixture(params=at_length(POLICIES, besides=["the usual"]))
def law(installation: Installation, request: pytest.FixtureRequest) -> Policy:
    with installation.database.writing() as session:
        return people.obey(session, POLICIES[request.param])


@pytest.fixture
def pairs(
    law: Policy, gateway: TestClient, new_dataset: Make, key_with: Callable[..., dict[str, str]]
) -> Iterator[Pair]:
    """Yield new pairs of requests, about a person in a dataset and about a stranger."""
    new_dataset(rows=400)
    app = key_with(Scope.REQUESTS_READ, Scope.REQUESTS_WRITE)
    return (Pair(gateway, app, f"p{number}", f"stranger {number}") for number in itertools.count())


@settings(max_examples=8, suppress_health_check=list(HealthCheck))
@given(acts=st.lists(ACTS, min_size=2, max_size=6), verified=st.booleans(), works=st.sampled_from([1, 2, 9]))
def test_held_and_unknown_people_look_the_same(
    installation: Installation,
    pairs: Iterator[Pair],
    work: Callable[[], int],
    acts: list[str],
    verified: bool,
    works: int,
) -> None:
    """To an application, a request looks the same whether or not the person's data is held, whatever happens to the
    request, whenever the application reads it, and however late the workers are."""
    pair = next(pairs)
    pair.ask(identity_verified=verified)
    for turn, act in enumerate(["wait", *acts, "wait", "wait", "wait"], start=1):
        match act:
            case "wait":
                with installation.database.writing() as session:
                    people.later(session, HOUR)
            case "follow" | "again":
                pair.following = act == "follow"
                pair.ask()
            case _:
                pair.act(act)
        with installation.database.writing() as session:
            completion.settle(session)
        if turn % works == 0:
            work()
        pair.look()


@pytest.fixture
def registered(gateway: TestClient) -> None:
    """Register a system of each kind, and an identity map from an e-mail address to the customer p1."""

    def post(path: str, **given: Any) -> dict[str, Any]:
        answer = gateway.post(f"/v1/{path}", **given)
        assert answer.is_success, answer.text
        made: dict[str, Any] = answer.json()
        return made

    of_p1 = [{"kind": "email", "id": "p1@example.org"}, {"kind": "customer_id", "id": "p1"}]
    post("identities", json={"links": [{"identifiers": of_p1}]})
    told = {"contact": "its team", "webhook_url": "https://elsewhere.example/lethe"}
    key = {"public_key": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}
    post("systems", json={"name": "Recommender"} | told)
    post("attested-trainers", json={"name": "Churn"} | told | key)
    ledger: dict[str, Any] = {"format": "opacus", "history": [[2.0, 0.01, 200]]}
    terms = {"delta": 1e-5, "max_rows_per_person": 1, "budget_epsilon": 3.0, "trained_from": "2026-01-01T00:00:00Z"}
    post("dp-models", json={"name": "Ranker", "ledger": ledger} | terms)
    rows = {"file": ("people.csv", b"person,name\np1,n1\nt0,n0\n")}
    table = post("training-tables", data={"name": "people", "subject_column": "person"}, files=rows)
    post("trainers", json=trainers.trainer(table["id"]))


@pytest.mark.usefixtures("registered")
@pytest.mark.parametrize("kind", ["email", "customer_id"])
def test_systems_trainers_ledgers_and_maps_reveal_nothing_to_an_app(
    law: Policy,
    installation: Installation,
    gateway: TestClient,
    new_dataset: Make,
    key_with: Callable[..., dict[str, str]],
    work: Callable[[], int],
    refused: Callable[..., Any],
    kind: str,
) -> None:
    """With a system of each kind and an identity map registered, an application sees the same for a stranger as for a
    person who is in the map, the dataset and a trainer's table, whatever the age of the request. Every call that would
    reveal more is refused."""
    new_dataset()
    app = key_with(Scope.REQUESTS_READ, Scope.REQUESTS_WRITE)
    pair = Pair(gateway, app, *(("p1@example.org", "x9@example.org") if kind == "email" else ("p1", "x9")))
    pair.ask(kind=kind, external_id="case", callback_url="https://receiver.example/hook")
    for _ in range(5):
        pair.look()
        told = gateway.get("/v1/webhook-deliveries", headers=app).json()["items"]
        assert len(set(Counter(one["request_id"] for one in told).values())) == 1
        for [request] in pair.requests:
            for path in ("identities", "systems", "bundle", "certificate", "traces"):
                answer = gateway.get(f"{PLACE}/{request}/{path}", headers=app)
                assert answer.status_code in (403, 404), path
        with installation.database.writing() as session:
            people.later(session, HOUR)
        work()
    for path in ("identities", "systems", "system-tasks", "trainers", "training-tables", "attested-trainers"):
        refused(gateway.get(f"/v1/{path}", headers=app), 403, "scope_missing")
    refused(gateway.get("/v1/dp-models", headers=app), 403, "scope_missing")
    ids = {"ids": ["p1", "x9"]}
    [trainer] = gateway.get("/v1/attested-trainers").json()["items"]
    refused(
        gateway.post(f"/v1/attested-trainers/{trainer['id']}/identifiers", json=ids, headers=app), 403, "scope_missing"
    )


def test_certificates_need_the_accounting_scope(
    gateway: TestClient, key_with: Callable[..., dict[str, str]], refused: Callable[..., Any]
) -> None:
    """Reading certificates and listing a model's requests need accounting:read."""
    app, auditor = key_with(Scope.REQUESTS_READ), key_with(Scope.REQUESTS_READ, Scope.ACCOUNTING_READ)
    for path in (f"{PLACE}/dr_0/certificate", "/v1/certificates/crt_0", f"{PLACE}?model_id=mdl_0"):
        refused(gateway.get(path, headers=app), 403, "scope_missing")
        assert gateway.get(path, headers=auditor).status_code in (200, 404)


def test_lists_show_requests_as_accepted_until_their_report(
    installation: Installation,
    gateway: TestClient,
    new_dataset: Make,
    work: Callable[[], int],
    key_with: Callable[..., Any],
) -> None:
    """Requests are listed as accepted until their report time and as completed afterwards, even if they are still
    waiting for a worker. Each request appears on exactly one page."""
    with installation.database.writing() as session:
        people.obey(session, Policy(report_seconds=3600))
    new_dataset()
    app = key_with(Scope.REQUESTS_READ, Scope.REQUESTS_WRITE)
    made = []
    for number in range(7):
        who = f"p{number}" if number % 2 else f"stranger {number}"
        made.append(gateway.post(PLACE, json={"subject_id": who}, headers=app).json()["id"])
        if number == 3:
            work()

    def listed(query: str) -> list[str]:
        found, cursor = [], ""
        while cursor is not None:
            page = gateway.get(f"{PLACE}?{query}&limit=2{cursor and f'&cursor={cursor}'}", headers=app).json()
            found += [request["id"] for request in page["items"]]
            cursor = page["next_cursor"]
        return found

    assert listed("status=accepted") == made[::-1]
    assert listed("status=completed") == []
    with installation.database.writing() as session:
        people.later(session, HOUR)
    assert listed("status=accepted") == []
    assert listed("status=completed") == made[::-1]


def test_waiting_requests_reveal_nothing(
    installation: Installation, gateway: TestClient, new_dataset: Make, key_with: Callable[..., Any]
) -> None:
    """While no worker is active, requests about held people and about strangers appear to an application to complete at
    the same age, in every response. Officers see which requests are still waiting."""
    with installation.database.writing() as session:
        people.obey(session, Policy(report_seconds=3 * 3600))
    new_dataset()
    app = key_with(Scope.REQUESTS_READ, Scope.REQUESTS_WRITE)
    pair = Pair(gateway, app, "p1", "nobody")
    pair.ask(callback_url="https://receiver.example/hook", external_id="case")
    seen = []
    for _ in range(5):
        pair.look()
        told = gateway.get("/v1/webhook-deliveries", headers=app).json()["items"]
        counted = Counter(one["request_id"] for one in told)
        assert len(set(counted.values())) == 1
        mine = [gateway.get(f"{PLACE}/{one[-1]}", headers=app).json() for one in pair.requests]
        seen.append((mine[0]["status"], mine[1]["status"], counted[mine[0]["id"]]))
        with installation.database.writing() as session:
            people.later(session, HOUR)
            for delivery in session.scalars(sa.select(WebhookDelivery)):
                delivery.created_at -= HOUR
    assert seen == [("accepted", "accepted", 1)] * 3 + [("completed", "completed", 2)] * 2
    known = [gateway.get(f"{PLACE}/{one[-1]}").json()["status"] for one in pair.requests]
    assert known == ["accepted", "completed"]


def test_decisions_after_the_grace_period_reveal_nothing(
    installation: Installation,
    gateway: TestClient,
    new_dataset: Make,
    key_with: Callable[..., Any],
    refused: Callable[..., Any],
) -> None:
    """After the grace period, an application's request can be neither rejected nor cancelled, whether or not data is
    held. If it is rejected within the grace period, the application's receiver is not notified of a completion. An
    officer's own request can be rejected until a worker has claimed it."""
    with installation.database.writing() as session:
        people.obey(session, Policy(report_seconds=7200, grace_seconds=3600))
    new_dataset()
    app = key_with(Scope.REQUESTS_READ, Scope.REQUESTS_WRITE)
    asked = {"callback_url": "https://receiver.example/hook"}
    early, late, stranger = (
        gateway.post(PLACE, json={"subject_id": who} | asked, headers=app).json()["id"]
        for who in ("p1", "p2", "nobody")
    )
    own = gateway.post(PLACE, json={"subject_id": "p3"}).json()["id"]
    assert gateway.post(f"{PLACE}/{early}/reject", json=BODIES["reject"]).status_code == 200
    with installation.database.writing() as session:
        people.later(session, HOUR)
    for one in (late, stranger):
        refused(gateway.post(f"{PLACE}/{one}/reject", json=BODIES["reject"]), 409, "transition_forbidden")
        refused(gateway.post(f"{PLACE}/{one}/cancel"), 409, "transition_forbidden")
    assert gateway.post(f"{PLACE}/{own}/reject", json=BODIES["reject"]).status_code == 200
    told = gateway.get("/v1/webhook-deliveries").json()["items"]
    assert Counter(one["event"].partition(".")[2] for one in told if one["request_id"] == early) == {
        "accepted": 1,
        "rejected": 1,
    }
    assert gateway.get(f"{PLACE}/{early}", headers=app).json()["status"] == "rejected"


def test_decisions_by_an_old_key_reveal_nothing(
    installation: Installation,
    by: Actor,
    gateway: TestClient,
    new_dataset: Make,
    key_with: Callable[..., Any],
    refused: Callable[..., Any],
) -> None:
    """A reviewing key from an earlier release that lacks accounting:read cannot decide requests, singly or in bulk, and
    is refused identically for a held person and for a stranger. The key cannot be rotated, and no new key without that
    scope can review."""
    new_dataset()
    officer = key_with(Scope.REQUESTS_REVIEW, Scope.ACCOUNTING_READ)
    held, stranger = (gateway.post(PLACE, json={"subject_id": who}).json()["id"] for who in ("p1", "nobody"))
    with installation.database.writing(by=by) as session:
        old = access.find(session, officer["Authorization"].removeprefix("Bearer "))
        old.scopes, key_id = [Scope.REQUESTS_REVIEW.value], old.id
        access.will_change(session)
    for verb in ("approve", "reject", "extend", "pause", "resume"):
        told = [
            gateway.post(f"{PLACE}/{one}/{verb}", json=BODIES.get(verb), headers=officer) for one in (held, stranger)
        ]
        assert told[0].content == told[1].content
        assert "accounting:read" in refused(told[0], 403, "scope_missing")["detail"]
    everything = {"decision": "reject", "status": "accepted", "rejection": BODIES["reject"]}
    everything |= {"made_before": "2999-01-01T00:00:00Z"}
    refused(gateway.post(f"{PLACE}:decide", json=everything, headers=officer), 403, "scope_missing")
    for path, body in (("", {"name": "new", "scopes": ["requests:review"]}), (f"/{key_id}/rotate", {})):
        problem = refused(gateway.post(f"/v1/api-keys{path}", json=body), 422, "input_invalid")
        assert [fault["path"] for fault in problem["errors"]] == ["scopes"]
