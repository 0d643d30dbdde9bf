"""OpenDSR 2.0, formerly OpenGDPR: requests from controllers, and the signed responses to them.

A subject request names one person by one or more identities. Each identity becomes a separate deletion request, and all
of these share one status. Responses and callbacks are signed with an X.509 certificate (RSA PKCS #1 v1.5 with SHA-256).
"""

import base64
import datetime
import functools
import ipaddress
import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.x509.oid import NameOID
from pydantic import AwareDatetime, Field

from app import config, errors
from app.access import subjects
from app.db.tables import DeletionRequest
from app.features.protocols.parsing import ProtocolMessage, parsed
from app.keys import Keys, read_or_create
from lethe.contract import fields, problems, sets

SOURCE = "opendsr"
"""Source recorded for requests received through this protocol; their `external_id` is the subject request's id."""
API_VERSION = "2.0"
EMAIL = "email"
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
# Times with which calendars can compute in every time zone.
_Moment = Annotated[
    AwareDatetime,
    Field(ge=datetime.datetime(1970, 1, 2, tzinfo=datetime.UTC), le=datetime.datetime(9000, 1, 1, tzinfo=datetime.UTC)),
]


class RawIdentity(ProtocolMessage):
    identity_type: _IDENTITY_TYPES
    identity_format: Literal["raw"]
    identity_value: Annotated[str, Field(min_length=1, max_length=500)]


class HashedIdentity(ProtocolMessage):
    """Hashed identity. `identity_value` is the hexadecimal SHA-256 of the raw value."""

    identity_type: _IDENTITY_TYPES
    identity_format: Literal["sha256"]
    identity_value: Annotated[str, Field(pattern=_SHA256, max_length=64)]


class SubjectRequest(ProtocolMessage):
    subject_request_id: SubjectRequestId
    regulation: Literal["gdpr", "ccpa"]
    subject_request_type: Literal["erasure"]
    submitted_time: _Moment
    subject_identities: Annotated[
        list[Annotated[RawIdentity | HashedIdentity, Field(discriminator="identity_format")]],
        Field(min_length=1, max_length=100),
    ]
    api_version: Annotated[str, Field(pattern=r"^2(\.\d{1,3})?$"), fields.WHOLE] | None = None
    status_callback_urls: Annotated[list[str], Field(max_length=10, default_factory=list)]
    extensions: dict[str, Any] | None = None


class OpenDsrStatus(StrEnum):
    PENDING = "pending"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"
    CANCELLED = "cancelled"


_STATUS = {
    sets.RequestStatus.RECEIVED: OpenDsrStatus.PENDING,
    sets.RequestStatus.IN_REVIEW: OpenDsrStatus.PENDING,
    sets.RequestStatus.ACCEPTED: OpenDsrStatus.PENDING,
    sets.RequestStatus.RUNNING: OpenDsrStatus.IN_PROGRESS,
    sets.RequestStatus.COMPLETED: OpenDsrStatus.COMPLETED,
    sets.RequestStatus.REJECTED: OpenDsrStatus.CANCELLED,
    sets.RequestStatus.CANCELLED: OpenDsrStatus.CANCELLED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SubjectRequestState:
    """State of a subject request, combined from all of its deletion requests."""

    controller_id: str
    subject_request_id: str
    received_at: datetime.datetime
    expected_at: datetime.datetime
    status: OpenDsrStatus


def read(body: bytes, *, identity_types: Collection[str], domain: str) -> SubjectRequest:
    """Parse a controller's request; `identity_types` are the types of the tenant's subject ids. Raises `InputInvalid`,
    also if the tenant has declared no types, because an identity of the wrong type would match no person and its
    request would complete as if no data were held."""
    request = parsed(SubjectRequest, body)
    if not identity_types:
        raise problems.InputInvalid(
            "This processor has not stated which identities are its subject ids (opendsr_identities)."
        )
    wrong = [
        problems.FieldError(f"subject_identities.{place}.identity_type", f"expected one of {', '.join(identity_types)}")
        for place, identity in enumerate(request.subject_identities)
        if identity.identity_type not in identity_types
    ]
    wrong += [
        problems.FieldError(f"subject_identities.{place}.identity_value", fault)
        for place, identity in enumerate(request.subject_identities)
        if (fault := subjects.fault_of(subjects.normal(identity.identity_value, sets.SubjectRule.TEXT)))
    ]
    # An extension may name further people; ignoring it would erase too little.
    if domain in (request.extensions or {}):
        wrong.append(problems.FieldError("extensions", "expected nothing for this processor: it has no extensions"))
    if wrong:
        raise problems.InputInvalid("The subject request asks for what this processor does not support.", wrong)
    return request


def subject_kinds(
    request: SubjectRequest,
    *,
    keys: Keys,
    tenant_id: str,
    rule: sets.SubjectRule,
    of_email: Callable[[list[str]], list[str]] | None,
) -> dict[str, str | None]:
    """Map the distinct references of the request's identities to their kinds, or to None for a subject id. `rule` is
    the tenant's rule for subject ids; hashed identities are assumed to have been normalised by it. `of_email` returns
    the references of e-mail addresses that are not subject ids; it is None if e-mail addresses are subject ids."""
    kinds: dict[str, str | None] = {}
    for identity in request.subject_identities:
        is_raw, value = isinstance(identity, RawIdentity), identity.identity_value
        if identity.identity_type == EMAIL and of_email is not None:
            kinds[of_email([value if is_raw else f"sha256:{value.lower()}"])[0]] = EMAIL
        elif is_raw:
            kinds[keys.subject_ref(tenant_id, subjects.normal(value, rule))] = None
        else:
            kinds[keys.subject_ref_of_hash(tenant_id, bytes.fromhex(value))] = None
    return kinds


def together(statuses: Collection[str]) -> OpenDsrStatus:
    """Return a subject request's status, given its deletion requests' `statuses`: completed if all are completed."""
    each = {_STATUS[sets.RequestStatus(status)] for status in statuses}
    if len(each) == 1:
        return each.pop()
    if each <= {OpenDsrStatus.COMPLETED, OpenDsrStatus.CANCELLED}:
        return OpenDsrStatus.CANCELLED
    active = each - {OpenDsrStatus.PENDING, OpenDsrStatus.CANCELLED}
    return OpenDsrStatus.IN_PROGRESS if active else OpenDsrStatus.PENDING


def standing(requests: Sequence[DeletionRequest], *, statuses: Sequence[str]) -> SubjectRequestState:
    """Return the state of a subject request. `statuses` are the statuses of its deletion requests as visible to the
    reader."""
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
    """Return the response to a subject request. `received` is the request's exact body, which is sent back to the
    controller and not stored."""
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
    """Return the body POSTed to `url`, one of the request's `status_callback_urls`, when the status changes."""
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


_BITS = 3072
_LIFETIME = datetime.timedelta(days=3650)
_CLOCKS_DIFFER_BY = datetime.timedelta(days=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Signer:
    """Processor's domain, certificate chain (PEM) and private key."""

    domain: str
    certificate: str
    key: RSAPrivateKey = field(repr=False)

    def headers(self, body: bytes) -> dict[str, str]:
        """Return the signature headers for a response or callback with exactly this body."""
        signature = self.key.sign(body, padding.PKCS1v15(), hashes.SHA256())
        return {"X-OpenDSR-Processor-Domain": self.domain, "X-OpenDSR-Signature": base64.b64encode(signature).decode()}


def signer(settings: config.Settings) -> Signer:
    """Return the signer configured in the settings, or one with a self-signed certificate created on first use.

    Raises `SigningUnusable`, `OSError`.
    """
    return _signer(
        settings.data_dir / "keys",
        settings.opendsr_domain or settings.host,
        settings.opendsr_certificate_file,
        settings.opendsr_key_file,
    )


@functools.lru_cache
def _signer(folder: Path, domain: str, certificate_file: Path | None, key_file: Path | None) -> Signer:
    if certificate_file is not None and key_file is not None:
        certificate, key_text = certificate_file.read_text(), key_file.read_text()
    elif certificate_file is None and key_file is None:
        key_text = read_or_create(folder / "opendsr.key", _new_key)
        certificate = read_or_create(folder / f"opendsr-{domain}.pem", lambda: _self_signed(_key(key_text), domain))
    else:
        raise errors.SigningUnusable("Set both LETHE_OPENDSR_CERTIFICATE_FILE and LETHE_OPENDSR_KEY_FILE, or neither.")
    key = _key(key_text)
    try:
        first = x509.load_pem_x509_certificates(certificate.encode())[0]
    except ValueError as error:
        raise errors.SigningUnusable("Expected certificates in PEM in LETHE_OPENDSR_CERTIFICATE_FILE.") from error
    if first.public_key() != key.public_key():
        raise errors.SigningUnusable("Expected the key of the first certificate in LETHE_OPENDSR_KEY_FILE.")
    if not _is_for(first, domain):
        raise errors.SigningUnusable("Expected a certificate that is for LETHE_OPENDSR_DOMAIN.")
    return Signer(domain=domain, certificate=certificate.strip() + "\n", key=key)


def _key(text: str) -> RSAPrivateKey:
    try:
        key = serialization.load_pem_private_key(text.encode(), password=None)
    except (ValueError, TypeError) as error:
        raise errors.SigningUnusable("Expected a PEM key without a password in LETHE_OPENDSR_KEY_FILE.") from error
    if not isinstance(key, RSAPrivateKey):
        raise errors.SigningUnusable("Expected an RSA key in LETHE_OPENDSR_KEY_FILE.")
    return key


def _new_key() -> str:
    return (
        rsa.generate_private_key(public_exponent=65537, key_size=_BITS)
        .private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        .decode()
    )


def _self_signed(key: RSAPrivateKey, domain: str) -> str:
    at = datetime.datetime.now(datetime.UTC)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, domain[:64])])
    usage = x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=False,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(at - _CLOCKS_DIFFER_BY)
        .not_valid_after(at + _LIFETIME)
        .add_extension(x509.SubjectAlternativeName([_name(domain)]), critical=False)
        .add_extension(usage, critical=True)
        .sign(key, hashes.SHA256())
    )
    return certificate.public_bytes(serialization.Encoding.PEM).decode()


def _is_for(certificate: x509.Certificate, domain: str) -> bool:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return False
    return any(name in names for name in (_name(domain), x509.DNSName("*." + domain.partition(".")[2])))


def _name(domain: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(domain))
    except ValueError:
        return x509.DNSName(domain)
