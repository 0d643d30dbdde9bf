"""`client.agents`: authorised agents of the Data Rights Protocol; all of these need the scope admin."""

import datetime
from collections.abc import Iterator
from dataclasses import dataclass

from lethe.endpoints import Endpoint
from lethe.http import Http
from lethe.values import Page


@dataclass(frozen=True, slots=True, kw_only=True)
class Agent:
    """`agent_id`: in the network's directory; `api_key_id`: its token, once it has asked for one."""

    id: str
    agent_id: str
    name: str
    verify_key: str
    api_key_id: str | None
    created_at: datetime.datetime


REGISTER = Endpoint("POST", "/v1/agents", Agent, keyed=True)
LIST = Endpoint("GET", "/v1/agents", Page[Agent])
REMOVE = Endpoint("DELETE", "/v1/agents/{id}", type(None))


class Agents:
    def __init__(self, http: Http) -> None:
        self._http = http

    def register(self, *, agent_id: str, name: str, verify_key: str, idempotency_key: str | None = None) -> Agent:
        """Let an agent sign requests; `verify_key`: its Ed25519 public key in base64, as the directory has it."""
        body = {"agent_id": agent_id, "name": name, "verify_key": verify_key}
        return self._http.call(REGISTER, json=body, idempotency_key=idempotency_key)

    def list(self) -> Iterator[Agent]:
        """All, newest first."""
        return self._http.pages(LIST)

    def remove(self, id: str) -> None:  # noqa: A002  the agent's `id`, not its `agent_id`
        """Its token opens nothing any more; the requests that it made stay."""
        self._http.delete(REMOVE, id)
