"""Endpoints for certificates."""

from fastapi import APIRouter

from app.accounting import certificates
from app.api import calls, gateway
from app.db.tables import Certificate
from lethe import verification
from lethe.contract import certificates as contract
from lethe.contract.certificates import CertificateIn, CertificateOut, CertificateVerdictOut, JointOut
from lethe.proof.joint import Joint

router = APIRouter()


@gateway.serves(router, contract.GET)
def get_certificate(call: calls.Call, certificate_id: str) -> CertificateOut:
    with call.reading() as session:
        return certificate_to_response(certificates.get(session, call.installation.keys, certificate_id))


@gateway.serves(router, contract.VERIFY)
def verify_certificate(call: calls.Call, body: CertificateIn) -> CertificateVerdictOut:
    keys = certificates.public_keys(call.installation.keys)
    return verification.verify(body.jws, keys, max_epsilon=body.max_epsilon, max_delta=body.max_delta)


def certificate_to_response(certificate: Certificate) -> CertificateOut:
    return CertificateOut.of(certificate, statement=certificates.statement_in(certificate.jws))


def joint_to_response(joint: Joint | None) -> JointOut | None:
    return JointOut.model_validate(joint.to_json()) if joint else None
