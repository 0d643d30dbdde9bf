"""Ledger entries of an earlier format: their hashes are verified, and their numbers, which this release does not know
how to recompute, are believed of no entry but those for which the upgrade vouched.

At the upgrade one link more went to the chain over a tenant's models. It says, signed, which link it follows, and so
which entries were there: somebody who adds one that claims to be as old adds it after that link, or contradicts the
signature.
"""

import contextlib
from collections.abc import Iterable
from typing import Any, Protocol

from joserfc.jwk import KeySet

from lethe.proof import wellformed
from lethe.verification.chains import GENESIS, LEDGER, canonical
from lethe.verification.signatures import signed_payload

FORMAT = "lethe-ledger/1"
KIND = "upgraded"
"""The kind of the link."""
MEDIA_TYPE = "lethe-ledger-upgrade+jws"

Vouched = frozenset[tuple[str, int, str]]
"""Model, sequence and hash of each entry that was there at the upgrade."""


class Link(Protocol):
    """A row of the chain over a tenant's models."""

    @property
    def tenant_id(self) -> str: ...
    @property
    def sequence(self) -> int: ...
    @property
    def body(self) -> str: ...
    @property
    def previous_hash(self) -> str: ...
    @property
    def hash(self) -> str: ...


def vouched(links: Iterable[Link], public_keys: KeySet) -> Vouched:
    """The entries that the links of a tenant name before the one that vouches for them; none where none does."""
    found, previous = set[tuple[str, int, str]](), GENESIS
    with contextlib.suppress(ValueError, LookupError, TypeError, AttributeError):  # of what is no chain nothing is
        for link in links:
            said = wellformed.read(link.body)
            if link.previous_hash != previous or link.hash != LEDGER.hash_of(link):
                break
            if said["kind"] == KIND:
                return frozenset(found) if is_signed(link, said, public_keys) else frozenset()
            if said["kind"] == "entry":
                found.add((said["model_id"], said["entry"], said["hash"]))
            previous = link.hash
    return frozenset()


def is_signed(link: Link, said: dict[str, Any], public_keys: KeySet) -> bool:
    """Return True if one of these keys signed at an upgrade that this link, which says so, comes where it does."""
    payload = signed_payload(str(said.get("jws")), public_keys, kind=MEDIA_TYPE)
    expected = statement(tenant_id=link.tenant_id, sequence=link.sequence, previous_hash=link.previous_hash)
    return payload == canonical(expected).encode()


def statement(*, tenant_id: str, sequence: int, previous_hash: str) -> dict[str, Any]:
    """The statement that is signed at an upgrade."""
    place = {"tenant_id": tenant_id, "sequence": sequence, "previous_hash": previous_hash}
    return place | {"format": "lethe-ledger-upgrade/1", "entries_of": FORMAT}
