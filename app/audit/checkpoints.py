"""Checkpoints: what the installation signs about the head of a tenant's log.

Who alters the log afterwards, and can recompute every hash in it, contradicts its last checkpoint; and whoever keeps
that elsewhere can tell. What is signed is first recomputed from the checkpoint before.
"""

import datetime
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from joserfc import jws
from joserfc.errors import JoseError
from joserfc.jwk import KeySet
from sqlalchemy.orm import Session

from app import signing, telemetry
from app.audit import repository
from app.audit.service import GENESIS, entry_hash
from app.db import now
from app.db.tables import AuditCheckpoint, AuditEntry
from app.errors import AuditCorrupt
from app.keys import Keys

_TYPE = "lethe-audit-checkpoint+jws"
_FORMAT = "lethe-audit-checkpoint/1"
GROWTH = 1000
"""A log that has grown by so many entries is signed at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """The last entry of a tenant's log, which was recomputed up to there."""

    tenant_id: str
    sequence: int
    hash: str


def due(session: Session, *, every_seconds: float) -> list[Head]:
    """The heads that have grown since their last checkpoint, if that is `every_seconds` ago or `GROWTH` entries.

    A log that does not follow from its last checkpoint is logged, and not signed again.
    """
    found = []
    for tenant_id, head, signed in repository.heads(session):
        if head == signed or not (head - signed >= GROWTH or _is_old(session, tenant_id, signed, every_seconds)):
            continue
        try:
            found.append(_recomputed(session, tenant_id))
        except AuditCorrupt:
            telemetry.logger().error("audit.log_corrupt", tenant_id=tenant_id)
    return found


def checkpoint(session: Session, keys: Keys, heads: Iterable[Head]) -> None:
    """Sign these heads, if nobody has meanwhile."""
    for head in heads:
        if _last(session, head.tenant_id, head.sequence) is None:
            session.add(sign(keys, head, at=now(session)))


def sign(keys: Keys, head: Head, *, at: datetime.datetime) -> AuditCheckpoint:
    """The checkpoint of a head: a compact JWS (RFC 7515, RFC 9864) of what `statement` says.

    Raises `SignatureUnverifiable`.
    """
    row = AuditCheckpoint(tenant_id=head.tenant_id, sequence=head.sequence, hash=head.hash, signed_at=at)
    payload = json.dumps(statement(row), sort_keys=True, separators=(",", ":")).encode()
    row.jws = signing.sign(keys, payload, kind=_TYPE)
    return row


def statement(row: AuditCheckpoint) -> dict[str, Any]:
    """What is signed of a checkpoint."""
    return {
        "format": _FORMAT,
        "tenant_id": row.tenant_id,
        "sequence": row.sequence,
        "hash": row.hash,
        "signed_at": row.signed_at.astimezone(datetime.UTC).isoformat(),
    }


def kept(compact_jws: str) -> AuditCheckpoint:
    """A checkpoint that somebody kept elsewhere, from its JWS, which is not verified. Raises `AuditCorrupt`."""
    try:
        said = json.loads(jws.extract_compact(compact_jws.strip().encode()).payload)
        return AuditCheckpoint(
            tenant_id=str(said["tenant_id"]),
            sequence=int(said["sequence"]),
            hash=str(said["hash"]),
            jws=compact_jws.strip(),
            signed_at=datetime.datetime.fromisoformat(said["signed_at"]),
        )
    except (JoseError, ValueError, KeyError, TypeError) as error:
        raise AuditCorrupt("The file holds no checkpoint: a compact JWS.") from error


def is_signed(row: AuditCheckpoint, public_keys: KeySet) -> bool:
    """Whether one of these keys signed exactly this checkpoint, as a checkpoint."""
    try:
        signed = jws.deserialize_compact(row.jws, public_keys, algorithms=[signing.ALGORITHM])
        payload = json.loads(signed.payload)
    except (JoseError, ValueError, KeyError, TypeError):
        return False
    return bool(signed.headers().get("typ") == _TYPE and payload == statement(row))


def _is_old(session: Session, tenant_id: str, signed: int, every_seconds: float) -> bool:
    last = _last(session, tenant_id, signed)
    return last is None or (now(session) - last.signed_at).total_seconds() >= every_seconds


def _recomputed(session: Session, tenant_id: str) -> Head:
    """Raises `AuditCorrupt` unless the log follows from its last checkpoint."""
    last = _last(session, tenant_id, 0)
    since, expected = (last.sequence, last.hash) if last else (1, None)
    sequence, hash_ = since - 1, GENESIS
    for entry in repository.all_entries(session, tenant_id=tenant_id, since=since):
        sequence += 1
        if entry.sequence != sequence or not _follows(entry, hash_, expected):
            raise AuditCorrupt(f"Tenant {tenant_id}, audit entry {sequence}: it is not what was recorded.")
        hash_, expected = entry.hash, None
    return Head(tenant_id=tenant_id, sequence=sequence, hash=hash_)


def _follows(entry: AuditEntry, previous: str, expected: str | None) -> bool:
    """`expected`: the hash that was signed, for the first entry that is looked at."""
    linked = entry.previous_hash == previous if expected is None else entry.hash == expected
    return linked and entry.hash == entry_hash(entry)


def _last(session: Session, tenant_id: str, at_least: int) -> AuditCheckpoint | None:
    found = repository.checkpoints(session, tenant_id=tenant_id, before=None, limit=1)
    return found[0] if found and found[0].sequence >= at_least else None
