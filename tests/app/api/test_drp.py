"""`/drp`: conformance to the Data Rights Protocol 1.0, clause by clause."""

import datetime
from collections.abc import Callable

import pytest

from tests.app.api.agents import Agent, refusal, status


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
    minutes = {n: (at + datetime.timedelta(minutes=n)).isoformat() for n in (-5, -1, 1, 20)}
    other = Agent(gateway=agent.gateway, token=agent.token)
    assert refusal(agent.call("POST", "/data-rights-request", b"{}"), 400)["fatal"]
    assert refusal(other.exercise(), 403)["fatal"]  # signed by somebody else
    refusal(agent.exercise(**{"agent-id": "AGENT_TWO"}), 403)
    refusal(agent.exercise(**{"business-id": "OTHER"}), 403)
    assert "fatal" not in refusal(agent.exercise(**{"issued-at": minutes[1]}), 400)  # it will be heard later
    assert refusal(agent.exercise(**{"issued-at": minutes[-5], "expires-at": minutes[-1]}), 400)["fatal"]
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
    later = {"issued-at": (at + datetime.timedelta(minutes=1)).isoformat()}
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
def test_conformance(agent: Agent, clause: str) -> None:
    """Each clause of the protocol that binds a business holds."""
    CLAUSES[clause](agent)
