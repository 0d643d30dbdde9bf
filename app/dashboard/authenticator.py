"""The picture from which an authenticator app reads a secret."""

from dataclasses import dataclass, field

import segno
from markupsafe import Markup

from app.access import codes


@dataclass(frozen=True, slots=True, kw_only=True)
class Enrolment:
    """A secret to be enrolled; it comes back with the form, and is stored once a code shows that an app has it."""

    secret: str = field(repr=False)
    address: str = field(repr=False)

    @property
    def picture(self) -> Markup:
        """A QR code of the address (SVG)."""
        found = segno.make(self.address, error="m")
        return Markup(found.svg_inline(border=4, omitsize=True, dark="#000", light="#fff"))  # noqa: S704  ours, of base32

    @property
    def spelled(self) -> str:
        """The secret in groups of four, for an app that is typed into."""
        return " ".join(self.secret[start : start + 4] for start in range(0, len(self.secret), 4))


def enrolment(email: str, secret: str = "") -> Enrolment:
    """A fresh secret for this person; or that of a form which is shown again."""
    secret = secret if codes.is_secret(secret) else codes.new_secret()
    return Enrolment(secret=secret, address=codes.address(secret, email=email))
