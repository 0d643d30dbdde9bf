"""The chains of a tenant that the installation signs: its audit log, and the one over the ledgers of its models.

Both are rows that are numbered without gaps, each hashing its predecessor. What is signed and verified about the head
of one is signed and verified about the other by the same code.
"""

import datetime
import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from app.db.tables import AuditEntry, LedgerLink
from app.errors import AuditCorrupt
from lethe.contract.problems import LedgerCorrupt

GENESIS = "0" * 64
"""The predecessor that the first row of a chain hashes."""
_HASHED = ("tenant_id", "sequence", "at", "actor", "action", "object_id", "detail")


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """`name`: in the database; `item`: what a row of it is called; `media_type`, `format`: of what is signed about it.
    `corrupt`: what one that does not hold raises."""

    name: str
    item: str
    table: Any
    media_type: str
    format: str
    corrupt: type[AuditCorrupt] | type[LedgerCorrupt]
    hash_of: Callable[[Any], str] = field(repr=False)

    def fault(self, tenant_id: str, place: str, what: str) -> AuditCorrupt | LedgerCorrupt:
        return self.corrupt(f"Tenant {tenant_id}, {place}: {what}.")


def entry_hash(entry: AuditEntry) -> str:
    """SHA-256 (hex) over the predecessor's hash and the entry as canonical JSON."""
    return hash_of_entry(entry.previous_hash, {name: getattr(entry, name) for name in _HASHED})


def hash_of_entry(previous_hash: str, entry: dict[str, Any]) -> str:
    body = entry | {"at": entry["at"].astimezone(datetime.UTC).isoformat()}
    return link_hash(previous_hash, canonical(body))


def canonical(document: dict[str, Any]) -> str:
    """JSON with sorted keys and no spaces, NaN refused: the same bytes for the same facts."""
    return json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False)


def link_hash(previous_hash: str, body: str) -> str:
    """SHA-256 (hex) over the predecessor's hash and the body as it is stored."""
    return hashlib.sha256(f"{previous_hash}\n{body}".encode()).hexdigest()


AUDIT = Chain(
    name="audit",
    item="audit entry",
    table=AuditEntry,
    media_type="lethe-audit-checkpoint+jws",
    format="lethe-audit-checkpoint/1",
    corrupt=AuditCorrupt,
    hash_of=entry_hash,
)
LEDGER = Chain(
    name="ledger",
    item="ledger link",
    table=LedgerLink,
    media_type="lethe-ledger-head+jws",
    format="lethe-ledger-head/1",
    corrupt=LedgerCorrupt,
    hash_of=lambda link: link_hash(link.previous_hash, link.body),
)
CHAINS = (AUDIT, LEDGER)
