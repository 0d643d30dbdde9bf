"""Audit entries: each action is recorded in the transaction that performs it."""

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy.orm import Session

from app.audit import checkpoints, repository
from app.db import Actor, actor, bulk, now, tables
from lethe.verification.chains import GENESIS

SERVICE = "lethe"
"""Actor recorded for the service's own periodic work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deed:
    """Action to be recorded. `action` has the form `thing.verb`; `detail` contains only ids, numbers and values from
    fixed sets, never personal data."""

    tenant_id: str
    actor: str
    action: str
    object_id: str
    detail: Mapping[str, Any] = field(default_factory=dict)


def actor_of(session: Session) -> str:
    """Return the name of the session's actor, or `SERVICE` if the session has no actor."""
    by: Actor | None = session.info.get("actor")
    return by.name if by else SERVICE


def record(session: Session, action: str, object_id: str, **detail: Any) -> None:
    """Record an action of the session's actor."""
    by = actor(session)
    record_all(
        session, [Deed(tenant_id=by.tenant_id, actor=by.name, action=action, object_id=object_id, detail=detail)]
    )


def record_all(session: Session, deeds: Sequence[Deed], *, at: datetime.datetime | None = None) -> None:
    """Append an entry for each deed to the chain of the deed's tenant. Writers hold the write lock, so no two entries
    have the same predecessor."""
    if not deeds:
        return
    at = at or now(session)
    last = heads(session)
    unknown = {deed.tenant_id for deed in deeds} - last.keys()
    last |= repository.last(session, tenant_ids=unknown)
    entries = []
    for deed in deeds:
        sequence, previous = last.get(deed.tenant_id, (0, GENESIS))
        entry = {
            "tenant_id": deed.tenant_id,
            "sequence": sequence + 1,
            "at": at,
            "actor": deed.actor,
            "action": deed.action,
            "object_id": deed.object_id,
            "detail": dict(deed.detail),
        }
        digest = checkpoints.hash_of_entry(previous, entry)
        entries.append(entry | {"previous_hash": previous, "hash": digest})
        last[deed.tenant_id] = sequence + 1, digest
    bulk.store(session, tables.AuditEntry, entries)


def heads(session: Session) -> dict[str, tuple[int, str]]:
    """Return the sequence and hash of the last entry that this transaction wrote or read for each tenant. The stored
    values are discarded at each savepoint, because it may be rolled back."""
    if session.in_nested_transaction():
        session.info.pop("audit.heads", None)
        return {}
    known: dict[str, tuple[int, str]] = session.info.setdefault("audit.heads", {})
    return known
