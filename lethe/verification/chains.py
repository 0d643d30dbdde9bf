"""Hash chains: rows numbered without gaps, each containing the hash of its predecessor, with signed heads.

Each tenant has two: the chain over its models' ledgers, and its audit log. The same code signs and verifies both.
"""

import datetime
import hashlib
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

from joserfc import jws
from joserfc.errors import JoseError
from joserfc.jwk import KeySet

from lethe.contract.problems import LedgerCorrupt, Problem
from lethe.proof import wellformed
from lethe.verification.certificates import signed_payload

GENESIS = "0" * 64
"""Predecessor hash in a chain's first row."""
_PARTS = {"format", "tenant_id", "sequence", "hash", "signed_at"}


def canonical(document: dict[str, Any]) -> str:
    """Return JSON with sorted keys and no spaces, so that equal documents have equal bytes. NaN is refused."""
    return json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False)


def link_hash(previous_hash: str, body: str) -> str:
    """Return the SHA-256 (hex) of the predecessor's hash and the stored body."""
    return hashlib.sha256(f"{previous_hash}\n{body}".encode()).hexdigest()


class SignedHead(Protocol):
    """Statement that a chain contained a row with this hash, and the statement's compact JWS."""

    @property
    def tenant_id(self) -> str: ...
    @property
    def sequence(self) -> int: ...
    @property
    def hash(self) -> str: ...
    @property
    def signed_at(self) -> datetime.datetime: ...
    @property
    def jws(self) -> str: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptHead:
    """Signed head kept outside the installation, against which a chain is verified."""

    tenant_id: str
    sequence: int
    hash: str
    signed_at: datetime.datetime
    jws: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """Result of verifying a chain: the numbers of rows and signed heads, and the last row covered by a signed head."""

    entries: int
    checkpoints: int
    signed: int
    head: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HashChain:
    """Kind of hash chain. In messages, `item` is the word for a row and `head` the word for a signed head, a statement
    with `media_type` and `format`. `corrupt` is the error raised for an invalid chain."""

    name: str
    item: str
    head: str
    media_type: str
    format: str
    corrupt: type[Problem]
    hash_of: Callable[[Any], str] = field(repr=False)

    def fault(self, tenant_id: str, place: str, reason: str) -> Problem:
        return self.corrupt(f"Tenant {tenant_id}, {place}: {reason}.")

    def statement(self, head: SignedHead) -> dict[str, Any]:
        """Return the statement to sign for a head."""
        return {
            "format": self.format,
            "tenant_id": head.tenant_id,
            "sequence": head.sequence,
            "hash": head.hash,
            "signed_at": head.signed_at.astimezone(datetime.UTC).isoformat(),
        }

    def is_signed(self, head: SignedHead, public_keys: KeySet) -> bool:
        """Return True if one of `public_keys` signed exactly this head, and as a head of this kind of chain."""
        payload = signed_payload(head.jws, public_keys, kind=self.media_type)
        try:
            return payload is not None and wellformed.read(payload) == self.statement(head)
        except ValueError:
            return False

    def kept(self, text: str) -> KeptHead:
        """Parse a head from its JWS, or from JSON with a `jws`, without verifying the signature. Raises `corrupt`."""
        try:
            compact = text.strip()
            if compact.startswith("{"):
                compact = str(wellformed.read(compact)["jws"])
            extracted = jws.extract_compact(compact.encode())
            statement = wellformed.read(extracted.payload)
            if extracted.headers().get("typ") != self.media_type or statement.keys() != _PARTS:
                raise ValueError("It is something else.")
            sequence = statement["sequence"]
            if type(sequence) is not int or sequence < 1:
                raise ValueError("It is of no row.")
            return KeptHead(
                tenant_id=str(statement["tenant_id"]),
                sequence=sequence,
                hash=str(statement["hash"]),
                signed_at=datetime.datetime.fromisoformat(statement["signed_at"]),
                jws=compact,
            )
        except (JoseError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise self.corrupt(f"The file holds no {self.head}: a compact JWS of type {self.media_type}.") from error

    def verify(
        self, tenant_id: str, rows: Iterable[Any], signed: Iterable[SignedHead], public_keys: KeySet
    ) -> Verified:
        """Verify a tenant's `rows` against the `signed` heads, both in order, in constant memory.

        Raises `corrupt`, naming the first faulty row or head and what is wrong with it.
        """
        sequence, hash_, num_signed, last_signed = 0, GENESIS, 0, 0
        remaining = iter(signed)
        head = next(remaining, None)
        for row in rows:
            sequence, hash_ = sequence + 1, self._linked(tenant_id, row, sequence=sequence + 1, previous=hash_)
            while head is not None and head.sequence == sequence:
                self._confirm(tenant_id, head, hash_=hash_, public_keys=public_keys)
                num_signed, last_signed = num_signed + 1, sequence
                head = next(remaining, None)
        if head is not None:
            reason = f"it is missing, and entry {head.sequence} was signed"
            raise self.fault(tenant_id, f"{self.item} {sequence + 1}", reason)
        return Verified(entries=sequence, checkpoints=num_signed, signed=last_signed, head=hash_)

    def _linked(self, tenant_id: str, row: Any, *, sequence: int, previous: str) -> str:
        place = f"{self.item} {sequence}"
        if row.sequence != sequence:
            raise self.fault(tenant_id, place, "it is missing")
        if row.tenant_id != tenant_id:
            raise self.fault(tenant_id, place, "it is of another tenant")
        if row.previous_hash != previous:
            raise self.fault(tenant_id, place, "it does not follow its predecessor")
        if row.hash != self.hash_of(row):
            raise self.fault(tenant_id, place, "it is not what was hashed")
        return str(row.hash)

    def _confirm(self, tenant_id: str, head: SignedHead, *, hash_: str, public_keys: KeySet) -> None:
        if head.tenant_id != tenant_id or not self.is_signed(head, public_keys):
            place = f"{self.name} checkpoint {head.sequence}"
            raise self.fault(tenant_id, place, "it was not signed with any of the given keys")
        if head.hash != hash_:
            raise self.fault(tenant_id, f"{self.item} {head.sequence}", "it is not what was signed")


LEDGER = HashChain(
    name="ledger",
    item="ledger link",
    head="head of a ledger",
    media_type="lethe-ledger-head+jws",
    format="lethe-ledger-head/1",
    corrupt=LedgerCorrupt,
    hash_of=lambda link: link_hash(link.previous_hash, link.body),
)
