"""Certificates, and the guarantees stated in certificates and other responses."""

import datetime
from typing import Annotated, Any

from pydantic import Field

from lethe.contract import fields, operation, problems, sets


class GuaranteeOut(fields.Answer):
    notion: str = Field(
        description="Privacy notion: unlearning, deletion, adaptive, release or reset. Never add different notions."
    )
    adjacency: str = Field(description="Neighbouring relation: a record set to null (zero_out) or replaced (replace).")
    mu: float = Field(description="Mu of Gaussian differential privacy (mu-GDP); it bounds both directions.")
    epsilon: float = Field(description="Epsilon in nats implied by mu at `delta`, rounded up.")
    delta: float = Field(description="Delta at which epsilon is stated, between 0 and 1.")
    reference_process: str = Field(description="Description of the reference process and its assumptions.")
    best_attacker_accuracy: float = Field(
        description="Phi(mu/2), rounded up: upper bound on the accuracy of guessing which of two equally likely "
        "processes was run, this one or the reference process."
    )


class TargetOut(fields.Answer):
    epsilon: float = Field(description="Target value for the epsilon of `unlearning`, in nats.")
    delta: float = Field(description="Delta of the target, between 0 and 1.")


class JointOut(fields.Answer):
    """Joint guarantee for one person over `models`. For models with independent noise, the values of mu^2 add up."""

    models: list[str] = Field(description="IDs of the models that the joint guarantee covers.")
    mu: float = Field(description="Mu of the joint `deletion` guarantee (mu-GDP).")
    epsilon: float = Field(description="Epsilon in nats of the joint `deletion`, implied by mu at `delta`, rounded up.")
    delta: float = Field(description="Delta at which epsilon is stated: the smallest delta among the models.")
    best_attacker_accuracy: float = Field(description="Phi(mu/2): upper bound on any attacker's accuracy in guessing.")
    guarantees: list[GuaranteeOut] = Field(description="Joint `unlearning`, `deletion` and `adaptive` guarantees.")


class CertificateOut(fields.Answer):
    id: str = Field(description="ID of the certificate.")
    request_id: str = Field(description="ID of the deletion request.")
    model_id: str = Field(description="ID of the model.")
    version: int = Field(description="Number of the model version that the certificate covers.")
    issued_at: datetime.datetime = Field(description="Time at which the certificate was issued.")
    jws: str = Field(description="Signed statement as a compact JWS (Ed25519). Verify this field, not `statement`.")
    statement: dict[str, Any] = Field(description="Content of the JWS, decoded for readability.")


class AbsenceOut(fields.Answer):
    """Signed statement that no record matched the request."""

    jws: str = Field(description="Signed statement as a compact JWS (Ed25519). Verify this field, not `statement`.")
    statement: dict[str, Any] = Field(description="Content of the JWS, decoded for readability.")


class CertificatesOut(fields.Answer):
    request_id: str = Field(description="ID of the deletion request.")
    certificates: list[CertificateOut] = Field(description="Certificates issued for the request so far, oldest first.")
    damaged: list[str] = Field(description="IDs of certificates omitted because they differ from what was signed.")
    joint: JointOut | None = Field(
        description="Joint guarantee of all models trained on the person's data, except those destroyed before they "
        "forgot the person; null if there is no such model, if one must still forget, or if a certificate is damaged."
    )
    nothing_held: AbsenceOut | None = Field(description="Signed statement of absence; null unless nothing was held.")


class CertificateIn(fields.LargeBody):
    jws: Annotated[str, Field(min_length=1, max_length=10_000_000)] = Field(description="Certificate as a compact JWS.")
    max_epsilon: fields.Positive | None = fields.optional(
        "Maximum epsilon to accept for `unlearning` and `deletion`. Default: no limit."
    )
    max_delta: fields.Delta | None = fields.optional(
        "Maximum delta to accept for `unlearning` and `deletion`. Default: no limit."
    )


class CertificateVerdictOut(fields.Answer):
    valid: bool = Field(description="Always true: certificates that fail verification are refused with 422.")
    key_id: str = Field(description="ID of the key that signed the certificate (`kid` in its header).")
    guarantees: list[GuaranteeOut] = Field(description="Guarantees of the certificate, recomputed from its statement.")
    statement: dict[str, Any] = Field(description="Statement of the certificate.")


_CERTIFICATES = operation.ResourceOperations("Certificates", "/v1", problems.CertificateUnknown)

GET = _CERTIFICATES.of_one(
    "get_certificate",
    "GET",
    "/certificates/{certificate_id}",
    scope=sets.Scope.ACCOUNTING_READ,
    gives=CertificateOut,
    problems=(problems.CertificateDamaged,),
    does="Return a certificate: the signed statement and its decoded content.",
)
VERIFY = _CERTIFICATES.operation(
    "verify_certificate",
    "POST",
    "/certificates:verify",
    scope=sets.Scope.REQUESTS_READ,
    takes=CertificateIn,
    gives=CertificateVerdictOut,
    repeat="idempotent",
    problems=(problems.CertificateInvalid, problems.CertificateBeyondLimits),
    does="Verify a certificate's signature with this installation's public keys and recompute every number from the "
    "statement alone. If limits are given, also refuse a certificate with weaker `unlearning` or `deletion`.",
)
PUBLIC_KEYS = operation.ResourceOperations("Operations", "/.well-known/jwks.json").operation(
    "jwks",
    "GET",
    scope=None,
    gives=dict[str, Any],
    does="Return the public keys for verifying certificates, as a JWK set.",
)
