"""The endpoints below `/v1/certificates`, and the public keys."""

import base64
import json
from collections.abc import Callable
from typing import Any

import pytest
from fastapi.testclient import TestClient

from app.accounting import certificates
from app.keys import Keys
from lethe import verification
from lethe.contract.problems import CertificateInvalid

Get = Callable[[str], Any]
Refused = Callable[..., dict[str, Any]]


@pytest.fixture
def certificate(live: dict[str, Any], forget: Callable[..., Any], get: Get, work: Callable[[], int]) -> dict[str, Any]:
    """Return the certificate of a forgotten person."""
    request = forget("p1")
    work()
    found: dict[str, Any] = get(f"/deletion-requests/{request['id']}/certificate")["certificates"][0]
    return found


def test_a_certificate_says_what_was_done(certificate: dict[str, Any], live: dict[str, Any], get: Get) -> None:
    """A certificate is the same on every endpoint, and states request, model, ledger entry and guarantees."""
    assert get(f"/certificates/{certificate['id']}") == certificate
    request = get(f"/deletion-requests/{certificate['request_id']}")
    assert request["models"][0]["certificate_id"] == certificate["id"]
    statement = certificate["statement"]
    version = get(f"/models/{live['id']}/versions/{certificate['version']}")
    assert statement["request"]["id"] == request["id"]
    assert statement["model"]["weights_sha256"] == version["weights_sha256"]
    assert statement["run"]["id"] == version["run_id"]
    assert {entry["hash"] for entry in get(f"/accounting/models/{live['id']}/ledger")["items"]} >= {
        statement["ledger"]["hash"]
    }
    notions = {guarantee["notion"] for guarantee in statement["guarantees"]}
    assert notions == {"unlearning", "deletion", "adaptive", "release"}


def test_a_certificate_verifies(gateway: TestClient, certificate: dict[str, Any]) -> None:
    """A certificate verifies over HTTP and offline with only the public key."""
    verdict = gateway.post("/v1/certificates:verify", json={"jws": certificate["jws"]}).json()
    assert verdict["valid"] is True
    assert verdict["statement"] == certificate["statement"]
    assert verdict["guarantees"] == certificate["statement"]["guarantees"]
    jwks = gateway.get("/.well-known/jwks.json").json()
    assert [key["kid"] for key in jwks["keys"]] == [verdict["key_id"]]
    assert verification.verify(certificate["jws"], jwks).statement == certificate["statement"]


def test_a_changed_certificate_does_not_verify(
    gateway: TestClient, certificate: dict[str, Any], refused: Refused
) -> None:
    """A certificate is refused if its statement or signature was changed or it is malformed."""
    header, _, signature = certificate["jws"].split(".")
    better = certificate["statement"] | {"target": {"epsilon": 0.001, "delta": 1e-9}}
    payload = base64.urlsafe_b64encode(json.dumps(better).encode()).decode().rstrip("=")
    for jws in (f"{header}.{payload}.{signature}", certificate["jws"][:-8], "a.b.c", "\ud7ff", "."):
        answer = gateway.post("/v1/certificates:verify", json={"jws": jws})
        refused(answer, 422, "certificate_invalid")


def test_a_signature_over_wrong_numbers_does_not_verify(
    certificate: dict[str, Any], settings: Any, gateway: TestClient, refused: Refused
) -> None:
    """A statement with a number that does not follow from the others is refused even if the right key signed it."""
    statement = certificate["statement"]
    statement["guarantees"][0]["epsilon"] /= 2
    forged = certificates.sign(Keys(settings.data_dir / "keys"), statement)
    refused(gateway.post("/v1/certificates:verify", json={"jws": forged}), 422, "certificate_invalid")


def test_another_installation_did_not_sign_it(certificate: dict[str, Any], tmp_path: Any) -> None:
    """A certificate does not verify with another installation's key."""
    with pytest.raises(CertificateInvalid):
        verification.verify(certificate["jws"], certificates.public_keys(Keys(tmp_path / "elsewhere").create()))


def test_an_unknown_certificate_is_not_found(gateway: TestClient, refused: Refused) -> None:
    """An unknown certificate returns 404 with its own code."""
    refused(gateway.get("/v1/certificates/crt_0"), 404, "certificate_unknown")
