"""`client.identity_issuers`: whose signed statements about people's identity are believed."""

import datetime
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from lethe.endpoints import Endpoint
from lethe.http import Http
from lethe.values import Page


@dataclass(frozen=True, slots=True, kw_only=True)
class IdentityIssuer:
    """`issuer` and `audience`: `iss` and `aud` of its statements; `jwks`: its public keys."""

    id: str
    issuer: str
    audience: str
    jwks: dict[str, Any]
    created_at: datetime.datetime


CREATE = Endpoint("POST", "/v1/identity-issuers", IdentityIssuer, keyed=True)
LIST = Endpoint("GET", "/v1/identity-issuers", Page[IdentityIssuer])
DELETE = Endpoint("DELETE", "/v1/identity-issuers/{issuer_id}", type(None))


class IdentityIssuers:
    """All of these need the scope admin."""

    def __init__(self, http: Http) -> None:
        self._http = http

    def create(
        self, *, issuer: str, audience: str, jwks: Mapping[str, Any], idempotency_key: str | None = None
    ) -> IdentityIssuer:
        """Believe what this issuer signs about the subjects of requests."""
        body = {"issuer": issuer, "audience": audience, "jwks": jwks}
        return self._http.call(CREATE, json=body, idempotency_key=idempotency_key)

    def list(self) -> Iterator[IdentityIssuer]:
        """All, newest first."""
        return self._http.pages(LIST)

    def delete(self, issuer_id: str) -> None:
        """Believe nothing more that it signs."""
        self._http.delete(DELETE, issuer_id)
