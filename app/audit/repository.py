"""All SQL about the audit log."""

from collections.abc import Collection, Iterator

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.db import rows
from app.db.tables import AuditCheckpoint, AuditEntry, Tenant

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


def checkpoints(session: Session, *, tenant_id: str, before: int | None, limit: int) -> list[AuditCheckpoint]:
    """The last `limit` checkpoints of a tenant that precede `before`, newest first."""
    query = sa.select(AuditCheckpoint).where(AuditCheckpoint.tenant_id == tenant_id)
    if before is not None:
        query = query.where(AuditCheckpoint.sequence < before)
    return list(session.scalars(query.order_by(AuditCheckpoint.sequence.desc()).limit(limit)))


def heads(session: Session) -> list[tuple[str, int, int]]:
    """Of each tenant that has entries, the sequence of its last entry and of its last checkpoint (or 0)."""
    head = sa.select(sa.func.max(AuditEntry.sequence)).where(AuditEntry.tenant_id == Tenant.id).scalar_subquery()
    signed = (
        sa.select(sa.func.max(AuditCheckpoint.sequence)).where(AuditCheckpoint.tenant_id == Tenant.id).scalar_subquery()
    )
    query = sa.select(Tenant.id, head, sa.func.coalesce(signed, 0)).where(head.is_not(None))
    return [(tenant_id, last, signed) for tenant_id, last, signed in session.execute(query)]


def tenant_ids(session: Session) -> list[str]:
    return list(session.scalars(sa.select(Tenant.id).order_by(Tenant.created_at, Tenant.id)))


def all_entries(session: Session, *, tenant_id: str, since: int | None = None) -> Iterator[AuditEntry]:
    """The entries of a tenant in their order, from `since` on, a few in memory at a time."""
    query = sa.select(AuditEntry).where(AuditEntry.tenant_id == tenant_id).order_by(AuditEntry.sequence).limit(_BATCH)
    found = session.scalars(query if since is None else query.where(AuditEntry.sequence >= since)).all()
    while found:
        yield from found
        found = session.scalars(query.where(AuditEntry.sequence > found[-1].sequence)).all()


def all_checkpoints(session: Session, *, tenant_id: str) -> Iterator[AuditCheckpoint]:
    """The checkpoints of a tenant in their order, a few in memory at a time."""
    query = sa.select(AuditCheckpoint).where(AuditCheckpoint.tenant_id == tenant_id)
    query = query.order_by(AuditCheckpoint.sequence).limit(_BATCH)
    found = session.scalars(query).all()
    while found:
        yield from found
        found = session.scalars(query.where(AuditCheckpoint.sequence > found[-1].sequence)).all()
