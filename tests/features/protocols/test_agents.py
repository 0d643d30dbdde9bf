"""The endpoints below `/v1/agents`: the agents whose signatures a tenant accepts."""

import base64
from collections.abc import Callable
from typing import Any

from fastapi.testclient import TestClient

Refused = Callable[..., dict[str, Any]]
AGENT = {"agent_id": "AGENT_ONE", "name": "An agent", "verify_key": base64.b64encode(bytes(range(32))).decode()}


def test_an_agent_is_registered_listed_and_removed(gateway: TestClient, refused: Refused) -> None:
    """A new agent is listed with its key, but without a token until it has requested one. A removed agent is no longer
    listed."""
    answer = gateway.post("/v1/agents", json=AGENT)
    made = answer.json()
    assert (answer.status_code, answer.headers["Location"]) == (201, f"/v1/agents/{made['id']}")
    assert made == AGENT | {"id": made["id"], "created_at": made["created_at"], "api_key_id": None}
    assert gateway.get("/v1/agents").json() == {"items": [made], "next_cursor": None}
    assert gateway.delete(f"/v1/agents/{made['id']}").status_code == 204
    refused(gateway.delete(f"/v1/agents/{made['id']}"), 404, "agent_unknown")
    assert gateway.get("/v1/agents").json()["items"] == []


def test_repeating_a_registration_is_a_no_op(gateway: TestClient, refused: Refused) -> None:
    """Repeating a registration with its idempotency key returns the first response. Repeating it without the key fails
    because the agent already exists."""
    headers = {"Idempotency-Key": "1"}
    first, again = (gateway.post("/v1/agents", json=AGENT, headers=headers) for _ in range(2))
    assert (first.status_code, first.json()) == (again.status_code, again.json())
    refused(gateway.post("/v1/agents", json=AGENT | {"name": "x"}, headers=headers), 409, "idempotency_conflict")
    refused(gateway.post("/v1/agents", json=AGENT), 409, "agent_exists")


def test_an_agent_with_an_invalid_key_is_refused(gateway: TestClient, refused: Refused) -> None:
    """Registering an agent with an invalid key, id, name or field is refused."""
    for changed in ({"verify_key": "AAAA"}, {"agent_id": "a b"}, {"agent_id": ""}, {"name": ""}, {"more": 1}):
        refused(gateway.post("/v1/agents", json=AGENT | changed), 422, "input_invalid")
    assert gateway.get("/v1/agents").json()["items"] == []
