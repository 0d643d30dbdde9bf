"""`/drp`: which agents are heard, for which tenants, and what a token of theirs opens."""

import datetime
from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient

from app.db.tables import Agent as AgentRow
from app.db.tables import ApiKey, AuditEntry
from app.installations import Installation
from lethe.contract.sets import Scope
from tests.app.api.agents import Agent, refusal

KeyWith = Callable[..., dict[str, str]]
Refused = Callable[..., dict[str, Any]]


def test_an_answered_set_up_cannot_be_answered_again(agent: Agent) -> None:
    """Whoever has seen a set-up message, or an older one, gets no token for it."""
    message, older = agent.sign(agent.said()), agent.said()
    older["issued-at"] = (datetime.datetime.now(datetime.UTC) - datetime.timedelta(minutes=5)).isoformat()
    older["expires-at"] = (datetime.datetime.now(datetime.UTC) + datetime.timedelta(minutes=5)).isoformat()
    assert agent.set_up(message).status_code == 200
    for again in (message, agent.sign(older)):
        assert agent.set_up(again).status_code == 403
    assert agent.call("GET", f"/agent/{agent.agent_id}").status_code == 200


def test_wrong_set_ups_are_counted_like_wrong_keys(agent: Agent) -> None:
    """From one address only so many are heard in a minute."""
    codes = {agent.call("POST", "/agent/AGENT_ONE", b"AAAA", token="").status_code for _ in range(200)}
    assert codes == {403, 429}


def test_a_tenant_that_is_not_in_the_network_serves_no_agent(gateway: TestClient) -> None:
    """Without a business id in its policy."""
    agent = Agent(gateway=gateway)
    agent.register()
    assert agent.set_up().status_code == 403


def test_an_agent_may_serve_several_tenants(agent: Agent, gateway: TestClient) -> None:
    """The business that a message is for decides where its token and its requests belong."""
    made = gateway.post("/v1/tenants", json={"name": "other", "policy": {"drp_business_id": "SECOND"}}).json()
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


def test_what_agents_and_admins_do_is_in_the_audit_log(
    agent: Agent, gateway: TestClient, installation: Installation
) -> None:
    """Registering, set-up, requests and removal, each with who did it."""
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


def test_a_removed_agent_does_nothing_more(agent: Agent, gateway: TestClient, refused: Refused) -> None:
    """Its token opens nothing, its signature gives no new one, and its id can be registered again."""
    [row] = gateway.get("/v1/agents").json()["items"]
    gateway.delete(f"/v1/agents/{row['id']}")
    refused(gateway.delete(f"/v1/agents/{row['id']}"), 404, "agent_unknown")
    refusal(agent.exercise(), 401)
    assert agent.set_up().status_code == 403
    agent.register()
    assert agent.set_up().status_code == 200


def test_a_key_that_an_admin_revoked_is_replaced_at_set_up(agent: Agent, gateway: TestClient) -> None:
    """The agent can always ask for a token again."""
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
def test_who_may_call(agent: Agent, key_with: KeyWith, method: str, path: str) -> None:
    """Only an agent's token opens the protocol, whatever else a key may do; without one the answer is 401."""
    for scope in Scope:
        along = (Scope.ACCOUNTING_READ,) if scope is Scope.REQUESTS_REVIEW else ()
        token = key_with(scope, *along)["Authorization"].removeprefix("Bearer ")
        assert agent.call(method, path, token=token).status_code == 403
    refusal(agent.call(method, path, token="wrong"), 401)


def test_a_token_opens_nothing_else(agent: Agent, gateway: TestClient, refused: Refused) -> None:
    """An agent sees its own requests in its protocol, and nothing of the tenant's others."""
    for path in ("/v1/deletion-requests", "/v1/datasets", "/v1/agents", "/v1/api-keys", "/v1/audit-log"):
        refused(gateway.get(path, headers={"Authorization": f"Bearer {agent.token}"}), 403, "scope_missing")
