"""People's credentials: passwords, and codes from authenticator apps.

Passwords are hashed with argon2id and have a minimum length but no composition rules (NIST SP 800-63B, 3.1.1). Codes
(TOTP, RFC 6238) have six digits, change every 30 seconds and are accepted once.
"""

import datetime
import functools
import hmac
import re
from dataclasses import dataclass, field

import pyotp
import segno
from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError
from markupsafe import Markup

from lethe.contract.problems import FieldError, InputInvalid

SECONDS = 30
MAX_WRONG_CODES = 20
"""Number of wrong codes since the last correct one, each after the correct password, that locks a user until
`COUNTED_FOR` has elapsed."""
COUNTED_FOR = datetime.timedelta(hours=1)
"""Time for which wrong codes are counted, starting with the first one."""
_WINDOW = 1
"""Maximum number of time steps by which a clock can be fast or slow."""
_SECRET = re.compile(r"[A-Z2-7]{32}")


def new_secret() -> str:
    """Return a new secret for an authenticator app: 160 random bits in base32."""
    return pyotp.random_base32(32)


def is_secret(text: str) -> bool:
    return _SECRET.fullmatch(text) is not None


def address(secret: str, *, email: str, issuer: str = "Lethe") -> str:
    """Return the secret's URI, to be shown as a QR code for authenticator apps."""
    return pyotp.TOTP(secret).provisioning_uri(name=email, issuer_name=issuer)


def step_of(secret: str, code: str, *, at: datetime.datetime, after: int | None = None) -> int | None:
    """Return the time step of a code within the window around `at`; None if the code is wrong or its step is not later
    than `after`, the step of the last accepted code."""
    digits = re.sub(r"\s", "", code)
    present = int(at.timestamp()) // SECONDS
    totp = pyotp.TOTP(secret)
    for step in range(present - _WINDOW, present + _WINDOW + 1):
        is_match = hmac.compare_digest(totp.generate_otp(step).encode(), digits.encode(errors="replace"))
        # RFC 6238, 5.2: a code must not be accepted a second time.
        if is_match and (after is None or step > after):
            return step
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Enrolment:
    """Secret to be enrolled. The form sends it back, and it is stored once a code proves that an app has it."""

    secret: str = field(repr=False)
    address: str = field(repr=False)

    @property
    def picture(self) -> Markup:
        """QR code of the address (SVG)."""
        code = segno.make(self.address, error="m")
        # The SVG is made here, from base32 and an address.
        return Markup(code.svg_inline(border=4, omitsize=True, dark="#000", light="#fff"))  # noqa: S704

    @property
    def spelled(self) -> str:
        """Secret in groups of four characters, for typing into an app."""
        return " ".join(self.secret[start : start + 4] for start in range(0, len(self.secret), 4))


def enrolment(email: str, secret: str = "") -> Enrolment:
    """Return an enrolment with a new secret, or with `secret` if a form is shown again."""
    secret = secret if is_secret(secret) else new_secret()
    return Enrolment(secret=secret, address=address(secret, email=email))


MIN_LENGTH, MAX_LENGTH = 12, 1024
"""Minimum and maximum length in characters."""


def hash_of(password: str) -> str:
    """Hash a new password (slow by design). Raises `InputInvalid` if the password is too short or too long, or cannot
    be encoded."""
    fault = None
    if not MIN_LENGTH <= len(password) <= MAX_LENGTH:
        fault = (
            f"write {MIN_LENGTH} to {MAX_LENGTH:,} characters: several words are easier to remember than a few signs"
        )
    elif not _encodes(password):
        fault = "this contains characters that are not allowed"
    if fault:
        raise InputInvalid("The password was not set.", [FieldError("password", fault)])
    return _hasher().hash(password)


def matches(password: str, password_hash: str | None) -> bool:
    """Return True if the password has this hash. The check takes equally long without a hash, to hide who has one."""
    is_possible = len(password) <= MAX_LENGTH and _encodes(password)
    try:
        _hasher().verify(password_hash or _dummy(), password if is_possible else "")
    except (VerificationError, InvalidHashError):
        return False
    return password_hash is not None and is_possible


def is_outdated(password_hash: str) -> bool:
    """Return True if the hash uses outdated parameters, so that it should be replaced at the next login."""
    return _hasher().check_needs_rehash(password_hash)


def _encodes(password: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in password)


@functools.cache
def _hasher() -> PasswordHasher:
    return PasswordHasher()


@functools.cache
def _dummy() -> str:
    """Return a hash that no valid password matches."""
    return _hasher().hash("lethe: no password")
