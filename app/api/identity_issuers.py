"""`/identity-issuers`: whose signed statements about people's identity are believed."""

import datetime
from typing import Annotated, Any

from fastapi import APIRouter
from fastapi.responses import JSONResponse
from pydantic import Field

from app.access import idempotency
from app.access.idempotency import Answer, Once
from app.api.calls import Call, Cursor, Limit, call_with, once_with, respond
from app.api.problems import responses
from app.api.schemas import Body, PageOut, Text
from app.deletion import identity
from lethe.contract.problems import IdempotencyConflict, IssuerExists, IssuerUnknown
from lethe.contract.sets import Scope

router = APIRouter(prefix="/identity-issuers", tags=["Identity issuers"])

_LongText = Annotated[Text, Field(min_length=1, max_length=500)]


class IdentityIssuerIn(Body):
    issuer: _LongText = Field(description="`iss` of its statements.")
    audience: _LongText = Field(description="`aud` of its statements: the name by which it knows this service.")
    jwks: dict[str, Any] = Field(description="Its public keys (RFC 7517): Ed25519, P-256, or RSA from 2048 bits on.")


class IdentityIssuerOut(IdentityIssuerIn):
    id: str
    created_at: datetime.datetime


@router.post(
    "", status_code=201, response_model=IdentityIssuerOut, responses=responses(IdempotencyConflict, IssuerExists)
)
def create_identity_issuer(
    call: Annotated[Call, call_with(Scope.ADMIN)],
    once: Annotated[Once, once_with(Scope.ADMIN)],
    body: IdentityIssuerIn,
) -> JSONResponse:
    """Believe what this issuer signs about the subjects of deletion requests."""
    with call.writing() as session:
        answer = idempotency.replay(session, once)
        if answer is None:
            row = identity.register(session, issuer=body.issuer, audience=body.audience, jwks=body.jwks)
            out = IdentityIssuerOut.model_validate(row, from_attributes=True).model_dump(mode="json")
            location = f"/v1/identity-issuers/{row.id}"
            answer = idempotency.remember(session, once, Answer(status=201, location=location, body=out))
    return respond(answer)


@router.get("", responses=responses())
def list_identity_issuers(
    call: Annotated[Call, call_with(Scope.ADMIN)], limit: Limit = 50, cursor: Cursor = None
) -> PageOut[IdentityIssuerOut]:
    """Whose statements are believed, newest first."""
    with call.reading() as session:
        page = identity.listed(session, limit=limit, cursor=cursor)
    items = [IdentityIssuerOut.model_validate(row, from_attributes=True) for row in page.items]
    return PageOut(items=items, next_cursor=page.next_cursor)


@router.delete("/{issuer_id}", status_code=204, responses=responses(IssuerUnknown))
def delete_identity_issuer(call: Annotated[Call, call_with(Scope.ADMIN)], issuer_id: str) -> None:
    """From here on nothing that it signs is believed."""
    with call.writing() as session:
        identity.delete(session, issuer_id)
