"""Let authorised agents of the Data Rights Protocol sign requests."""

import datetime
from typing import Annotated

from pydantic import Field

from lethe.contract.fields import Answer, Body, Name, PageOut, Paging
from lethe.contract.operation import Resource, of_one
from lethe.contract.problems import AgentExists, AgentUnknown, IdempotencyConflict
from lethe.contract.sets import Scope

AgentId = Annotated[str, Field(pattern="^[A-Za-z0-9_.-]{1,100}$")]


class AgentIn(Body):
    agent_id: AgentId = Field(description="The agent's id in the network's directory.")
    name: Name
    verify_key: Annotated[str, Field(max_length=100)] = Field(
        description="The agent's Ed25519 public key in base64, as the directory has it."
    )


class AgentOut(Answer):
    id: str
    agent_id: str
    name: str
    verify_key: str
    api_key_id: str | None = Field(description="Its token, once it has asked for one.")
    created_at: datetime.datetime


_AGENTS = Resource("Data Rights Protocol", "/v1/agents")

REGISTER = _AGENTS.operation(
    "register_agent",
    "POST",
    scope=Scope.ADMIN,
    takes=AgentIn,
    gives=AgentOut,
    status=201,
    keyed=True,
    problems=(AgentExists, IdempotencyConflict),
    does="From here on the agent can ask for a token at `POST /drp/v1/agent/{agent-id}`.",
)
LIST = _AGENTS.operation(
    "list_agents",
    "GET",
    scope=Scope.ADMIN,
    query=Paging,
    gives=PageOut[AgentOut],
    does="All agents that are known, newest first.",
)
REMOVE = of_one(
    _AGENTS.operation(
        "remove_agent",
        "DELETE",
        "/{id}",
        scope=Scope.ADMIN,
        gives=type(None),
        status=204,
        problems=(AgentUnknown,),
        does="Its token opens nothing any more; the requests that it made stay.",
    )
)
