"""Codes of authenticator apps (TOTP, RFC 6238): six digits that change every 30 seconds; each is accepted once."""

import datetime
import hmac
import re

import pyotp

SECONDS = 30
MOST_WRONG = 20
"""In `COUNTED_FOR` and since the last right one, after the right password: then nobody gets in until that is over."""
COUNTED_FOR = datetime.timedelta(hours=1)
"""Time for which wrong codes count, from the first of them."""
_WINDOW = 1
"""Steps by which a clock may differ, before and after."""
_SECRET = re.compile(r"[A-Z2-7]{32}")


def new_secret() -> str:
    """A fresh secret, 160 random bits in base32."""
    return pyotp.random_base32(32)


def is_secret(text: str) -> bool:
    return _SECRET.fullmatch(text) is not None


def address(secret: str, *, email: str, issuer: str = "Lethe") -> str:
    """The address that an authenticator app reads the secret from, as a QR code."""
    return pyotp.TOTP(secret).provisioning_uri(name=email, issuer_name=issuer)


def step_of(secret: str, code: str, *, at: datetime.datetime, after: int | None = None) -> int | None:
    """The time step that a code is of, about now; None if it is of none, or of one that is not `after` the last that
    was accepted."""
    given = re.sub(r"\s", "", code)
    present = int(at.timestamp()) // SECONDS
    totp = pyotp.TOTP(secret)
    for step in range(present - _WINDOW, present + _WINDOW + 1):
        is_it = hmac.compare_digest(totp.generate_otp(step).encode(), given.encode(errors="replace"))
        if is_it and (after is None or step > after):
            return step
    return None
