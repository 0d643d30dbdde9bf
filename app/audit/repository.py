"""All SQL about the audit log, and about what is signed of it and of other chains."""

from collections.abc import Collection, Iterator
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.audit.chains import AUDIT, StoredChain
from app.db import rows
from app.db.tables import AuditEntry, Checkpoint, Tenant

_OF_TENANT = sa.bindparam("tenant_id", type_=sa.String)
_LAST = (
    sa.select(AuditEntry.sequence, AuditEntry.hash)
    .where(AuditEntry.tenant_id == _OF_TENANT)
    .order_by(AuditEntry.sequence.desc())
    .limit(1)
)
_BATCH = 1000


def last(session: Session, *, tenant_ids: Collection[str]) -> dict[str, tuple[int, str]]:
    """Sequence and hash of the last entry of each of these tenants that has one."""
    found: dict[str, tuple[int, str]] = {}
    for tenant_id in sorted(tenant_ids):
        for sequence, digest in rows(session, _LAST, {"tenant_id": tenant_id}):
            found[tenant_id] = sequence, digest
    return found


def entries(
    session: Session,
    *,
    tenant_id: str,
    before: int | None,
    limit: int,
    object_id: str | None = None,
    actor: str | None = None,
    action: str | None = None,
) -> list[AuditEntry]:
    """The last `limit` entries of a tenant that precede `before` and are about what is asked, newest first."""
    query = sa.select(AuditEntry).where(AuditEntry.tenant_id == tenant_id)
    if before is not None:
        query = query.where(AuditEntry.sequence < before)
    for column, wanted in (
        (AuditEntry.object_id, object_id),
        (AuditEntry.actor, actor),
        (AuditEntry.action, action),
    ):
        if wanted is not None:
            query = query.where(column == wanted)
    return list(session.scalars(query.order_by(AuditEntry.sequence.desc()).limit(limit)))


def checkpoints(
    session: Session, chain: StoredChain, *, tenant_id: str, before: int | None = None, limit: int
) -> list[Checkpoint]:
    """The last `limit` checkpoints of a chain that precede `before`, newest first."""
    query = sa.select(Checkpoint).where(Checkpoint.tenant_id == tenant_id, Checkpoint.log == chain.name)
    if before is not None:
        query = query.where(Checkpoint.sequence < before)
    return list(session.scalars(query.order_by(Checkpoint.sequence.desc()).limit(limit)))


def checkpoints_after(session: Session, *, number: int, limit: int) -> list[Checkpoint]:
    """The next `limit` checkpoints of all chains of all tenants, in the order in which they were signed."""
    query = sa.select(Checkpoint).where(Checkpoint.number > number)
    return list(session.scalars(query.order_by(Checkpoint.number).limit(limit)))


def checkpoint(session: Session, number: int) -> Checkpoint | None:
    return session.get(Checkpoint, number)


def last_checkpoint(session: Session) -> Checkpoint | None:
    """The one that was signed last, of whichever chain."""
    return session.scalars(sa.select(Checkpoint).order_by(Checkpoint.number.desc()).limit(1)).one_or_none()


def heads(session: Session, chain: StoredChain) -> list[tuple[str, int, int]]:
    """The tenants whose chain has begun, with the sequence of its last row and of its last checkpoint (or 0)."""
    table = chain.table
    head = sa.select(sa.func.max(table.sequence)).where(table.tenant_id == Tenant.id).scalar_subquery()
    of_chain = sa.and_(Checkpoint.tenant_id == Tenant.id, Checkpoint.log == chain.name)
    signed = sa.select(sa.func.max(Checkpoint.sequence)).where(of_chain).scalar_subquery()
    query = sa.select(Tenant.id, head, sa.func.coalesce(signed, 0)).where(head.is_not(None))
    return [(tenant_id, last, signed) for tenant_id, last, signed in session.execute(query)]


def tenant_ids(session: Session) -> list[str]:
    return list(session.scalars(sa.select(Tenant.id).order_by(Tenant.created_at, Tenant.id)))


def rows_of(session: Session, chain: StoredChain, *, tenant_id: str, since: int | None = None) -> Iterator[Any]:
    """The rows of a chain in their order, from `since` on, a few in memory at a time."""
    table = chain.table
    query = sa.select(table).where(table.tenant_id == tenant_id).order_by(table.sequence).limit(_BATCH)
    found = session.scalars(query if since is None else query.where(table.sequence >= since)).all()
    while found:
        yield from found
        if len(found) < _BATCH:
            return
        found = session.scalars(query.where(table.sequence > found[-1].sequence)).all()


def all_entries(session: Session, *, tenant_id: str, since: int | None = None) -> Iterator[AuditEntry]:
    """The entries of a tenant's audit log."""
    return rows_of(session, AUDIT, tenant_id=tenant_id, since=since)


def page_of(session: Session, chain: StoredChain, *, tenant_id: str, since: int, limit: int) -> list[Any]:
    """The next `limit` rows of a chain, from `since` on."""
    table = chain.table
    query = sa.select(table).where(table.tenant_id == tenant_id, table.sequence >= since)
    return list(session.scalars(query.order_by(table.sequence).limit(limit)))


def row(session: Session, chain: StoredChain, *, tenant_id: str, sequence: int) -> Any | None:
    return session.get(chain.table, (tenant_id, sequence))


def last_row(session: Session, chain: StoredChain, *, tenant_id: str) -> Any | None:
    table = chain.table
    query = sa.select(table).where(table.tenant_id == tenant_id).order_by(table.sequence.desc())
    return session.scalars(query.limit(1)).one_or_none()


def all_checkpoints(session: Session, chain: StoredChain, *, tenant_id: str) -> Iterator[Checkpoint]:
    """The checkpoints of a chain in their order, a few in memory at a time."""
    query = sa.select(Checkpoint).where(Checkpoint.tenant_id == tenant_id, Checkpoint.log == chain.name)
    query = query.order_by(Checkpoint.sequence).limit(_BATCH)
    found = session.scalars(query).all()
    while found:
        yield from found
        if len(found) < _BATCH:
            return
        found = session.scalars(query.where(Checkpoint.sequence > found[-1].sequence)).all()
