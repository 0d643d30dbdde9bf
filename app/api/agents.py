"""`/agents`: let authorised agents of the Data Rights Protocol sign requests."""

from fastapi import APIRouter
from fastapi.responses import JSONResponse

from app.access import idempotency
from app.access.idempotency import Answer, Once
from app.api.calls import Call, respond
from app.api.gateway import serves
from app.protocols import repository, service
from lethe.contract import agents as contract
from lethe.contract.agents import AgentIn, AgentOut
from lethe.contract.fields import PageOut, Paging

router = APIRouter()


@serves(router, contract.REGISTER)
def register_agent(call: Call, once: Once, body: AgentIn) -> JSONResponse:
    with call.writing() as session:
        answer = idempotency.replay(session, once)
        if answer is None:
            row = service.register(session, agent_id=body.agent_id, name=body.name, verify_key=body.verify_key)
            out = AgentOut.model_validate(row, from_attributes=True).model_dump(mode="json")
            location = f"/v1/agents/{row.id}"
            answer = idempotency.remember(session, once, Answer(status=201, location=location, body=out))
    return respond(answer)


@serves(router, contract.LIST)
def list_agents(call: Call, query: Paging) -> PageOut[AgentOut]:
    with call.reading() as session:
        page = repository.agents(session, limit=query.limit, cursor=query.cursor)
    items = [AgentOut.model_validate(row, from_attributes=True) for row in page.items]
    return PageOut(items=items, next_cursor=page.next_cursor)


@serves(router, contract.REMOVE)
def remove_agent(call: Call, id: str) -> None:  # noqa: A002  as the document names it
    with call.writing() as session:
        service.remove(session, id)
