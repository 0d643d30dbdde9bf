"""A signed text of either form, a certificate or a statement of absence: what it says, read strictly and checked."""

from dataclasses import dataclass
from typing import Any

from lethe.proof import absence, certificate, wellformed
from lethe.proof.errors import PreconditionError
from lethe.proof.guarantees import Guarantee

HEADER = {"alg", "kid", "typ"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Signed:
    """`guarantees`: recomputed; of a statement of absence there are none."""

    statement: dict[str, Any]
    guarantees: list[Guarantee]


def read(payload: str | bytes, *, header: dict[str, Any]) -> Signed:
    """Read and check what was signed, under a protected header whose signature holds.

    Raises `PreconditionError` naming what does not hold, `ValueError` where it is no JSON.
    """
    if header.keys() != HEADER:
        raise PreconditionError("header_of_format", f"Expected a protected header of {sorted(HEADER)}")
    document = wellformed.read(payload)
    if isinstance(document, dict) and document.get("format") == absence.FORMAT:
        absence.check(document)
        return Signed(statement=document, guarantees=[])
    return Signed(statement=document, guarantees=certificate.check(document))
