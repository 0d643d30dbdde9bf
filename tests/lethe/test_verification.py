"""Certificates verified by their holders, without a gateway but with the same verdict as the gateway's."""

import base64
import json
from collections.abc import Callable
from typing import Any

import pytest
from fastapi.testclient import TestClient
from joserfc.jwk import OKPKey

from app.installations import Installation
from app.keys import Keys
from lethe import Client, verification
from lethe.errors import CertificateInvalid, Problem

Make = Callable[..., dict[str, Any]]


@pytest.fixture
def certificate(
    gateway: TestClient, new_dataset: Make, new_model: Make, forget: Make, work: Callable[[], int], get: Any
) -> Any:
    """Return the certificate of a person whom a model has forgotten."""
    new_model(new_dataset()["id"])
    assert work() == 1
    request = forget("p3")
    assert work() == 1
    [one] = get(f"/deletion-requests/{request['id']}/certificate")["certificates"]
    return one


@pytest.fixture
def jwks(gateway: TestClient) -> Any:
    return gateway.get("/.well-known/jwks.json").json()


def test_a_certificate_is_verified_offline(certificate: Any, jwks: Any, gateway: TestClient) -> None:
    """With the issuer's keys, the client reaches the same verdict as the gateway, with the same recomputed guarantees
    and the same statement. Verification makes no call, so the gateway need not be reachable and cannot influence the
    verdict."""
    verdict = verification.verify(certificate["jws"], jwks)
    by_gateway = gateway.post("/v1/certificates:verify", json={"jws": certificate["jws"]}).json()
    assert verdict.model_dump(mode="json") == by_gateway
    assert verdict.valid
    assert verdict.key_id == jwks["keys"][0]["kid"]
    assert verdict.statement == certificate["statement"]
    assert {one.notion for one in verdict.guarantees} == {"unlearning", "deletion", "adaptive", "release"}
    with Client("http://127.0.0.1:1", "k", retry_seconds=0.0) as client:
        assert client.certificates.verify(certificate["jws"], jwks=jwks).statement == certificate["statement"]
        with pytest.raises(CertificateInvalid):
            client.certificates.verify(certificate["jws"], jwks={"keys": []})
        with pytest.raises(Problem) as refused:
            client.certificates.verify(certificate["jws"])
    assert refused.value.code == "unreachable"


def signed(keys: Keys, statement: Any, **header: Any) -> str:
    """Return a JWS over the given statement, signed with the installation's key."""
    from joserfc import jws

    full = {"alg": "Ed25519", "typ": "lethe-certificate+jws", "kid": keys.signing_key.kid} | header
    return jws.serialize_compact(full, json.dumps(statement), keys.signing_key, algorithms=["Ed25519"])


def test_an_invalid_certificate_is_refused(certificate: Any, jwks: Any, installation: Installation) -> None:
    """A certificate with an altered statement, signature or type, or with the wrong keys, raises `CertificateInvalid`
    and no other exception."""
    compact, statement = certificate["jws"], certificate["statement"]
    header, payload, signature = compact.split(".")
    better = statement | {"target": statement["target"] | {"epsilon": statement["target"]["epsilon"] / 2}}
    forged = base64.urlsafe_b64encode(json.dumps(better).encode()).decode().rstrip("=")
    stranger = OKPKey.generate_key("Ed25519", private=False, auto_kid=True).as_dict(private=False)
    impostor = stranger | {"kid": jwks["keys"][0]["kid"]}
    cases: list[tuple[str, Any]] = [
        (f"{header}.{forged}.{signature}", jwks),
        (f"{header}.{payload}.{'A' * len(signature)}", jwks),
        (f"{header}.{payload}", jwks),
        ("", jwks),
        ("garbage", jwks),
        (signed(installation.keys, better), jwks),
        (signed(installation.keys, statement | {"added": 1}), jwks),
        (signed(installation.keys, {name: value for name, value in statement.items() if name != "evidence"}), jwks),
        (signed(installation.keys, []), jwks),
        (signed(installation.keys, statement, typ="JWT"), jwks),
        (compact, {"keys": [stranger]}),
        (compact, {"keys": [impostor]}),
        (compact, {"keys": []}),
        (compact, {"keys": 3}),
        (compact, {}),
        (compact, []),
        (compact, None),
    ]
    for jws, keys in cases:
        with pytest.raises(CertificateInvalid):
            verification.verify(jws, keys)
