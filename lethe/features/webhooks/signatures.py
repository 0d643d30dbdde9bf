"""Webhook signatures as specified by standardwebhooks.com (1.0.0, symmetric), and their verification.

The signature is the HMAC-SHA256 of `id.timestamp.body`. Both sides refuse IDs and timestamps with a full stop, which
would let the same bytes be split into another ID, timestamp and body.
"""

import base64
import datetime
import hmac
import re
from collections.abc import Mapping, Sequence

ID = "webhook-id"
TIMESTAMP = "webhook-timestamp"
SIGNATURE = "webhook-signature"

TOLERANCE = datetime.timedelta(minutes=5)

_PREFIX = "whsec_"
_NEW_KEY_BYTES = 32
_KEY_BYTES = range(24, 65)
_MESSAGE_ID = re.compile(r"[A-Za-z0-9_-]{1,255}")
_SECONDS = re.compile(r"0|[1-9][0-9]{0,11}")


class WebhookUnverified(Exception):
    """The webhook call must not be trusted. Subclasses state the reason."""


class HeadersMalformed(WebhookUnverified):
    """A header is missing or does not meet the specification."""


class SignatureWrong(WebhookUnverified):
    """No signature matches this secret, ID, timestamp and body."""


class TimestampOutsideTolerance(WebhookUnverified):
    """The signature is correct but its timestamp is too old or in the future, so the call may be a replay."""


class SecretMalformed(ValueError):
    """The secret is not `whsec_` followed by the base64 encoding of 24 to 64 bytes."""


def secret_from(key: bytes) -> str:
    """Return the secret made of 32 random bytes, in the form shown to receivers."""
    if len(key) != _NEW_KEY_BYTES:
        raise SecretMalformed(f"Expected a key of {_NEW_KEY_BYTES} bytes")
    return _PREFIX + base64.b64encode(key).decode()


def sign(body: bytes, *, message_id: str, sent_at: datetime.datetime, secrets: Sequence[str]) -> dict[str, str]:
    """Return the three headers for one attempt, signed with each of `secrets` (two during a rotation).

    `message_id` is the same for all attempts, so that receivers recognise repeats; `sent_at` is the time of this
    attempt. Raises `SecretMalformed`.
    """
    if not _MESSAGE_ID.fullmatch(message_id):
        raise ValueError("Expected an id of letters, digits, _ and -")
    if not secrets:
        raise ValueError("Expected a secret")
    timestamp = str(int(_aware(sent_at).timestamp()))
    return {
        ID: message_id,
        TIMESTAMP: timestamp,
        SIGNATURE: " ".join(_signature(secret, message_id, timestamp, body) for secret in secrets),
    }


def verify(
    secret: str,
    headers: Mapping[str, str],
    body: bytes,
    *,
    now: datetime.datetime,
    tolerance: datetime.timedelta = TOLERANCE,
) -> str:
    """Verify a call against `secret` and return its ID. A call whose ID was seen before is a repeat.

    Header names are matched case-insensitively. `body` must be the exact bytes received.

    Raises:
        HeadersMalformed: if a header is missing or malformed.
        SignatureWrong: if no signature matches.
        TimestampOutsideTolerance: if the timestamp is not within `tolerance` of `now`.
        SecretMalformed: if `secret` is malformed.
    """
    fields = {name.lower(): value for name, value in headers.items()}
    message_id, timestamp, signatures = (fields.get(name, "") for name in (ID, TIMESTAMP, SIGNATURE))
    if not _MESSAGE_ID.fullmatch(message_id) or not _SECONDS.fullmatch(timestamp) or not signatures:
        raise HeadersMalformed(f"Expected {ID}, {TIMESTAMP} and {SIGNATURE}")
    expected = _signature(secret, message_id, timestamp, body).encode()
    # Every signature is compared, so that the time taken does not show which one matches.
    matches = [hmac.compare_digest(expected, signature.encode(errors="replace")) for signature in signatures.split(" ")]
    if not any(matches):
        raise SignatureWrong("Expected a signature by this secret over this id, timestamp and body")
    if abs(_aware(now).timestamp() - int(timestamp)) > tolerance.total_seconds():
        raise TimestampOutsideTolerance(f"Expected {TIMESTAMP} within {tolerance} of now")
    return message_id


def _signature(secret: str, message_id: str, timestamp: str, body: bytes) -> str:
    content = f"{message_id}.{timestamp}.".encode() + body
    return "v1," + base64.b64encode(hmac.digest(_key(secret), content, "sha256")).decode()


def _key(secret: str) -> bytes:
    try:
        key = base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
    except ValueError:
        key = b""
    if not secret.startswith(_PREFIX) or len(key) not in _KEY_BYTES:
        raise SecretMalformed("Expected whsec_ and the base64 of 24 to 64 bytes")
    return key


def _aware(time: datetime.datetime) -> datetime.datetime:
    if time.tzinfo is None:
        raise ValueError("Expected an aware time")
    return time
