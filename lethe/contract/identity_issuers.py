"""Identity issuers: whose signed statements about people's identity are believed."""

import datetime
from typing import Annotated, Any

from pydantic import Field

from lethe.contract.fields import Body, PageOut, Paging, Text
from lethe.contract.operation import Resource, of_one
from lethe.contract.problems import IdempotencyConflict, IssuerExists, IssuerUnknown
from lethe.contract.sets import Scope

_LongText = Annotated[Text, Field(min_length=1, max_length=500)]


class IdentityIssuerIn(Body):
    issuer: _LongText = Field(description="`iss` of its statements.")
    audience: _LongText = Field(description="`aud` of its statements: the name by which it knows this service.")
    jwks: dict[str, Any] = Field(description="Its public keys (RFC 7517): Ed25519, P-256, or RSA from 2048 bits on.")


class IdentityIssuerOut(IdentityIssuerIn):
    id: str
    created_at: datetime.datetime


_IDENTITY_ISSUERS = Resource("Identity issuers", "/v1/identity-issuers")

CREATE = _IDENTITY_ISSUERS.operation(
    "create_identity_issuer",
    "POST",
    scope=Scope.ADMIN,
    takes=IdentityIssuerIn,
    gives=IdentityIssuerOut,
    status=201,
    keyed=True,
    problems=(IdempotencyConflict, IssuerExists),
    does="Believe what this issuer signs about the subjects of deletion requests.",
)
LIST = _IDENTITY_ISSUERS.operation(
    "list_identity_issuers",
    "GET",
    scope=Scope.ADMIN,
    query=Paging,
    gives=PageOut[IdentityIssuerOut],
    does="Whose statements are believed, newest first.",
)
DELETE = of_one(
    _IDENTITY_ISSUERS.operation(
        "delete_identity_issuer",
        "DELETE",
        "/{issuer_id}",
        scope=Scope.ADMIN,
        gives=type(None),
        status=204,
        problems=(IssuerUnknown,),
        does="From here on nothing that it signs is believed.",
    )
)
