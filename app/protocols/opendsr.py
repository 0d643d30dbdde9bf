"""OpenDSR 2.0, formerly OpenGDPR: what controllers send, and what they are told.

One subject request names one person by one or more identities. Each identity is a deletion request of its own, and all
of them together have one status.
"""

import base64
import datetime
import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import AwareDatetime, Field

from app.access import subjects
from app.db.tables import DeletionRequest
from app.keys import Keys
from app.protocols.parsing import Message, parsed
from lethe.contract import sets
from lethe.contract.choices import SubjectRule
from lethe.contract.problems import FieldError, InputInvalid

SOURCE = "opendsr"
"""The source of deletion requests that came this way; their `external_id` is the subject request's id."""
API_VERSION = "2.0"
_FORMATS = ("raw", "sha256")
_IDENTITY_TYPES = Literal[
    "controller_customer_id",
    "android_advertising_id",
    "android_id",
    "email",
    "fire_advertising_id",
    "ios_advertising_id",
    "ios_vendor_id",
    "microsoft_advertising_id",
    "microsoft_publisher_id",
    "roku_publisher_id",
    "roku_advertising_id",
]
_UUID4 = "^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$"
_SHA256 = "^[0-9a-fA-F]{64}$"

SubjectRequestId = Annotated[str, Field(pattern=_UUID4, max_length=36)]
_Moment = Annotated[  # what calendars can count from, in every time zone
    AwareDatetime,
    Field(ge=datetime.datetime(1970, 1, 2, tzinfo=datetime.UTC), le=datetime.datetime(9000, 1, 1, tzinfo=datetime.UTC)),
]


class RawIdentity(Message):
    identity_type: _IDENTITY_TYPES
    identity_format: Literal["raw"]
    identity_value: Annotated[str, Field(min_length=1, max_length=500)]


class HashedIdentity(Message):
    """`identity_value`: the SHA-256 of what would be the raw value, in hex."""

    identity_type: _IDENTITY_TYPES
    identity_format: Literal["sha256"]
    identity_value: Annotated[str, Field(pattern=_SHA256, max_length=64)]


class SubjectRequest(Message):
    subject_request_id: SubjectRequestId
    regulation: Literal["gdpr", "ccpa"]
    subject_request_type: Literal["erasure"]
    submitted_time: _Moment
    subject_identities: Annotated[
        list[Annotated[RawIdentity | HashedIdentity, Field(discriminator="identity_format")]],
        Field(min_length=1, max_length=100),
    ]
    api_version: Annotated[str, Field(pattern=r"^2(\.\d{1,3})?$")] | None = None
    status_callback_urls: Annotated[list[str], Field(max_length=10, default_factory=list)]
    extensions: dict[str, Any] | None = None


class RequestStatus(StrEnum):
    PENDING = "pending"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"
    CANCELLED = "cancelled"


_STATUS = {
    sets.RequestStatus.RECEIVED: RequestStatus.PENDING,
    sets.RequestStatus.IN_REVIEW: RequestStatus.PENDING,
    sets.RequestStatus.ACCEPTED: RequestStatus.PENDING,
    sets.RequestStatus.RUNNING: RequestStatus.IN_PROGRESS,
    sets.RequestStatus.COMPLETED: RequestStatus.COMPLETED,
    sets.RequestStatus.REJECTED: RequestStatus.CANCELLED,
    sets.RequestStatus.CANCELLED: RequestStatus.CANCELLED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SubjectRequestState:
    """The state of a subject request: all its deletion requests together."""

    controller_id: str
    subject_request_id: str
    received_at: datetime.datetime
    expected_at: datetime.datetime
    status: RequestStatus


def read(body: bytes, *, identity_types: Collection[str], domain: str) -> SubjectRequest:
    """Read a controller's request. `identity_types`: those that the tenant's subject ids are. Raises `InputInvalid`."""
    request = parsed(SubjectRequest, body)
    wrong = [
        FieldError(f"subject_identities.{place}.identity_type", f"expected one of {', '.join(identity_types)}")
        for place, identity in enumerate(request.subject_identities)
        if identity.identity_type not in identity_types
    ]
    wrong += [
        FieldError(f"subject_identities.{place}.identity_value", "expected more than white space")
        for place, identity in enumerate(request.subject_identities)
        if identity.identity_value.isspace()
    ]
    if domain in (request.extensions or {}):  # it may say who is meant: to pass over it would be to forget too little
        wrong.append(FieldError("extensions", "expected nothing for this processor: it has no extensions"))
    if wrong:
        raise InputInvalid("The subject request asks for what this processor does not support.", wrong)
    return request


def subject_refs(request: SubjectRequest, *, keys: Keys, tenant_id: str, rule: SubjectRule) -> list[str]:
    """The people whom the request is about: one reference for each identity, none twice. `rule`: the tenant's for
    subject ids, by which an identity that comes hashed is taken to have been brought to its form."""
    found = [
        keys.subject_ref(tenant_id, subjects.normal(identity.identity_value, rule))
        if isinstance(identity, RawIdentity)
        else keys.subject_ref_of_hash(tenant_id, bytes.fromhex(identity.identity_value))
        for identity in request.subject_identities
    ]
    return list(dict.fromkeys(found))


def together(statuses: Collection[str]) -> RequestStatus:
    """The status of a subject request whose deletion requests have these; complete only if all of them are."""
    each = {_STATUS[sets.RequestStatus(status)] for status in statuses}
    if len(each) == 1:
        return each.pop()
    if each <= {RequestStatus.COMPLETED, RequestStatus.CANCELLED}:
        return RequestStatus.CANCELLED
    begun = each - {RequestStatus.PENDING, RequestStatus.CANCELLED}
    return RequestStatus.IN_PROGRESS if begun else RequestStatus.PENDING


def standing(requests: Sequence[DeletionRequest], *, statuses: Sequence[str]) -> SubjectRequestState:
    """The state of the deletion requests of one subject request. `statuses`: theirs, as the one who asks may see
    them."""
    first = requests[0]
    return SubjectRequestState(
        controller_id=first.tenant_id,
        subject_request_id=str(first.particulars.external_id),
        received_at=first.created_at,
        expected_at=max(request.deadline for request in requests),
        status=together(statuses),
    )


def discovery_body(*, identity_types: Sequence[str], certificate_url: str) -> bytes:
    return _json(
        {
            "api_version": API_VERSION,
            "supported_identities": [
                {"identity_type": kind, "identity_format": form} for kind in identity_types for form in _FORMATS
            ],
            "supported_subject_request_types": ["erasure"],
            "processor_certificate": certificate_url,
        }
    )


def receipt_body(standing: SubjectRequestState, *, received: bytes) -> bytes:
    """The answer to a subject request. `received`: its exact body, which the controller gets back and nobody keeps."""
    return _json(
        _named(standing)
        | {
            "received_time": rfc3339(standing.received_at),
            "expected_completion_time": rfc3339(standing.expected_at),
            "encoded_request": base64.b64encode(received).decode(),
            "request_status": standing.status,
        }
    )


def status_body(standing: SubjectRequestState) -> bytes:
    expected = rfc3339(standing.expected_at)
    return _json(_named(standing) | {"expected_completion_time": expected, "request_status": standing.status})


def cancellation_body(standing: SubjectRequestState, *, received_at: datetime.datetime) -> bytes:
    return _json(_named(standing) | {"received_time": rfc3339(received_at), "request_status": standing.status})


def callback_body(standing: SubjectRequestState, *, url: str) -> bytes:
    """The body that is POSTed to `url`, one of the subject request's `status_callback_urls`, when the status
    changes."""
    return _json(
        _named(standing)
        | {
            "status_callback_url": url,
            "expected_completion_time": rfc3339(standing.expected_at),
            "request_status": standing.status,
        }
    )


def rfc3339(time: datetime.datetime) -> str:
    return time.astimezone(datetime.UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _named(standing: SubjectRequestState) -> dict[str, str]:
    return {
        "controller_id": standing.controller_id,
        "subject_request_id": standing.subject_request_id,
        "api_version": API_VERSION,
    }


def _json(document: dict[str, Any]) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()
