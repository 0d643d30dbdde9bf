"""Certificates: what was signed, and whether it holds."""

import datetime
from typing import Annotated, Any

from pydantic import Field

from lethe.contract.fields import Answer, Body, Positive
from lethe.contract.guarantees import GuaranteeOut, JointOut
from lethe.contract.operation import Resource, of_one
from lethe.contract.problems import CertificateBeyondLimits, CertificateInvalid, CertificateUnknown
from lethe.contract.sets import Scope


class CertificateOut(Answer):
    id: str
    request_id: str
    model_id: str
    version: int
    issued_at: datetime.datetime
    jws: str = Field(description="The signed statement: a compact JWS, Ed25519. This is what is verified.")
    statement: dict[str, Any] = Field(description="What the JWS says, decoded for reading.")


class AbsenceOut(Answer):
    """That nothing was held: signed, and verified as a certificate is."""

    jws: str
    statement: dict[str, Any]


class CertificatesOut(Answer):
    request_id: str
    certificates: list[CertificateOut]
    joint: JointOut | None = Field(description="Null until every model has forgotten.")
    nothing_held: AbsenceOut | None = Field(description="Of a request that held nothing.")


class CertificateIn(Body):
    jws: Annotated[str, Field(min_length=1, max_length=10_000_000)]
    max_epsilon: Positive | None = Field(
        default=None,
        description="Refuse a certificate whose guarantees of forgetting (unlearning, deletion) are weaker.",
    )
    max_delta: Annotated[float, Field(gt=0, lt=1)] | None = Field(default=None, description="Likewise.")


class CertificateVerdictOut(Answer):
    valid: bool
    key_id: str
    guarantees: list[GuaranteeOut]
    statement: dict[str, Any]


_CERTIFICATES = Resource("Certificates", "/v1")

GET = of_one(
    _CERTIFICATES.operation(
        "get_certificate",
        "GET",
        "/certificates/{certificate_id}",
        scope=Scope.ACCOUNTING_READ,
        gives=CertificateOut,
        problems=(CertificateUnknown,),
        does="A signed statement, and what it says.",
    )
)
VERIFY = _CERTIFICATES.operation(
    "verify_certificate",
    "POST",
    "/certificates:verify",
    scope=Scope.REQUESTS_READ,
    takes=CertificateIn,
    gives=CertificateVerdictOut,
    idempotent=True,
    problems=(CertificateInvalid, CertificateBeyondLimits),
    does="Check the signature against this installation's key and recompute every number from the statement "
    "alone. With limits, a certificate that guarantees less of forgetting is refused too.",
)
PUBLIC_KEYS = Resource("Operations", "/.well-known/jwks.json").operation(
    "jwks", "GET", scope=None, gives=dict[str, Any], does="The public keys that certificates are verified with."
)
