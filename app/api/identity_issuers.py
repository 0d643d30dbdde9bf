"""`/identity-issuers`: whose signed statements about people's identity are believed."""

from fastapi import APIRouter
from fastapi.responses import JSONResponse
from sqlalchemy.orm import Session

from app.access.idempotency import Answer, Once
from app.api.calls import Call, created, respond
from app.api.gateway import serves
from app.deletion import identity
from lethe.contract import identity_issuers as contract
from lethe.contract.fields import PageOut, Paging
from lethe.contract.identity_issuers import IdentityIssuerIn, IdentityIssuerOut

router = APIRouter()


@serves(router, contract.CREATE)
def create_identity_issuer(call: Call, once: Once, body: IdentityIssuerIn) -> JSONResponse:
    def register(session: Session) -> Answer:
        row = identity.register(session, issuer=body.issuer, audience=body.audience, jwks=body.jwks)
        return created(IdentityIssuerOut.model_validate(row, from_attributes=True), f"/v1/identity-issuers/{row.id}")

    return respond(call.perform(once, register))


@serves(router, contract.LIST)
def list_identity_issuers(call: Call, query: Paging) -> PageOut[IdentityIssuerOut]:
    with call.reading() as session:
        page = identity.listed(session, limit=query.limit, cursor=query.cursor)
    items = [IdentityIssuerOut.model_validate(row, from_attributes=True) for row in page.items]
    return PageOut(items=items, next_cursor=page.next_cursor)


@serves(router, contract.DELETE)
def delete_identity_issuer(call: Call, issuer_id: str) -> None:
    with call.writing() as session:
        identity.delete(session, issuer_id)
