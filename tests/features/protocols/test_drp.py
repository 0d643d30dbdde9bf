"""The messages of the Data Rights Protocol: opened, valid for ten minutes, and answered in its terms."""

import base64
import dataclasses
import datetime
import json
from typing import Any, Literal

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given, strategies as st

from app.db.sealed import Particulars
from app.db.tables import DeletionRequest
from app.features.protocols import drp
from app.features.protocols.drp import Envelope, Exercise
from app.features.protocols.parsing import parsed
from lethe.contract.problems import InputInvalid
from lethe.contract.sets import RequestStatus
from lethe.features.protocols.contract import MessageEarly, MessageExpired, MessageRefused

AT = datetime.datetime(2026, 10, 2, 15, tzinfo=datetime.UTC)
MINUTE = datetime.timedelta(minutes=1)
SECRET = Ed25519PrivateKey.from_private_bytes(bytes(32))
VERIFY_KEY = base64.b64encode(SECRET.public_key().public_bytes_raw()).decode()


def message(**changed: Any) -> bytes:
    """Return a message as an agent would sign it. In a field name, `_` stands for `-`; a value of None omits the
    field."""
    said = {
        "agent-id": "AGENT",
        "business-id": "BUSINESS",
        "issued-at": AT.isoformat(),
        "expires-at": (AT + 10 * MINUTE).isoformat(),
        "drp.version": "1.0",
        "exercise": "deletion",
        "regime": "ccpa",
        "relationships": ["customer"],
        "email": "p1",
        "email_verified": True,
    } | changed
    return json.dumps({name: value for name, value in said.items() if value is not None}).encode()


def exercise(**changed: Any) -> Exercise:
    return parsed(Exercise, message(**changed))


def test_a_message_is_a_signature_followed_by_the_text() -> None:
    """A message consists of the signature followed by the text, as in the second vector of RFC 8032, section 7.1."""
    key = bytes.fromhex("3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c")
    signature = bytes.fromhex(
        "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
        "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00"
    )
    assert drp.open_message(base64.b64encode(signature + b"r"), verify_key=base64.b64encode(key).decode()) == b"r"


P = 2**255 - 19
D = -121665 * pow(121666, -1, P) % P
Point = tuple[int, int]


def plus(one: Point, other: Point) -> Point:
    """Add points of edwards25519: -x^2 + y^2 = 1 + D x^2 y^2."""
    (x1, y1), (x2, y2) = one, other
    both = D * x1 * x2 * y1 * y2
    return (x1 * y2 + x2 * y1) * pow(1 + both, -1, P) % P, (y1 * y2 + x1 * x2) * pow(1 - both, -1, P) % P


def test_keys_of_small_order_are_refused() -> None:
    """Keys of small order are refused, because a signature that is valid for any message can be made for such a key.
    The list contains every encoding of the eight points that give the neutral element when multiplied by eight."""
    ys = set()
    for encoded in drp.SMALL_ORDER:
        y = int.from_bytes(encoded, "little") % P
        square = (y * y - 1) * pow(D * y * y + 1, -1, P) % P
        x = pow(square, (P + 3) // 8, P)
        x = x if x * x % P == square else x * pow(2, (P - 1) // 4, P) % P
        assert x * x % P == square
        doubled = (x, y)
        for _ in range(3):
            doubled = plus(doubled, doubled)
        assert doubled == (0, 1)
        ys.add((y, x == 0))
        for sign in (0, 0x80):
            key = encoded[:-1] + bytes([encoded[-1] | sign])
            with pytest.raises(InputInvalid):
                drp.check_verify_key(base64.b64encode(key).decode())
    assert sum(1 if is_alone else 2 for _, is_alone in ys) == 8
    assert len(drp.SMALL_ORDER) == len(ys) + sum(y + P < 2**255 for y, _ in ys)
    drp.check_verify_key(VERIFY_KEY)


@given(st.binary(max_size=200), st.integers(0, 263), st.integers(1, 255))
def test_a_message_that_was_changed_is_refused(said: bytes, place: int, change: int) -> None:
    """An unchanged message is opened, but a message with a changed byte in its signature or text is refused."""
    signed = bytearray(SECRET.sign(said) + said)
    assert drp.open_message(base64.b64encode(signed) + b"\n", verify_key=VERIFY_KEY) == said
    signed[place % len(signed)] ^= change
    with pytest.raises(MessageRefused):
        drp.open_message(base64.b64encode(signed), verify_key=VERIFY_KEY)


@pytest.mark.parametrize("body", [b"", b"AAAA", base64.b64encode(bytes(64))])
def test_a_message_without_a_signature_is_refused(body: bytes) -> None:
    """A message that is too short to contain a signature, or whose signature is invalid, is refused."""
    with pytest.raises(MessageRefused):
        drp.open_message(body, verify_key=VERIFY_KEY)


def test_a_message_that_is_not_base64_is_malformed() -> None:
    """Base64 is decoded strictly, without skipping invalid characters."""
    with pytest.raises(InputInvalid):
        drp.open_message(b"{}AAAA", verify_key=VERIFY_KEY)


def check(at: datetime.datetime = AT + MINUTE, /, **changed: Any) -> None:
    drp.check(parsed(Envelope, message(**changed)), agent_id="AGENT", business_id="BUSINESS", at=at)


def test_a_message_is_valid_from_its_issue_to_its_expiry() -> None:
    """Because clocks differ, a message is valid from a minute before its issue until a minute after its expiry."""
    check(AT - MINUTE)
    check(AT + 11 * MINUTE - datetime.timedelta(microseconds=1))
    with pytest.raises(MessageEarly):
        check(AT - MINUTE - datetime.timedelta(microseconds=1))
    with pytest.raises(MessageExpired):
        check(AT + 11 * MINUTE)


def test_a_message_with_a_long_validity_is_refused() -> None:
    """A message that is valid for more than ten minutes is refused."""
    with pytest.raises(MessageExpired):
        check(**{"expires-at": (AT + 10 * MINUTE + datetime.timedelta(seconds=1)).isoformat()})


@pytest.mark.parametrize("changed", [{"agent-id": "OTHER"}, {"business-id": "OTHER"}])
def test_a_message_with_another_signer_or_recipient_is_refused(changed: dict[str, str]) -> None:
    """A message that another agent signed, or that is addressed to another business, is refused."""
    with pytest.raises(MessageRefused):
        check(**changed)


def test_a_tenant_without_a_business_id_is_not_addressed() -> None:
    """No message is addressed to a tenant without a business id."""
    with pytest.raises(MessageRefused):
        drp.check(parsed(Envelope, message()), agent_id="AGENT", business_id=None, at=AT)


@pytest.mark.parametrize("name", ["agent-id", "business-id", "issued-at", "expires-at", "drp.version"])
def test_sender_recipient_and_validity_are_required(name: str) -> None:
    """A message without a sender, recipient, issue time or expiry is refused, because none of them has a default
    value."""
    with pytest.raises(InputInvalid) as malformed:
        parsed(Envelope, message(**{name: None}))
    assert [fault.path for fault in malformed.value.errors] == [name]


@pytest.mark.parametrize("version", ["0.9.4", "1.1", "2.0"])
def test_another_version_is_refused(version: str) -> None:
    """A message for another version of the protocol is refused."""
    with pytest.raises(InputInvalid):
        exercise(**{"drp.version": version})


@pytest.mark.parametrize("right", ["sale:opt_out", "sale:opt_in", "access", "access:categories", "access:specific"])
def test_only_deletion_is_supported(right: str) -> None:
    """Requests for the protocol's rights other than deletion are refused with a specific error."""
    with pytest.raises(InputInvalid, match="Unsupported rights action"):
        drp.subject(exercise(exercise=right), claim="email")


@pytest.mark.parametrize("claim", ["email", "phone_number", "customer_id"])
@pytest.mark.parametrize(
    ("flag", "verified"), [(True, True), (False, False), (None, False), ("true", True), ("false", False)]
)
def test_the_policy_names_the_claim_of_the_subject(
    claim: Literal["email", "phone_number", "customer_id"], flag: bool | str | None, verified: bool
) -> None:
    """The claim named in the policy is read as the subject, and counts as verified only if the agent says so. Other
    claims are ignored."""
    others = {"email": "other", "phone_number": "other", "customer_id": "other", "email_verified": True}
    asked = exercise(**others | {claim: "p1", f"{claim}_verified": flag})
    kind = {"email": "email", "phone_number": "phone"}.get(claim)
    assert drp.subject(asked, claim=claim) == drp.Subject(subject_id="p1", kind=kind, verified=verified)
    with pytest.raises(InputInvalid):
        drp.subject(exercise(**others | {claim: None}), claim=claim)
    with pytest.raises(InputInvalid, match="has not stated the claim"):
        drp.subject(asked, claim=None)


@pytest.mark.parametrize("flag", ["yes", "", 1, ["true"], {}])
def test_a_verification_claim_must_be_boolean(flag: object) -> None:
    """The claim that a person was verified must be a boolean or one of the texts "true" and "false"."""
    with pytest.raises(InputInvalid):
        exercise(email_verified=flag)


def test_no_personal_data_is_stored() -> None:
    """A request stores only three things from a message: the agent, the agent's request id, and whether the person was
    verified."""
    asked = exercise(**{"agent-request-id": "r1", "name": "Jo Doe", "address": "Main Street"})
    kept = drp.retained_metadata(asked, drp.subject(asked, claim="email"))
    assert kept == {"agent_id": "AGENT", "agent_request_id": "r1", "identity": "verified"}
    assert "agent_request_id" not in drp.retained_metadata(exercise(), drp.subject(exercise(), claim="email"))


_WRITTEN = {one.name for one in dataclasses.fields(Particulars)}


def request(**changed: Any) -> DeletionRequest:
    facts = {
        "id": "dr_1",
        "created_at": AT,
        "deadline": AT + 45 * 24 * 60 * MINUTE,
    }
    written = {"metadata": {"agent_id": "AGENT", "identity": "verified"}} | changed
    facts |= {name: written.pop(name) for name in written.keys() - _WRITTEN}
    return DeletionRequest(**facts, particulars=Particulars(**written))


@pytest.mark.parametrize("status", RequestStatus)
def test_every_status_is_mapped(status: RequestStatus) -> None:
    """Every request status maps to a status object with the fields that the protocol requires."""
    told = drp.status_of(request(), status=status, verification_url=None)
    assert told["status"] in {"open", "in_progress", "fulfilled", "revoked", "denied"}
    assert (told["request_id"], told["received_at"]) == ("dr_1", "2026-10-02T15:00:00Z")
    assert told["expected_by"] == "2026-11-16T15:00:00Z"
    assert ("reason" in told) == (status is RequestStatus.REJECTED)


def test_an_unverified_person_gets_the_verification_url() -> None:
    """While a request is in review, its status for an unverified person contains the policy's verification URL. If the
    policy has no such URL, the reason code that refers to it is omitted."""
    unverified = request(metadata={"agent_id": "AGENT", "identity": "unverified"})
    told = drp.status_of(unverified, status="in_review", verification_url="https://business.example.com/verify/")
    assert (told["status"], told["reason"]) == ("in_progress", "need_user_verification")
    assert told["user_verification_url"] == "https://business.example.com/verify/dr_1"
    told = drp.status_of(unverified, status="in_review", verification_url=None)
    assert (told["status"], "reason" in told, "processing_details" in told) == ("in_progress", False, True)


def test_an_extension_has_a_reason() -> None:
    """An extended request's status contains the new due date and the reason for the extension."""
    later = request(deadline=AT + 90 * 24 * 60 * MINUTE, extension_reason="There are many requests.")
    told = drp.status_of(later, status="accepted", verification_url=None)
    assert (told["expected_by"], told["processing_details"]) == ("2026-12-31T15:00:00Z", "There are many requests.")


def test_a_denial_has_a_coded_reason_and_the_explanation() -> None:
    """A denied request's status contains the protocol's reason code and the explanation that the business wrote for the
    person."""
    denied = request(rejection_ground="legal_obligation", rejection_explanation="Tax law.")
    told = drp.status_of(denied, status="rejected", verification_url=None)
    assert (told["status"], told["reason"], told["processing_details"]) == ("denied", "claim_not_covered", "Tax law.")


def test_the_agents_request_id_is_returned() -> None:
    """The agent's own request id is returned unchanged."""
    named = request(metadata={"agent_id": "A", "identity": "verified", "agent_request_id": "r1"})
    assert drp.status_of(named, status="accepted", verification_url=None)["agent_request_id"] == "r1"


@pytest.mark.parametrize("key", ["", "AAAA", "*" * 44, VERIFY_KEY + "AAAA"])
def test_a_verify_key_is_the_base64_of_32_bytes(key: str) -> None:
    """Only the base64 encoding of exactly 32 bytes is accepted as a verify key."""
    drp.check_verify_key(VERIFY_KEY)
    with pytest.raises(InputInvalid):
        drp.check_verify_key(key)
