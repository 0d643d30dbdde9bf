"""`/drp`: what becomes of the requests of agents, and what they are told of it."""

import datetime
import json
import time
from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient

from app.config import Settings
from app.installations import Installation
from tests.app.api.agents import Agent, refusal, status
from tests.app.webhooks.servers import serving
from tests.app.webhooks.servers import status as answering


def test_a_person_is_forgotten(
    agent: Agent,
    gateway: TestClient,
    policy: Callable[..., None],
    new_dataset: Callable[..., Any],
    work: Callable[[], int],
) -> None:
    """An exercise becomes a deletion request under the CCPA, which is done like any other."""
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


def test_an_agent_does_not_learn_who_is_in_the_data(
    agent: Agent, policy: Callable[..., None], new_dataset: Callable[..., Any], work: Callable[[], int]
) -> None:
    """Answers about somebody who is held and about somebody who is not are the same, verified or not."""
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


def test_an_agent_is_told_of_every_change(settings: Settings, request: pytest.FixtureRequest) -> None:
    """The status object is sent to its `status_callback`, without a signature: the protocol has none for it."""
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


def test_the_same_message_again_is_the_same_request(agent: Agent, gateway: TestClient) -> None:
    """A repetition makes nothing new, be it of the message or, newly signed, of the agent's own id for it."""
    for message in (agent.asked(email="p1"), agent.asked(email="p2", **{"agent-request-id": "mine"})):
        signed = agent.sign(message)
        first, again = (status(agent.call("POST", "/data-rights-request", signed)) for _ in range(2))
        assert first == again
    assert agent.exercised(email="p2", **{"agent-request-id": "mine"}) == first
    assert len(gateway.get("/v1/deletion-requests").json()["items"]) == 2


@pytest.mark.parametrize("changed", [{"email": "p2"}, {"regime": "voluntary"}])
def test_another_request_under_the_agents_id_is_a_conflict(agent: Agent, changed: dict[str, Any]) -> None:
    """The agent's id for a request stands for one request."""
    agent.exercised(**{"agent-request-id": "mine"})
    refusal(agent.exercise(**{"agent-request-id": "mine"} | changed), 409)


def test_two_agents_may_use_the_same_id(agent: Agent) -> None:
    """An agent's ids are its own."""
    other = Agent(gateway=agent.gateway, agent_id="AGENT_TWO")
    other.register()
    other.set_up()
    one, two = (each.exercised(**{"agent-request-id": "mine"}) for each in (agent, other))
    assert one["request_id"] != two["request_id"]


def test_who_is_not_verified_waits_in_review(
    agent: Agent, gateway: TestClient, policy: Callable[..., None], get: Callable[[str], Any]
) -> None:
    """The person is sent to the business's page; a privacy officer approves or rejects, and the agent is told why."""
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


def test_an_extension_is_told_with_its_reason(agent: Agent, gateway: TestClient) -> None:
    """`expected_by` moves, and `processing_details` says why."""
    before = agent.exercised()
    answer = gateway.post(f"/v1/deletion-requests/{before['request_id']}/extend", json={"reason": "Many came."})
    assert answer.status_code == 200, answer.text
    told = agent.get(before["request_id"])
    assert told["expected_by"] > before["expected_by"]
    assert told["processing_details"] == "Many came."


def test_the_policy_names_the_claim(agent: Agent, gateway: TestClient, policy: Callable[..., None]) -> None:
    """A business whose subject ids are its customers' numbers says so, and asks for that claim."""
    policy(drp_claim="customer_id")
    refusal(agent.exercise(), 400)
    request_id = agent.exercised(email=None, customer_id="c1", customer_id_verified=True)["request_id"]
    found = gateway.get("/v1/deletion-requests", params={"subject_id": "c1"}).json()["items"]
    assert [item["id"] for item in found] == [request_id]


def test_nothing_about_the_person_is_kept(
    agent: Agent, installation: Installation, capfd: pytest.CaptureFixture[str]
) -> None:
    """No claim and no reason is in any table or log."""
    request_id = agent.exercised(email="somebody", phone_number="12345678", name="Jo Doe")["request_id"]
    agent.revoke(request_id, reason="because of somebody")
    with installation.database.reading() as session:
        names = sa.inspect(session.get_bind()).get_table_names()
        dump = "".join(str(session.execute(sa.text(f"SELECT * FROM {name}")).all()) for name in names)
    assert request_id in dump
    for word in ("somebody", "12345678", "Jo Doe"):
        assert word not in dump + "".join(capfd.readouterr())
