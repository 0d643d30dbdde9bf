"""Endpoints of `/drp`: conformance to the Data Rights Protocol 1.0, the life of requests, and tokens of agents."""

import datetime
import json
import time
from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient

from app.config import Settings
from app.db.tables import ApiKey, AuditEntry
from app.features.protocols.tables import Agent as AgentRow
from app.installations import Installation
from lethe.contract.sets import Scope
from tests.features.protocols.agents import Agent, refusal, status
from tests.servers import serving, status as answering


def exercise_is_answered_with_a_status(agent: Agent) -> None:
    told = agent.exercised(**{"agent-request-id": "mine"})
    assert (told["status"], told["agent_request_id"]) == ("in_progress", "mine")
    assert "agent_request_id" not in agent.exercised(email="p2")
    assert agent.exercised(email="p3", regime=None)["status"] == "in_progress"


def status_callback(agent: Agent) -> None:
    agent.exercised(status_callback="https://agent.example.com/update_status")
    for wrong in ("http://agent.example.com/secret", "https://127.0.0.1/secret"):
        message = refusal(agent.exercise(status_callback=wrong), 400)["message"]
        assert "status_callback" in message
        assert "secret" not in message


def every_message_is_checked(agent: Agent) -> None:
    at = datetime.datetime.now(datetime.UTC)
    minutes = {n: (at + datetime.timedelta(minutes=n)).isoformat() for n in (-5, -2, 2, 20)}
    other = Agent(gateway=agent.gateway, token=agent.token)
    assert refusal(agent.call("POST", "/data-rights-request", b"{}"), 400)["fatal"]
    # The message is signed by another agent.
    assert refusal(other.exercise(), 403)["fatal"]
    refusal(agent.exercise(**{"agent-id": "AGENT_TWO"}), 403)
    refusal(agent.exercise(**{"business-id": "OTHER"}), 403)
    # The message becomes valid later, so the error is not fatal.
    assert "fatal" not in refusal(agent.exercise(**{"issued-at": minutes[2]}), 400)
    assert refusal(agent.exercise(**{"issued-at": minutes[-5], "expires-at": minutes[-2]}), 400)["fatal"]
    assert refusal(agent.exercise(**{"expires-at": minutes[20]}), 400)["fatal"]


def required_fields(agent: Agent) -> None:
    for name in ("agent-id", "business-id", "issued-at", "expires-at", "drp.version", "exercise"):
        assert name in refusal(agent.exercise(**{name: None}), 400)["message"]
    refusal(agent.exercise(**{"drp.version": "0.9.4"}), 400)


def other_rights_are_refused(agent: Agent) -> None:
    for right in ("sale:opt_out", "sale:opt_in", "access", "access:categories", "access:specific"):
        assert refusal(agent.exercise(exercise=right), 400)["fatal"]


def a_status_is_the_managing_agents_alone(agent: Agent) -> None:
    request_id = agent.exercised()["request_id"]
    assert agent.get(request_id)["request_id"] == request_id
    other = Agent(gateway=agent.gateway, agent_id="AGENT_TWO")
    other.register()
    other.set_up()
    for path in (request_id, "dr_unknown"):
        refusal(other.call("GET", f"/data-rights-request/{path}"), 403)
        refusal(other.revoke(path), 403)
    made = agent.gateway.post("/v1/deletion-requests", json={"subject_id": "p1"}).json()["id"]
    refusal(agent.call("GET", f"/data-rights-request/{made}"), 403)


def a_revoked_request_is_revoked(agent: Agent) -> None:
    for message in ({"reason": "I stay."}, {"unread": 1}):
        request_id = agent.exercised(email=str(message))["request_id"]
        assert status(agent.revoke(request_id, **message))["status"] == "revoked"
        assert status(agent.revoke(request_id))["status"] == "revoked"
        assert agent.get(request_id)["status"] == "revoked"


def a_revocation_is_signed(agent: Agent) -> None:
    request_id = agent.exercised()["request_id"]
    other = Agent(gateway=agent.gateway, token=agent.token)
    refusal(other.revoke(request_id), 403)
    refusal(agent.call("DELETE", f"/data-rights-request/{request_id}", b'{"reason": ""}'), 400)
    assert agent.get(request_id)["status"] == "in_progress"


def set_up_gives_a_token(agent: Agent) -> None:
    before = agent.token
    answer = agent.set_up()
    assert answer.json() == {"agent-id": agent.agent_id, "token": agent.token}
    assert agent.call("GET", f"/agent/{agent.agent_id}").json() == {}
    assert len(agent.token) > 40
    refusal(agent.call("GET", f"/agent/{agent.agent_id}", token=before), 401)


def set_up_is_refused_without_a_word(agent: Agent) -> None:
    at = datetime.datetime.now(datetime.UTC)
    later = {"issued-at": (at + datetime.timedelta(minutes=2)).isoformat()}
    other = Agent(gateway=agent.gateway)
    for message in (
        b"",
        b"{}",
        other.sign(agent.said()),
        agent.sign(agent.said(**{"agent-id": "AGENT_TWO"})),
        agent.sign(agent.said(**{"business-id": "OTHER"})),
        agent.sign(agent.said(**later)),
        agent.sign(agent.said(**{"drp.version": None})),
        agent.sign({}),
    ):
        answer = agent.call("POST", f"/agent/{agent.agent_id}", message, token="")
        assert (answer.status_code, answer.content) == (403, b"")
    answer = agent.call("POST", "/agent/AGENT_TWO", agent.sign(agent.said()), token="")
    assert (answer.status_code, answer.content) == (403, b"")


def agent_information(agent: Agent) -> None:
    answer = agent.call("GET", f"/agent/{agent.agent_id}")
    assert (answer.status_code, answer.json()) == (200, {})
    refusal(agent.call("GET", "/agent/AGENT_TWO"), 403)


CLAUSES: dict[str, Callable[[Agent], None]] = {
    "2.01 what a message must say": required_fields,
    "2.01.1 an exercise is answered with a status": exercise_is_answered_with_a_status,
    "2.03 where the status is to be sent": status_callback,
    "2.02.1 only the managing agent learns the status": a_status_is_the_managing_agents_alone,
    "2.04 a revocation is signed": a_revocation_is_signed,
    "2.04.1 a revoked request is revoked": a_revoked_request_is_revoked,
    "2.05 set-up gives a token": set_up_gives_a_token,
    "2.05.1 a set-up that does not validate is 403, without a body": set_up_is_refused_without_a_word,
    "2.06.1 agent information is empty, and 403 for another agent": agent_information,
    "3.01 rights that are not supported": other_rights_are_refused,
    "3.07 signature, agent, business, issue and expiry are checked": every_message_is_checked,
}


@pytest.mark.parametrize("clause", CLAUSES)
def test_the_service_meets_every_clause_for_a_business(agent: Agent, clause: str) -> None:
    """The service complies with each clause of the protocol that binds a business."""
    CLAUSES[clause](agent)


def test_a_person_is_forgotten(
    agent: Agent,
    gateway: TestClient,
    policy: Callable[..., None],
    new_dataset: Callable[..., Any],
    work: Callable[[], int],
) -> None:
    """When an agent exercises the right to deletion, a deletion request under the CCPA is created and processed like
    any other request."""
    policy(grace_seconds=0, report_seconds=0)
    new_dataset()
    request_id = agent.exercised()["request_id"]
    work()
    found = gateway.get(f"/v1/deletion-requests/{request_id}").json()
    assert (found["status"], found["outcome"], found["regulation"]) == ("completed", "forgotten", "ccpa")
    told = agent.get(request_id)
    assert told["status"] == "fulfilled"
    expected = datetime.datetime.fromisoformat(told["expected_by"])
    assert (expected - datetime.datetime.fromisoformat(told["received_at"])).days == 45
    refusal(agent.revoke(request_id), 409)


def test_agents_cannot_tell_whose_data_is_held(
    agent: Agent, policy: Callable[..., None], new_dataset: Callable[..., Any], work: Callable[[], int]
) -> None:
    """Responses are the same for a person whose data is held and for a stranger, whether or not the person is
    verified."""
    policy(grace_seconds=0, report_seconds=3600)
    new_dataset()

    def story(email: str, *, verified: bool) -> list[Any]:
        asked = agent.exercised(email=email, email_verified=verified)
        work()
        later = agent.get(asked["request_id"])
        revoked = agent.revoke(asked["request_id"])
        told = [
            {
                name: value
                for name, value in document.items()
                if name not in ("request_id", "received_at", "expected_by")
            }
            for document in (asked, later, revoked.json())
        ]
        return [*told, revoked.status_code]

    for verified in (True, False):
        assert story("p1", verified=verified) == story("nobody", verified=verified)


def test_an_agent_is_notified_of_every_change(settings: Settings, request: pytest.FixtureRequest) -> None:
    """On each change, a request's status is sent to its `status_callback`. The callback is unsigned, because the
    protocol defines no signature for it."""
    settings.webhook_allowed_networks = "127.0.0.0/8"
    agent: Agent = request.getfixturevalue("agent")
    with serving(answering(200)) as receiver:
        asked = agent.exercised(status_callback=f"http://127.0.0.1:{receiver.port}/update_status")
        assert agent.revoke(asked["request_id"]).status_code == 200
        deadline = time.monotonic() + 120
        while len(receiver.calls) < 2 and time.monotonic() < deadline:
            time.sleep(0.05)
    told = [json.loads(call.body) for call in receiver.calls]
    assert told == [asked, asked | {"status": "revoked"}]
    assert not any("signature" in name for call in receiver.calls for name in call.headers)


def test_a_repeated_message_is_the_same_request(agent: Agent, gateway: TestClient) -> None:
    """Repeating a message, or sending a newly signed message with the same agent request id, creates no second
    request."""
    for message in (agent.asked(email="p1"), agent.asked(email="p2", **{"agent-request-id": "mine"})):
        signed = agent.sign(message)
        first, again = (status(agent.call("POST", "/data-rights-request", signed)) for _ in range(2))
        assert first == again
    assert agent.exercised(email="p2", **{"agent-request-id": "mine"}) == first
    assert len(gateway.get("/v1/deletion-requests").json()["items"]) == 2


def test_reusing_the_agents_request_id_is_a_conflict(agent: Agent) -> None:
    """A different request with the same agent request id is refused as a conflict."""
    agent.exercised(**{"agent-request-id": "mine"})
    for changed in ({"email": "p2"}, {"regime": "voluntary"}):
        refusal(agent.exercise(**{"agent-request-id": "mine"} | changed), 409)


def test_two_agents_may_use_the_same_id(agent: Agent) -> None:
    """Two agents can each use the same request id for a request of their own."""
    other = Agent(gateway=agent.gateway, agent_id="AGENT_TWO")
    other.register()
    other.set_up()
    one, two = (each.exercised(**{"agent-request-id": "mine"}) for each in (agent, other))
    assert one["request_id"] != two["request_id"]


def test_an_unverified_person_waits_in_review(
    agent: Agent, gateway: TestClient, policy: Callable[..., None], get: Callable[[str], Any]
) -> None:
    """An unverified person is sent to the business's verification page. A privacy officer approves or rejects the
    request, and the agent receives the reason."""
    policy(drp_verification_url="https://business.example.com/verify")
    told = agent.exercised(email_verified=False)
    request_id = told["request_id"]
    assert (told["status"], told["reason"]) == ("in_progress", "need_user_verification")
    assert told["user_verification_url"] == f"https://business.example.com/verify/{request_id}"
    assert get(f"/deletion-requests/{request_id}")["status"] == "in_review"
    body = {"ground": "identity_not_established", "explanation": "Nobody came."}
    answer = gateway.post(f"/v1/deletion-requests/{request_id}/reject", json=body)
    assert answer.status_code == 200, answer.text
    told = agent.get(request_id)
    assert (told["status"], told["reason"]) == ("denied", "insuf_verification")
    assert told["processing_details"] == "Nobody came."
    approved = agent.exercised(email="p2", email_verified=None)["request_id"]
    assert gateway.post(f"/v1/deletion-requests/{approved}/approve").status_code == 200
    assert "reason" not in agent.get(approved)


def test_no_personal_data_is_stored(
    agent: Agent, installation: Installation, capfd: pytest.CaptureFixture[str]
) -> None:
    """No database table and no log contains a claim about the person or the reason for revoking the request."""
    request_id = agent.exercised(email="somebody", phone_number="12345678", name="Jo Doe")["request_id"]
    agent.revoke(request_id, reason="because of somebody")
    with installation.database.reading() as session:
        names = sa.inspect(session.get_bind()).get_table_names()
        dump = "".join(str(session.execute(sa.text(f"SELECT * FROM {name}")).all()) for name in names)
    assert request_id in dump
    for word in ("somebody", "12345678", "Jo Doe"):
        assert word not in dump + "".join(capfd.readouterr())


KeyWith = Callable[..., dict[str, str]]
Refused = Callable[..., dict[str, Any]]


def test_failed_set_ups_are_rate_limited(agent: Agent) -> None:
    """The number of failed agent set-ups per address and minute is limited."""
    codes = {agent.call("POST", "/agent/AGENT_ONE", b"AAAA", token="").status_code for _ in range(200)}
    assert codes == {403, 429}


def test_an_agent_may_serve_several_tenants(agent: Agent, gateway: TestClient) -> None:
    """The business named in a message determines the tenant to which the agent's token and requests belong."""
    policy = {"drp_business_id": "SECOND", "drp_claim": "email"}
    made = gateway.post("/v1/tenants", json={"name": "other", "policy": policy}).json()
    admin = dict(gateway.headers)
    gateway.headers["Authorization"] = f"Bearer {made['admin_key']}"
    twin = Agent(gateway=gateway, business_id="SECOND", key=agent.key)
    twin.register()
    assert twin.set_up().status_code == 200
    request_id = twin.exercised()["request_id"]
    assert gateway.get(f"/v1/deletion-requests/{request_id}").status_code == 200
    gateway.headers["Authorization"] = admin["authorization"]
    assert gateway.get(f"/v1/deletion-requests/{request_id}").status_code == 404
    refusal(agent.call("GET", f"/data-rights-request/{request_id}"), 403)
    assert agent.exercise().status_code == 200


def test_agent_actions_are_in_the_audit_log(agent: Agent, gateway: TestClient, installation: Installation) -> None:
    """Registration, set-up, requests and removal of an agent are recorded in the audit log, each with its actor."""
    agent.exercised()
    [row] = gateway.get("/v1/agents").json()["items"]
    assert gateway.delete(f"/v1/agents/{row['id']}").status_code == 204
    with installation.database.reading() as session:
        entries = list(session.scalars(sa.select(AuditEntry).order_by(AuditEntry.sequence)))
        keys = {key.id: key.revoked_at for key in session.scalars(sa.select(ApiKey))}
        assert session.scalars(sa.select(AgentRow)).all() == []
    found = {entry.action: entry.actor for entry in entries}
    assert found["agent.set_up"] == row["id"]
    assert found["deletion_request.created"] == row["api_key_id"]
    assert found["agent.registered"] == found["agent.removed"] not in (row["id"], row["api_key_id"])
    assert keys[row["api_key_id"]] is not None


def test_a_revoked_key_is_replaced_at_set_up(agent: Agent, gateway: TestClient) -> None:
    """An agent whose token was revoked gets a new token by repeating the set-up."""
    [row] = gateway.get("/v1/agents").json()["items"]
    gateway.delete(f"/v1/api-keys/{row['api_key_id']}")
    refusal(agent.exercise(), 401)
    assert agent.set_up().status_code == 200
    agent.exercised()


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/data-rights-request"),
        ("POST", "/data-rights-request/"),
        ("GET", "/data-rights-request/1"),
        ("DELETE", "/data-rights-request/1"),
        ("GET", "/agent/AGENT_ONE"),
    ],
)
def test_the_protocol_requires_an_agent_token(agent: Agent, key_with: KeyWith, method: str, path: str) -> None:
    """API keys that are not agent tokens are refused with 403, whatever their scopes. A wrong token is refused with
    401."""
    for scope in Scope:
        along = (Scope.ACCOUNTING_READ,) if scope is Scope.REQUESTS_REVIEW else ()
        token = key_with(scope, *along)["Authorization"].removeprefix("Bearer ")
        assert agent.call(method, path, token=token).status_code == 403
    refusal(agent.call(method, path, token="wrong"), 401)


def test_a_token_shows_only_its_own_requests(agent: Agent, gateway: TestClient, refused: Refused) -> None:
    """An agent's token gives access to the agent's own requests through the protocol, but to no other data of the
    tenant."""
    for path in ("/v1/deletion-requests", "/v1/datasets", "/v1/agents", "/v1/api-keys", "/v1/audit-log"):
        refused(gateway.get(path, headers={"Authorization": f"Bearer {agent.token}"}), 403, "scope_missing")
