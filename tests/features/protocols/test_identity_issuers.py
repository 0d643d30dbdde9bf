"""The endpoints below `/v1/identity-issuers`, and requests that carry statements."""

import time
from collections.abc import Callable
from typing import Any

import pytest
from fastapi.testclient import TestClient
from joserfc import jwk, jwt

from app.installations import Installation
from lethe.contract.tenants import Policy
from tests.app.deletion import people

Get = Callable[[str], Any]
Refused = Callable[..., dict[str, Any]]

PLACE, REQUESTS = "/v1/identity-issuers", "/v1/deletion-requests"
KEY = jwk.ECKey.generate_key("P-256", auto_kid=True)
ISSUER = {"issuer": "https://id.example.org", "audience": "lethe", "jwks": {"keys": [KEY.as_dict(private=False)]}}


def statement(subject_id: str, jti: str) -> str:
    claims = {"iss": ISSUER["issuer"], "aud": "lethe", "sub": subject_id, "exp": int(time.time()) + 600, "jti": jti}
    return jwt.encode({"alg": "ES256", "kid": KEY.kid}, claims, KEY)


@pytest.fixture(autouse=True)
def strict(installation: Installation) -> None:
    """Require an identity statement for every request."""
    with installation.database.writing() as session:
        people.obey(session, Policy(identity="statement"))


def test_issuers_are_registered_listed_and_deleted(gateway: TestClient, get: Get, refused: Refused) -> None:
    """An identity issuer is registered once under its name, listed, and deleted."""
    made = gateway.post(PLACE, json=ISSUER, headers={"Idempotency-Key": "k"})
    issuer = made.json()
    assert (made.status_code, made.headers["location"]) == (201, f"{PLACE}/{issuer['id']}")
    assert gateway.post(PLACE, json=ISSUER, headers={"Idempotency-Key": "k"}).json() == issuer
    refused(gateway.post(PLACE, json=ISSUER), 409, "issuer_exists")
    refused(gateway.post(PLACE, json=ISSUER | {"jwks": {"keys": [KEY.as_dict(private=True)]}}), 422, "input_invalid")
    assert get("/identity-issuers")["items"] == [issuer]
    assert gateway.delete(f"{PLACE}/{issuer['id']}").status_code == 204
    refused(gateway.delete(f"{PLACE}/{issuer['id']}"), 404, "issuer_unknown")


def test_a_request_can_contain_a_statement(gateway: TestClient, refused: Refused) -> None:
    """A request can contain a statement about its subject. The statement cannot be reused in another request, but
    repeating the call with its idempotency key returns the original response."""
    gateway.post(PLACE, json=ISSUER)
    body = {"subject_id": "p1", "identity_statement": statement("p1", "one")}
    first = gateway.post(REQUESTS, json=body, headers={"Idempotency-Key": "k"})
    assert first.status_code == 202
    assert gateway.post(REQUESTS, json=body, headers={"Idempotency-Key": "k"}).json() == first.json()
    refused(gateway.post(REQUESTS, json=body), 403, "identity_statement_invalid")


def test_a_missing_statement_is_refused(gateway: TestClient, refused: Refused) -> None:
    """If the tenant requires statements, a request without one gets a 422 that names the missing field. A request with
    an invalid statement gets the same 403 whatever is wrong with the statement."""
    gateway.post(PLACE, json=ISSUER)
    problem = refused(gateway.post(REQUESTS, json={"subject_id": "p1"}), 422, "identity_statement_required")
    assert [fault["path"] for fault in problem["errors"]] == ["identity_statement"]
    details = set()
    for said in (statement("p2", "two"), "none"):
        answer = gateway.post(REQUESTS, json={"subject_id": "p1", "identity_statement": said})
        details.add(refused(answer, 403, "identity_statement_invalid")["detail"])
    assert len(details) == 1
