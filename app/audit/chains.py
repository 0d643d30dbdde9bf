"""The chains of a tenant that the installation stores and signs: its audit log, and the one over the ledgers of its
models. They are verified by `lethe.verification.chains`."""

import datetime
from dataclasses import dataclass, fields
from typing import Any

from app.db.tables import AuditEntry, LedgerLink
from app.errors import AuditCorrupt
from lethe.verification import chains
from lethe.verification.chains import canonical, link_hash

_HASHED = ("tenant_id", "sequence", "at", "actor", "action", "object_id", "detail")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredChain(chains.HashChain):
    """A chain, and the table of its rows."""

    table: Any


def entry_hash(entry: AuditEntry) -> str:
    """SHA-256 (hex) over the predecessor's hash and the entry as canonical JSON."""
    return hash_of_entry(entry.previous_hash, {name: getattr(entry, name) for name in _HASHED})


def hash_of_entry(previous_hash: str, entry: dict[str, Any]) -> str:
    body = entry | {"at": entry["at"].astimezone(datetime.UTC).isoformat()}
    return link_hash(previous_hash, canonical(body))


AUDIT = StoredChain(
    name="audit",
    item="audit entry",
    head="checkpoint",
    media_type="lethe-audit-checkpoint+jws",
    format="lethe-audit-checkpoint/1",
    corrupt=AuditCorrupt,
    hash_of=entry_hash,
    table=AuditEntry,
)
LEDGER = StoredChain(
    **{part.name: getattr(chains.LEDGER, part.name) for part in fields(chains.LEDGER)},
    table=LedgerLink,
)
CHAINS = (AUDIT, LEDGER)
