"""`/agents`: let authorised agents of the Data Rights Protocol sign requests."""

from fastapi import APIRouter
from fastapi.responses import JSONResponse
from sqlalchemy.orm import Session

from app.access.idempotency import Answer, Once
from app.api.calls import Call, created, respond
from app.api.gateway import serves
from app.protocols import repository, service
from lethe.contract import agents as contract
from lethe.contract.agents import AgentIn, AgentOut
from lethe.contract.fields import PageOut, Paging

router = APIRouter()


@serves(router, contract.REGISTER)
def register_agent(call: Call, once: Once, body: AgentIn) -> JSONResponse:
    def register(session: Session) -> Answer:
        row = service.register(session, agent_id=body.agent_id, name=body.name, verify_key=body.verify_key)
        return created(AgentOut.model_validate(row, from_attributes=True), f"/v1/agents/{row.id}")

    return respond(call.perform(once, register))


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
