"""Endpoints under `/agents` and `/identity-issuers`, and mounting of the protocols."""

from typing import Annotated

from fastapi import APIRouter, Path
from fastapi.responses import JSONResponse
from sqlalchemy.orm import Session

from app.access.idempotency import Once, StoredResponse
from app.api.calls import Call, created, respond
from app.api.gateway import Mount, serves
from app.features.protocols import drp_endpoints, identity, opendsr_endpoints, service
from lethe.contract.fields import PageOut, Paging
from lethe.features.protocols import contract
from lethe.features.protocols.contract import AgentIn, AgentOut, IdentityIssuerIn, IdentityIssuerOut

router = APIRouter()


@serves(router, contract.REGISTER_AGENT)
def register_agent(call: Call, once: Once, body: AgentIn) -> JSONResponse:
    def register(session: Session) -> StoredResponse:
        row = service.register(session, agent_id=body.agent_id, name=body.name, verify_key=body.verify_key)
        return created(AgentOut.of(row), f"/v1/agents/{row.id}")

    return respond(call.perform(once, register))


@serves(router, contract.LIST_AGENTS)
def list_agents(call: Call, query: Paging) -> PageOut[AgentOut]:
    with call.reading() as session:
        page = service.agents(session, limit=query.limit, cursor=query.cursor)
    return PageOut(items=[AgentOut.of(row) for row in page.items], next_cursor=page.next_cursor)


@serves(router, contract.REMOVE_AGENT)
# The OpenAPI document names the parameter.
def remove_agent(call: Call, id: Annotated[str, Path(description="ID of the registered agent.")]) -> None:  # noqa: A002
    with call.writing() as session:
        service.remove(session, id)


@serves(router, contract.CREATE_ISSUER)
def create_identity_issuer(call: Call, once: Once, body: IdentityIssuerIn) -> JSONResponse:
    def register(session: Session) -> StoredResponse:
        row = identity.register(session, issuer=body.issuer, audience=body.audience, jwks=body.jwks)
        return created(IdentityIssuerOut.of(row), f"/v1/identity-issuers/{row.id}")

    return respond(call.perform(once, register))


@serves(router, contract.LIST_ISSUERS)
def list_identity_issuers(call: Call, query: Paging) -> PageOut[IdentityIssuerOut]:
    with call.reading() as session:
        page = identity.issuers(session, limit=query.limit, cursor=query.cursor)
    return PageOut(items=[IdentityIssuerOut.of(row) for row in page.items], next_cursor=page.next_cursor)


@serves(router, contract.DELETE_ISSUER)
def delete_identity_issuer(call: Call, issuer_id: str) -> None:
    with call.writing() as session:
        identity.delete(session, issuer_id)


MOUNTS = (
    Mount(router=router),
    # The protocols are described by documents of their authors, not by ours.
    Mount(router=opendsr_endpoints.router, prefix="/opendsr/v2", described=False),
    Mount(router=opendsr_endpoints.router, prefix="/opendsr", described=False),
    Mount(router=drp_endpoints.router, prefix="/drp/v1", described=False),
)
