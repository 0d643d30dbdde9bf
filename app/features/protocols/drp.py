"""Data Rights Protocol 1.0: signed messages from authorised agents, and the responses to them.

A message is the base64 of an Ed25519 signature followed by the signed JSON (libsodium's combined mode).
"""

import base64
import binascii
import contextlib
import datetime
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, Literal

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from pydantic import AwareDatetime, BeforeValidator, Field

from app.db.tables import DeletionRequest
from app.features.protocols.parsing import ProtocolMessage
from lethe.contract import problems, sets
from lethe.features.protocols.contract import MessageEarly, MessageExpired, MessageRefused

SOURCE = "drp"
"""Source recorded for deletion requests received through this protocol."""
VERSION = "1.0"
MAX_VALIDITY = datetime.timedelta(minutes=10)
"""Maximum time between `issued-at` and `expires-at`, recommended by the protocol so that old messages are worthless."""
_CLOCKS_DIFFER_BY = datetime.timedelta(minutes=1)
_SIGNATURE_BYTES = 64
_KEY_BYTES = 32
SMALL_ORDER = frozenset(
    bytes.fromhex(point)
    for point in (
        "00" * 32,
        "01" + "00" * 31,
        "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
        "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
        "ec" + "ff" * 30 + "7f",
        "ed" + "ff" * 30 + "7f",
        "ee" + "ff" * 30 + "7f",
    )
)
"""Encodings (including unreduced ones, sign bit ignored) of all edwards25519 points whose order divides 8."""
_VERIFIED = "verified"
_KINDS = {"email": "email", "phone_number": "phone"}

_Id = Annotated[str, Field(min_length=1, max_length=200)]
_Claim = Annotated[str, Field(min_length=1, max_length=500)]
_Verified = Annotated[bool, BeforeValidator(lambda value: value == "true" if value in ("true", "false") else value)]
"""Boolean claim, which some agents send as a string."""


class Envelope(ProtocolMessage):
    """Sender, recipient and validity of a message."""

    agent_id: _Id = Field(alias="agent-id")
    business_id: _Id = Field(alias="business-id")
    issued_at: AwareDatetime = Field(alias="issued-at")
    expires_at: AwareDatetime = Field(alias="expires-at")
    version: Literal["1.0"] = Field(alias="drp.version")


class Exercise(Envelope):
    """Exercise of a person's right. Of the claims about the person, only those that a policy can name are read."""

    agent_request_id: _Id | None = Field(None, alias="agent-request-id")
    exercise: Literal["deletion", "sale:opt_out", "sale:opt_in", "access", "access:categories", "access:specific"]
    regime: Literal["ccpa", "voluntary"] | None = None
    status_callback: Annotated[str, Field(max_length=2048)] | None = None
    email: _Claim | None = None
    email_verified: _Verified | None = None
    phone_number: _Claim | None = None
    phone_number_verified: _Verified | None = None
    customer_id: _Claim | None = None
    customer_id_verified: _Verified | None = None


class Revocation(ProtocolMessage):
    """Revocation of a request. `reason`, in the person's own words, is validated and discarded."""

    reason: Annotated[str, Field(max_length=10_000)] | None = None


class Status(StrEnum):
    OPEN = "open"
    IN_PROGRESS = "in_progress"
    FULFILLED = "fulfilled"
    REVOKED = "revoked"
    DENIED = "denied"


class StatusReason(StrEnum):
    """Status reasons that this service uses. `no_match` is left out: it would disclose whose data is held."""

    NEED_USER_VERIFICATION = "need_user_verification"
    INSUF_VERIFICATION = "insuf_verification"
    CLAIM_NOT_COVERED = "claim_not_covered"
    OTHER = "other"


_STATUS = {
    sets.RequestStatus.RECEIVED: Status.OPEN,
    sets.RequestStatus.IN_REVIEW: Status.IN_PROGRESS,
    sets.RequestStatus.ACCEPTED: Status.IN_PROGRESS,
    sets.RequestStatus.RUNNING: Status.IN_PROGRESS,
    sets.RequestStatus.COMPLETED: Status.FULFILLED,
    sets.RequestStatus.REJECTED: Status.DENIED,
    sets.RequestStatus.CANCELLED: Status.REVOKED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """Person whom a request is about: the claim by which the tenant identifies people, its kind of identifier (None for
    a customer id), and whether the agent verified it."""

    subject_id: str
    kind: str | None
    verified: bool


def check_verify_key(verify_key: str) -> None:
    """Raise `InputInvalid` unless the text is the base64 of an Ed25519 public key of large order. Signatures under a
    key of small order can be forged without a private key."""
    wrong = problems.FieldError("verify_key", f"expected the base64 of {_KEY_BYTES} bytes, a point of large order")
    with contextlib.suppress(binascii.Error, ValueError):
        key = base64.b64decode(verify_key, validate=True)
        # The highest bit is the sign of the other coordinate.
        if len(key) == _KEY_BYTES and key[:-1] + bytes([key[-1] & 0x7F]) not in SMALL_ORDER:
            return
    raise problems.InputInvalid("The verify key is not an Ed25519 public key.", [wrong])


def open_message(body: bytes, *, verify_key: str) -> bytes:
    """Verify the signature of a message and return its JSON. Raises `InputInvalid`, `MessageRefused`."""
    try:
        signed = base64.b64decode(body.strip(), validate=True)
    except (binascii.Error, ValueError):
        raise problems.InputInvalid(
            "The message is not base64.", [problems.FieldError("body", "expected base64")]
        ) from None
    try:
        key = Ed25519PublicKey.from_public_bytes(base64.b64decode(verify_key))
        key.verify(signed[:_SIGNATURE_BYTES], signed[_SIGNATURE_BYTES:])
    except InvalidSignature:
        raise MessageRefused("The message is not signed with the key on record for this agent.") from None
    return signed[_SIGNATURE_BYTES:]


def check(envelope: Envelope, *, agent_id: str, business_id: str | None, at: datetime.datetime) -> None:
    """Check that the envelope is from this agent, addressed to this business, and valid within a minute of `at`. Raises
    `MessageRefused`, `MessageEarly`, `MessageExpired`."""
    if envelope.agent_id != agent_id:
        raise MessageRefused("The message names another agent than the one that calls.")
    if business_id is None or envelope.business_id != business_id:
        raise MessageRefused("The message is for another business.")
    if at < envelope.issued_at - _CLOCKS_DIFFER_BY:
        raise MessageEarly("The message is from the future; is the agent's clock right?")
    if at >= envelope.expires_at + _CLOCKS_DIFFER_BY:
        raise MessageExpired("The message has expired; sign a new one.")
    if envelope.expires_at - envelope.issued_at > MAX_VALIDITY:
        wrong = problems.FieldError(
            "expires-at", f"expected at most {MAX_VALIDITY // datetime.timedelta(minutes=1)} minutes"
        )
        raise MessageExpired("The message is meant to hold for longer than one is believed.", [wrong])


def subject(exercise: Exercise, *, claim: Literal["email", "phone_number", "customer_id"] | None) -> Subject:
    """Return the person whom a request is about. Raises `InputInvalid` for any right other than deletion and for a
    missing claim, regardless of what data is stored."""
    if exercise.exercise != "deletion":
        wrong = problems.FieldError("exercise", "expected 'deletion'")
        raise problems.InputInvalid("Unsupported rights action: this service only deletes.", [wrong])
    match claim:
        case "email":
            value, verified = exercise.email, exercise.email_verified
        case "phone_number":
            value, verified = exercise.phone_number, exercise.phone_number_verified
        case "customer_id":
            value, verified = exercise.customer_id, exercise.customer_id_verified
        case None:
            raise problems.InputInvalid("This business has not stated the claim that is its subject id (drp_claim).")
    if value is None:
        raise problems.InputInvalid(
            "The message does not say who is meant.", [problems.FieldError(claim, "expected this claim")]
        )
    return Subject(subject_id=value, kind=_KINDS.get(claim), verified=verified is True)


def retained_metadata(exercise: Exercise, person: Subject) -> dict[str, str]:
    """Return the message metadata that a deletion request retains. It contains no data about the person."""
    metadata = {"agent_id": exercise.agent_id, "identity": _VERIFIED if person.verified else "unverified"}
    return metadata if exercise.agent_request_id is None else metadata | {"agent_request_id": exercise.agent_request_id}


_REASON = {
    "free_expression": StatusReason.CLAIM_NOT_COVERED,
    "legal_obligation": StatusReason.CLAIM_NOT_COVERED,
    "public_health": StatusReason.CLAIM_NOT_COVERED,
    "archiving_research": StatusReason.CLAIM_NOT_COVERED,
    "legal_claims": StatusReason.CLAIM_NOT_COVERED,
    "identity_not_established": StatusReason.INSUF_VERIFICATION,
}
"""Reason reported for each ground of rejection. Any other ground is reported as `other`, with its explanation."""


def status_of(request: DeletionRequest, *, status: str, verification_url: str | None) -> dict[str, Any]:
    """Return the protocol's status object. `status` is the request's status as visible to this agent."""
    drp_status = _STATUS[sets.RequestStatus(status)]
    body: dict[str, Any] = {
        "request_id": request.id,
        "received_at": _iso8601(request.created_at),
        "expected_by": _iso8601(request.deadline),
        "status": drp_status,
    }
    metadata = request.particulars.metadata
    if "agent_request_id" in metadata:
        body["agent_request_id"] = metadata["agent_request_id"]
    if drp_status is Status.DENIED:
        body["reason"] = _REASON.get(request.rejection_ground or "", StatusReason.OTHER)
        body["processing_details"] = request.particulars.rejection_explanation
    elif status == sets.RequestStatus.IN_REVIEW and metadata["identity"] != _VERIFIED:
        body |= _needs_verification(request, verification_url)
    elif drp_status is Status.IN_PROGRESS and request.particulars.extension_reason is not None:
        body["processing_details"] = request.particulars.extension_reason
    return body


def _needs_verification(request: DeletionRequest, verification_url: str | None) -> dict[str, str]:
    """Return the status fields for an unverified identity. The protocol allows the reason `need_user_verification` only
    with a URL for the verification."""
    if verification_url is None:
        return {"processing_details": "The business is establishing who asks."}
    return {
        "reason": StatusReason.NEED_USER_VERIFICATION,
        "user_verification_url": f"{verification_url.rstrip('/')}/{request.id}",
    }


def _iso8601(time: datetime.datetime) -> str:
    return time.astimezone(datetime.UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
