"""`/certificates`: what was signed, and whether it holds."""

from typing import Any

from fastapi import APIRouter

from app.accounting import certificates
from app.api.calls import Call
from app.api.gateway import serves
from app.db.tables import Certificate
from lethe import verification
from lethe.contract import certificates as contract
from lethe.contract.certificates import CertificateIn, CertificateOut, CertificateVerdictOut
from lethe.contract.guarantees import GuaranteeOut, JointOut
from lethe.proof import conversion
from lethe.proof.joint import Joint

router = APIRouter()


@serves(router, contract.GET)
def get_certificate(call: Call, certificate_id: str) -> CertificateOut:
    with call.reading() as session:
        return to_response(certificates.get(session, certificate_id))


@serves(router, contract.VERIFY)
def verify_certificate(call: Call, body: CertificateIn) -> CertificateVerdictOut:
    keys = certificates.public_keys(call.installation.keys)
    return verification.verify(body.jws, keys, max_epsilon=body.max_epsilon, max_delta=body.max_delta)


def to_response(certificate: Certificate) -> CertificateOut:
    return CertificateOut(
        id=certificate.id,
        request_id=certificate.request_id,
        model_id=certificate.model_id,
        version=certificate.version,
        issued_at=certificate.issued_at,
        jws=certificate.jws,
        statement=certificates.statement_in(certificate.jws),
    )


def joint_to_response(joint: Joint | None) -> JointOut | None:
    return JointOut.model_validate(joint.to_json()) if joint else None


def guarantee_of(stated: dict[str, Any]) -> GuaranteeOut:
    """A guarantee as a ledger entry or a certificate states it."""
    accuracy = conversion.gdp_balanced_accuracy(mu=stated["mu"])
    return GuaranteeOut(**stated | {"best_attacker_accuracy": accuracy})
