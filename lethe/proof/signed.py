"""Parsing and checking of signed statements: certificates and statements of absence."""

from dataclasses import dataclass
from typing import Any

from lethe.proof import absence, certificate, errors, wellformed
from lethe.proof.guarantees import Guarantee

HEADER = {"alg", "kid", "typ"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Signed:
    """Checked statement and its recomputed guarantees. A statement of absence has no guarantees."""

    statement: dict[str, Any]
    guarantees: list[Guarantee]


def read(payload: str | bytes, *, header: dict[str, Any]) -> Signed:
    """Parse and check a signed payload. The caller has already verified the signature over `header` and `payload`.

    Raises:
        PreconditionError: if the header or the statement violates its format; `name` is the violated condition.
        ValueError: if the payload is not JSON.
    """
    if header.keys() != HEADER:
        raise errors.PreconditionError("header_of_format", f"Expected a protected header of {sorted(HEADER)}")
    document = wellformed.read(payload)
    if isinstance(document, dict) and document.get("format") == absence.FORMAT:
        absence.check(document)
        return Signed(statement=document, guarantees=[])
    return Signed(statement=document, guarantees=certificate.check(document))
