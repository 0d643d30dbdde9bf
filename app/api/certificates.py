"""`/certificates`: what was signed, and whether it holds."""

from typing import Annotated

from fastapi import APIRouter

from app.accounting import certificates
from app.api.calls import Call, call_with
from app.api.problems import responses
from app.api.schemas import CertificateIn, CertificateOut, CertificateVerdictOut, GuaranteeOut, JointOut
from app.db.tables import Certificate
from lethe.contract.problems import CertificateBeyondLimits, CertificateInvalid, CertificateUnknown
from lethe.contract.sets import Scope
from lethe.proof.joint import Joint

router = APIRouter(tags=["Certificates"])


@router.get(
    "/certificates/{certificate_id}",
    responses=responses(CertificateUnknown),
)
def get_certificate(call: Annotated[Call, call_with(Scope.ACCOUNTING_READ)], certificate_id: str) -> CertificateOut:
    """A signed statement, and what it says."""
    with call.reading() as session:
        return shown(certificates.get(session, certificate_id))


@router.post(
    "/certificates:verify",
    responses=responses(CertificateInvalid, CertificateBeyondLimits),
)
def verify_certificate(
    call: Annotated[Call, call_with(Scope.REQUESTS_READ)], body: CertificateIn
) -> CertificateVerdictOut:
    """Check the signature against this installation's key and recompute every number from the statement alone. With
    limits, a certificate that guarantees less of forgetting is refused too."""
    keys = certificates.public_keys(call.installation.keys)
    verified = certificates.verify(body.jws, keys, max_epsilon=body.max_epsilon, max_delta=body.max_delta)
    return CertificateVerdictOut(
        valid=True,
        key_id=verified.key_id,
        guarantees=[GuaranteeOut(**guarantee.to_json()) for guarantee in verified.guarantees],
        statement=verified.statement,
    )


def shown(certificate: Certificate) -> CertificateOut:
    return CertificateOut(
        id=certificate.id,
        request_id=certificate.request_id,
        model_id=certificate.model_id,
        version=certificate.version,
        issued_at=certificate.issued_at,
        jws=certificate.jws,
        statement=certificates.statement_in(certificate.jws),
    )


def joint_shown(joint: Joint | None) -> JointOut | None:
    return JointOut.model_validate(joint.to_json()) if joint else None
