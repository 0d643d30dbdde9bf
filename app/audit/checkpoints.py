"""Signed checkpoints of a tenant's two hash chains: its audit log, and the chain over the ledgers of its models.

`lethe.verification.chains` verifies both chains.
"""

import datetime
from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any

from sqlalchemy.orm import Session

from app import db, errors, signing, telemetry
from app.audit import repository
from app.db.tables import AuditEntry, Checkpoint, LedgerLink
from app.keys import Keys
from lethe.verification import chains

_HASHED = ("tenant_id", "sequence", "at", "actor", "action", "object_id", "detail")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredChain(chains.HashChain):
    """Hash chain together with the table that stores its rows."""

    table: Any


def entry_hash(entry: AuditEntry) -> str:
    """Return the SHA-256 (hex) over the predecessor's hash and the entry as canonical JSON."""
    return hash_of_entry(entry.previous_hash, {name: getattr(entry, name) for name in _HASHED})


def hash_of_entry(previous_hash: str, entry: dict[str, Any]) -> str:
    body = entry | {"at": entry["at"].astimezone(datetime.UTC).isoformat()}
    return chains.link_hash(previous_hash, chains.canonical(body))


AUDIT = StoredChain(
    name="audit",
    item="audit entry",
    head="checkpoint",
    media_type="lethe-audit-checkpoint+jws",
    format="lethe-audit-checkpoint/1",
    corrupt=errors.AuditCorrupt,
    hash_of=entry_hash,
    table=AuditEntry,
)
LEDGER = StoredChain(
    **{part.name: getattr(chains.LEDGER, part.name) for part in fields(chains.LEDGER)}, table=LedgerLink
)
CHAINS = (AUDIT, LEDGER)


GROWTH = 1000
"""Number of new rows after which a chain's head is signed immediately."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """Last row of a tenant's chain. The chain's hashes have been recomputed up to this row."""

    chain: StoredChain
    tenant_id: str
    sequence: int
    hash: str


def due(session: Session, *, every_seconds: float) -> list[Head]:
    """Return the heads that need a signature: those of audit logs whose last checkpoint is `every_seconds` old or
    `GROWTH` rows behind, and those of all ledgers that have grown. A chain that does not follow from its last
    checkpoint is logged and not signed again."""
    heads = []
    for chain, seconds in ((AUDIT, every_seconds), (LEDGER, 0.0)):
        for tenant_id, head, signed in repository.heads(session, chain):
            if head != signed and (head - signed >= GROWTH or _is_old(session, chain, tenant_id, seconds)):
                heads += _recomputed(session, chain, tenant_id)
    return heads


def checkpoint(session: Session, keys: Keys, heads: Iterable[Head]) -> None:
    """Sign the given heads, unless another process has already signed them."""
    for head in heads:
        last = _last(session, head.chain, head.tenant_id)
        if last is None or last.sequence < head.sequence:
            session.add(sign(keys, head, at=db.now(session)))


def checkpoint_now(session: Session, keys: Keys, chain: StoredChain, *, tenant_id: str) -> None:
    """Sign the head of a chain as this transaction leaves it."""
    checkpoint(session, keys, heads_now(session, chain, tenant_id=tenant_id))


def heads_now(session: Session, chain: StoredChain, *, tenant_id: str) -> list[Head]:
    """Return the chain's head as this transaction leaves it, in a list to sign; empty if the chain is damaged."""
    session.flush()
    return _recomputed(session, chain, tenant_id)


def sign(keys: Keys, head: Head, *, at: datetime.datetime) -> Checkpoint:
    """Sign a head and return its checkpoint: a compact JWS (RFC 7515, RFC 9864) of the chain's statement. Raises
    `SignatureUnverifiable`."""
    row = Checkpoint(
        tenant_id=head.tenant_id, log=head.chain.name, sequence=head.sequence, hash=head.hash, signed_at=at
    )
    row.jws = signing.sign(keys, chains.canonical(head.chain.statement(row)).encode(), kind=head.chain.media_type)
    return row


def _is_old(session: Session, chain: StoredChain, tenant_id: str, every_seconds: float) -> bool:
    last = _last(session, chain, tenant_id)
    return last is None or (db.now(session) - last.signed_at).total_seconds() >= every_seconds


def _recomputed(session: Session, chain: StoredChain, tenant_id: str) -> list[Head]:
    """Return a list with the head of a chain. If a row does not follow from the last checkpoint, log this and return an
    empty list."""
    last = _last(session, chain, tenant_id)
    since, expected = (last.sequence, last.hash) if last else (1, None)
    sequence, hash_ = since - 1, chains.GENESIS
    for row in repository.rows_of(session, chain, tenant_id=tenant_id, since=since):
        sequence += 1
        if row.sequence != sequence or not _follows(chain, row, hash_, expected):
            telemetry.logger().error("audit.log_corrupt", tenant_id=tenant_id, log=chain.name, sequence=sequence)
            return []
        hash_, expected = row.hash, None
    if last is not None and sequence < last.sequence:
        telemetry.logger().error("audit.log_corrupt", tenant_id=tenant_id, log=chain.name, sequence=sequence)
        return []
    return [Head(chain=chain, tenant_id=tenant_id, sequence=sequence, hash=hash_)] if sequence else []


def _follows(chain: StoredChain, row: Any, previous: str, expected: str | None) -> bool:
    """Return True if `row` has the right hash and predecessor. For the first row checked, `expected` is its signed
    hash."""
    linked = row.previous_hash == previous if expected is None else row.hash == expected
    return bool(linked and row.hash == chain.hash_of(row))


def _last(session: Session, chain: StoredChain, tenant_id: str) -> Checkpoint | None:
    return next(iter(repository.checkpoints(session, chain, tenant_id=tenant_id, limit=1)), None)
