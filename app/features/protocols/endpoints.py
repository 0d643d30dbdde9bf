"""Endpoints under `/agents` and `/identity-issuers`, and mounting of the protocols."""

from typing import Annotated

from fastapi import APIRouter, Path
from fastapi.responses import JSONResponse
from sqlalchemy.orm import Session

from app.access.idempotency import Once, StoredResponse
from app.api import calls, gateway
from app.features.protocols import drp_endpoints, identity, opendsr_endpoints, service
from lethe.contract.fields import PageOut, Paging
from lethe.features.protocols import contract

router = APIRouter()


@gateway.serves(router, contract.REGISTER_AGENT)
def register_agent(call: calls.Call, once: Once, body: contract.AgentIn) -> JSONResponse:
    def register(session: Session) -> StoredResponse:
        row = service.register(session, agent_id=body.agent_id, name=body.name, verify_key=body.verify_key)
        return calls.created(contract.AgentOut.of(row), f"/v1/agents/{row.id}")

    return calls.respond(call.perform(once, register))


@gateway.serves(router, contract.LIST_AGENTS)
def list_agents(call: calls.Call, query: Paging) -> PageOut[contract.AgentOut]:
    with call.reading() as session:
        page = service.agents(session, limit=query.limit, cursor=query.cursor)
    return PageOut(items=[contract.AgentOut.of(row) for row in page.items], next_cursor=page.next_cursor)


@gateway.serves(router, contract.REMOVE_AGENT)
# The OpenAPI document names the parameter.
def remove_agent(call: calls.Call, id: Annotated[str, Path(description="ID of the registered agent.")]) -> None:  # noqa: A002
    with call.writing() as session:
        service.remove(session, id)


@gateway.serves(router, contract.CREATE_ISSUER)
def create_identity_issuer(call: calls.Call, once: Once, body: contract.IdentityIssuerIn) -> JSONResponse:
    def register(session: Session) -> StoredResponse:
        row = identity.register(session, issuer=body.issuer, audience=body.audience, jwks=body.jwks)
        return calls.created(contract.IdentityIssuerOut.of(row), f"/v1/identity-issuers/{row.id}")

    return calls.respond(call.perform(once, register))


@gateway.serves(router, contract.LIST_ISSUERS)
def list_identity_issuers(call: calls.Call, query: Paging) -> PageOut[contract.IdentityIssuerOut]:
    with call.reading() as session:
        page = identity.issuers(session, limit=query.limit, cursor=query.cursor)
    return PageOut(items=[contract.IdentityIssuerOut.of(row) for row in page.items], next_cursor=page.next_cursor)


@gateway.serves(router, contract.DELETE_ISSUER)
def delete_identity_issuer(call: calls.Call, issuer_id: str) -> None:
    with call.writing() as session:
        identity.delete(session, issuer_id)


MOUNTS = (
    gateway.Mount(router=router),
    # The protocols are described by documents of their authors, not by ours.
    gateway.Mount(router=opendsr_endpoints.router, prefix="/opendsr/v2", described=False),
    gateway.Mount(router=opendsr_endpoints.router, prefix="/opendsr", described=False),
    gateway.Mount(router=drp_endpoints.router, prefix="/drp/v1", described=False),
)
