"""Kinds of identifiers, and the normal form in which each kind's identifiers are compared and hashed."""

import hashlib
import re
from collections.abc import Callable, Iterable

import phonenumbers
import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.access import subjects
from app.api.calls import Call
from app.audit import service as audit
from app.db.tables import Dataset
from app.features.identities.tables import Identity, IdentityKind
from lethe.contract import problems, sets
from lethe.features.identities.contract import BUILT_IN, CUSTOMER_ID, DEVICE, EMAIL, PHONE

_UUID = re.compile("[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}")
_EMAIL = re.compile(r"[^@\s]+@[^@\s]+")
_EMAIL_RULES = frozenset({sets.SubjectRule.EMAIL, sets.SubjectRule.EMAIL_DOMAIN, sets.SubjectRule.CASELESS})
_HASHED = re.compile("sha256:([0-9a-f]{64})")
_MAX_PHONE_LENGTH = 40
"""Maximum length of a phone number in any notation. Parsing takes quadratic time: 20 ms for 240 characters."""
_NO_PHONE = "expected a phone number with its country code, such as +49 30 901820, and without an extension"


def regions(session: Session, tenant_id: str) -> dict[str, str | None]:
    """Map the kinds that a tenant has defined, and `phone` if its region is set, to their regions."""
    query = sa.select(IdentityKind.name, IdentityKind.region).where(IdentityKind.tenant_id == tenant_id)
    # mypy does not accept dict() of rows.
    return {name: region for name, region in session.execute(query)}  # noqa: C416


def is_used(session: Session, tenant_id: str, kind: str) -> bool:
    """Return True if a tenant's datasets or identity map contain people known by this kind of identifier."""
    named = sa.exists().where(Dataset.tenant_id == tenant_id, Dataset.subject_kind == kind)
    mapped = sa.exists().where(Identity.tenant_id == tenant_id, Identity.kind == kind)
    return session.scalars(sa.select(named | mapped)).one()


def references(call: Call, kind: str) -> Callable[[Iterable[str]], list[str]]:
    """Return a function that maps a kind's identifiers to pseudonyms. It accepts identifiers in any spelling, or
    `sha256:` and the SHA-256 (hex) of a normal form. Identifiers of different kinds never share a pseudonym.

    Raises:
        InputInvalid: if the tenant has no such kind. The returned function raises it for identifiers not of this kind.
    """
    keys, tenant_id, rule = call.installation.keys, call.caller.tenant_id, call.caller.policy.subject_rule
    with call.reading() as session:
        defined = regions(session, tenant_id)
    if kind not in (*BUILT_IN, *defined):
        expected = problems.FieldError(
            "kind", "expected " + ", ".join((*BUILT_IN, *sorted(defined.keys() - set(BUILT_IN))))
        )
        raise problems.InputInvalid("The tenant has no such kind of identifiers; define it first.", [expected])
    region = defined.get(PHONE)

    def of_all(ids: Iterable[str]) -> list[str]:
        digests = (
            bytes.fromhex(hashed[1])
            if (hashed := _HASHED.fullmatch(identifier))
            else hashlib.sha256(normal(identifier, kind, rule, region).encode()).digest()
            for identifier in ids
        )
        if kind == CUSTOMER_ID:
            return [keys.subject_ref_of_hash(tenant_id, digest) for digest in digests]
        parts = b"identifier", tenant_id.encode(), kind.encode()
        return ["sub_" + keys.fingerprint(*parts, digest)[:40] for digest in digests]

    return of_all


def normal(identifier: str, kind: str, rule: sets.SubjectRule, region: str | None) -> str:
    """Return the normal form of an identifier. `rule` is the tenant's subject-id rule, `region` the country assumed for
    phone numbers without a country code (refused if None). Raises `InputInvalid`, without the identifier."""
    if kind == CUSTOMER_ID:
        text = subjects.normal(identifier, rule)
    elif kind == EMAIL:
        text = subjects.normal(identifier, rule if rule in _EMAIL_RULES else sets.SubjectRule.EMAIL_DOMAIN)
        if not _EMAIL.fullmatch(text):
            raise _invalid("expected an e-mail address")
    elif kind == PHONE:
        return _e164(identifier, region)
    else:
        text = subjects.normal(identifier, sets.SubjectRule.TEXT)
        if kind == DEVICE and _UUID.fullmatch(text):
            text = text.lower()
    if fault := subjects.fault_of(text):
        raise _invalid(fault)
    return text


def _e164(identifier: str, region: str | None) -> str:
    """Return a phone number in E.164 format. Extensions are refused: E.164 has none, so colleagues would become one
    person. Length is checked rather than number range, because ranges change between releases of the metadata."""
    text = subjects.normal(identifier, sets.SubjectRule.TEXT)
    if len(text) > _MAX_PHONE_LENGTH:
        raise _invalid(_NO_PHONE)
    try:
        number = phonenumbers.parse(text, region)
    except phonenumbers.NumberParseException:
        raise _invalid(_NO_PHONE) from None
    if number.extension or not phonenumbers.is_possible_number(number):
        raise _invalid(_NO_PHONE)
    return phonenumbers.format_number(number, phonenumbers.PhoneNumberFormat.E164)


def _invalid(expected: str) -> problems.InputInvalid:
    return problems.InputInvalid("No person can have this identifier.", [problems.FieldError("subject_id", expected)])


def define(session: Session, *, tenant_id: str, name: str, region: str | None) -> None:
    """Define a kind, or set the region for phone numbers. Raises `InputInvalid`."""
    if name in BUILT_IN and name != PHONE:
        raise problems.InputInvalid(
            "This kind is built in.", [problems.FieldError("name", "expected phone or a name of your own")]
        )
    if region is not None and (name != PHONE or region not in phonenumbers.SUPPORTED_REGIONS):
        raise problems.InputInvalid(
            "Only phone has a region.", [problems.FieldError("region", "expected a country, and the name phone")]
        )
    audit.record(session, "identities.kind_defined", tenant_id, name=name, region=region)
    session.merge(IdentityKind(tenant_id=tenant_id, name=name, region=region))
