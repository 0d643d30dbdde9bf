"""Checkpoints: what the installation signs about the heads of a tenant's chains.

Somebody who alters a chain afterwards, and can recompute every hash in it, contradicts its last checkpoint; a
reader who keeps that elsewhere can tell. What is signed is first recomputed from the checkpoint before.
"""

import datetime
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from sqlalchemy.orm import Session

from app import signing, telemetry
from app.audit import repository
from app.audit.chains import AUDIT, LEDGER, StoredChain
from app.db import now
from app.db.tables import Checkpoint
from app.keys import Keys
from lethe.verification.chains import GENESIS, canonical

GROWTH = 1000
"""A chain that has grown by so many rows is signed at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """The last row of a tenant's chain, which was recomputed up to there."""

    chain: StoredChain
    tenant_id: str
    sequence: int
    hash: str


def due(session: Session, *, every_seconds: float) -> list[Head]:
    """The heads that have grown since their last checkpoint, if that is `every_seconds` ago or `GROWTH` rows; of
    ledgers, whenever they have grown.

    A chain that does not follow from its last checkpoint is logged, and not signed again.
    """
    found = []
    for chain, seconds in ((AUDIT, every_seconds), (LEDGER, 0.0)):
        for tenant_id, head, signed in repository.heads(session, chain):
            if head != signed and (head - signed >= GROWTH or _is_old(session, chain, tenant_id, seconds)):
                found += _recomputed(session, chain, tenant_id)
    return found


def checkpoint(session: Session, keys: Keys, heads: Iterable[Head]) -> None:
    """Sign these heads, if nobody has meanwhile."""
    for head in heads:
        last = _last(session, head.chain, head.tenant_id)
        if last is None or last.sequence < head.sequence:
            session.add(sign(keys, head, at=now(session)))


def checkpoint_now(session: Session, keys: Keys, chain: StoredChain, *, tenant_id: str) -> None:
    """Sign the head of a chain as this transaction leaves it."""
    session.flush()
    checkpoint(session, keys, _recomputed(session, chain, tenant_id))


def sign(keys: Keys, head: Head, *, at: datetime.datetime) -> Checkpoint:
    """The checkpoint of a head: a compact JWS (RFC 7515, RFC 9864) of what its chain states.

    Raises `SignatureUnverifiable`.
    """
    row = Checkpoint(
        tenant_id=head.tenant_id, log=head.chain.name, sequence=head.sequence, hash=head.hash, signed_at=at
    )
    row.jws = signing.sign(keys, canonical(head.chain.statement(row)).encode(), kind=head.chain.media_type)
    return row


def _is_old(session: Session, chain: StoredChain, tenant_id: str, every_seconds: float) -> bool:
    last = _last(session, chain, tenant_id)
    return last is None or (now(session) - last.signed_at).total_seconds() >= every_seconds


def _recomputed(session: Session, chain: StoredChain, tenant_id: str) -> list[Head]:
    """The head of a chain, if all of it follows from its last checkpoint; where not, that is logged."""
    last = _last(session, chain, tenant_id)
    since, expected = (last.sequence, last.hash) if last else (1, None)
    sequence, hash_ = since - 1, GENESIS
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
    """`expected`: the hash that was signed, for the first row that is looked at."""
    linked = row.previous_hash == previous if expected is None else row.hash == expected
    return bool(linked and row.hash == chain.hash_of(row))


def _last(session: Session, chain: StoredChain, tenant_id: str) -> Checkpoint | None:
    return next(iter(repository.checkpoints(session, chain, tenant_id=tenant_id, limit=1)), None)
