"""`/agents`: let authorised agents of the Data Rights Protocol sign requests."""

import datetime
from typing import Annotated

from fastapi import APIRouter
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field

from app.access import idempotency
from app.access.idempotency import Answer, Once
from app.api.calls import Call, Cursor, Limit, call_with, once_with, respond
from app.api.problems import responses
from app.api.schemas import Body, Name, PageOut
from app.protocols import repository, service
from app.protocols.drp import AgentId
from lethe.contract.problems import AgentExists, AgentUnknown, IdempotencyConflict
from lethe.contract.sets import Scope

router = APIRouter(prefix="/agents", tags=["Data Rights Protocol"])


class AgentIn(Body):
    agent_id: AgentId = Field(description="The agent's id in the network's directory.")
    name: Name
    verify_key: Annotated[str, Field(max_length=100)] = Field(
        description="The agent's Ed25519 public key in base64, as the directory has it."
    )


class AgentOut(BaseModel):
    id: str
    agent_id: str
    name: str
    verify_key: str
    api_key_id: str | None = Field(description="Its token, once it has asked for one.")
    created_at: datetime.datetime


@router.post("", status_code=201, response_model=AgentOut, responses=responses(AgentExists, IdempotencyConflict))
def register_agent(
    call: Annotated[Call, call_with(Scope.ADMIN)], once: Annotated[Once, once_with(Scope.ADMIN)], body: AgentIn
) -> JSONResponse:
    """From here on the agent can ask for a token at `POST /drp/v1/agent/{agent-id}`."""
    with call.writing() as session:
        answer = idempotency.replay(session, once)
        if answer is None:
            row = service.register(session, agent_id=body.agent_id, name=body.name, verify_key=body.verify_key)
            out = AgentOut.model_validate(row, from_attributes=True).model_dump(mode="json")
            location = f"/v1/agents/{row.id}"
            answer = idempotency.remember(session, once, Answer(status=201, location=location, body=out))
    return respond(answer)


@router.get("", responses=responses())
def list_agents(
    call: Annotated[Call, call_with(Scope.ADMIN)], limit: Limit = 50, cursor: Cursor = None
) -> PageOut[AgentOut]:
    """All agents that are known, newest first."""
    with call.reading() as session:
        page = repository.agents(session, limit=limit, cursor=cursor)
    items = [AgentOut.model_validate(row, from_attributes=True) for row in page.items]
    return PageOut(items=items, next_cursor=page.next_cursor)


@router.delete("/{id}", status_code=204, responses=responses(AgentUnknown))
def remove_agent(call: Annotated[Call, call_with(Scope.ADMIN)], id: str) -> None:  # noqa: A002  as the document names it
    """Its token opens nothing any more; the requests that it made stay."""
    with call.writing() as session:
        service.remove(session, id)
