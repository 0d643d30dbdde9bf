"""If one character of a stored certificate is changed, the certificate is named as damaged and never returned
as if it were signed."""

from collections.abc import Callable
from typing import Any

import pytest
from fastapi.testclient import TestClient

from app.db.tables import Certificate
from app.installations import Installation
from app.operations import periodic_jobs
from lethe import verification
from lethe.contract.problems import CertificateInvalid
from tests.stored import flipped
from tests.tables import each

Make = Callable[..., dict[str, Any]]
Get = Callable[[str], Any]
Refused = Callable[..., dict[str, Any]]


def damage(installation: Installation, certificate_id: str, place: int = 400) -> None:
    """Change one character of the stored certificate."""
    with installation.database.writing() as session:
        stored = session.get_one(Certificate, certificate_id)
        stored.jws = flipped(stored.jws.encode(), place).decode()


@pytest.fixture
def request_id(new_dataset: Make, new_model: Make, forget: Make, work: Callable[[], int]) -> str:
    """Return the id of a completed request that has certificates for two models."""
    dataset = new_dataset(rows=60)["id"]
    for name in ("one", "two"):
        new_model(dataset, name=name, noise_scale=0.02)
    work()
    made: str = forget("p3")["id"]
    work()
    return made


@each("place", [5, 400, 10_000_000])
def test_a_damaged_certificate_is_reported_by_its_id(
    place: int, installation: Installation, gateway: TestClient, request_id: str, get: Get, refused: Refused
) -> None:
    """A certificate whose header, statement or signature is damaged is refused with a specific error code. The
    request's proof lists the damaged certificate's ID and still contains the intact certificates, but it has no joint
    guarantee and does not verify offline. The request itself can still be read, but its account in `/v1/accounting` is
    refused."""
    proof = get(f"/deletion-requests/{request_id}/certificate")
    first, second = proof["certificates"]
    assert (proof["damaged"], len(proof["joint"]["models"])) == ([], 2)
    damage(installation, first["id"], place)
    periodic_jobs.verify_texts(installation)
    assert gateway.get("/readyz").json()["texts_damaged"] == 1
    answer = gateway.get(f"/v1/certificates/{first['id']}")
    assert first["id"] in refused(answer, 409, "certificate_damaged")["detail"]
    refused(gateway.get(f"/v1/accounting/deletion-requests/{request_id}"), 409, "certificate_damaged")
    assert get(f"/certificates/{second['id']}") == second
    left = gateway.get(f"/v1/deletion-requests/{request_id}/certificate")
    assert left.json() == proof | {"certificates": [second], "damaged": [first["id"]], "joint": None}
    with pytest.raises(CertificateInvalid, match="damaged"):
        verification.verify_file(left.text, gateway.get("/.well-known/jwks.json").json())
    assert get(f"/deletion-requests/{request_id}")["status"] == "completed"
    damage(installation, first["id"], place)  # restores it
    assert get(f"/deletion-requests/{request_id}/certificate") == proof
