"""The endpoints below `/v1/certificates`."""

import base64
import json
from collections.abc import Callable
from typing import Any

import pytest
from fastapi.testclient import TestClient

from app.accounting import certificates
from app.config import Settings
from app.keys import Keys

Get = Callable[[str], Any]
Refused = Callable[..., dict[str, Any]]


@pytest.fixture
def certificate(live: dict[str, Any], forget: Callable[..., Any], get: Get, work: Callable[[], int]) -> dict[str, Any]:
    """Return a certificate issued for a forgotten person."""
    request = forget("p1")
    work()
    found: dict[str, Any] = get(f"/deletion-requests/{request['id']}/certificate")["certificates"][0]
    return found


def test_a_certificate_states_request_model_and_guarantees(
    certificate: dict[str, Any], live: dict[str, Any], get: Get
) -> None:
    """Every endpoint that returns the certificate returns the same text, which states the request, the model, the
    ledger entry and the guarantees."""
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


def test_invalid_certificates_are_refused(
    gateway: TestClient, certificate: dict[str, Any], settings: Settings, refused: Refused
) -> None:
    """A certificate is refused if its statement or signature was changed or if it is malformed. It is also refused if
    its numbers are inconsistent, even if it was signed with the right key."""
    header, _, signature = certificate["jws"].split(".")
    statement = certificate["statement"]
    better = statement | {"target": {"epsilon": 0.001, "delta": 1e-9}}
    payload = base64.urlsafe_b64encode(json.dumps(better).encode()).decode().rstrip("=")
    statement["guarantees"][0]["epsilon"] /= 2
    forged = certificates.sign(Keys(settings.data_dir / "keys"), statement)
    for jws in (f"{header}.{payload}.{signature}", certificate["jws"][:-8], "a.b.c", "\ud7ff", ".", forged):
        answer = gateway.post("/v1/certificates:verify", json={"jws": jws})
        refused(answer, 422, "certificate_invalid")
