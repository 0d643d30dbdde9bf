"""Codes of authenticator apps (TOTP, RFC 6238): six digits that change every 30 seconds and are accepted once; and the
enrolment of an app."""

import datetime
import hmac
import re
from dataclasses import dataclass, field

import pyotp
import segno
from markupsafe import Markup

SECONDS = 30
MAX_WRONG_CODES = 20
"""Wrong codes, after the right password and since the last right code, that lock a person until `COUNTED_FOR` is
over."""
COUNTED_FOR = datetime.timedelta(hours=1)
"""Time for which wrong codes count, from the first of them."""
_WINDOW = 1
"""Maximum number of time steps by which a clock may be fast or slow."""
_SECRET = re.compile(r"[A-Z2-7]{32}")


def new_secret() -> str:
    """Return a fresh secret, 160 random bits in base32."""
    return pyotp.random_base32(32)


def is_secret(text: str) -> bool:
    return _SECRET.fullmatch(text) is not None


def address(secret: str, *, email: str, issuer: str = "Lethe") -> str:
    """Return the URI of the secret for the QR code that authenticator apps read."""
    return pyotp.TOTP(secret).provisioning_uri(name=email, issuer_name=issuer)


def step_of(secret: str, code: str, *, at: datetime.datetime, after: int | None = None) -> int | None:
    """Return the time step of a code within the window around `at`; None if the code is wrong or its step is not later
    than `after`, the step of the last accepted code."""
    digits = re.sub(r"\s", "", code)
    present = int(at.timestamp()) // SECONDS
    totp = pyotp.TOTP(secret)
    for step in range(present - _WINDOW, present + _WINDOW + 1):
        is_match = hmac.compare_digest(totp.generate_otp(step).encode(), digits.encode(errors="replace"))
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
    """Return the enrolment of a fresh secret, or of `secret` if a form is shown again."""
    secret = secret if is_secret(secret) else new_secret()
    return Enrolment(secret=secret, address=address(secret, email=email))
