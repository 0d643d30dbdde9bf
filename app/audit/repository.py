"""SQL queries about the audit log, and about the checkpoints of the audit log and other chains."""

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from sqlalchemy.orm import InstrumentedAttribute, Session

from app.db import rows
from app.db.tables import AuditEntry, Checkpoint, Tenant

if TYPE_CHECKING:
    from app.audit.checkpoints import StoredChain


def _last(column: InstrumentedAttribute[Any]) -> sa.ScalarSelect[Any]:
    of_tenant = sa.select(column).where(AuditEntry.tenant_id == Tenant.id).correlate(Tenant)
    return of_tenant.order_by(AuditEntry.sequence.desc()).limit(1).scalar_subquery()


# A join could read a whole log, if PostgreSQL's statistics are old.
LAST = sa.select(Tenant.id, _last(AuditEntry.sequence), _last(AuditEntry.hash)).where(
    Tenant.id.in_(sa.bindparam("tenant_ids", expanding=True))
)
"""Query for the sequence and hash of each tenant's last audit entry, which are null for a tenant without entries."""
_BATCH = 1000


def last(session: Session, *, tenant_ids: Collection[str]) -> dict[str, tuple[int, str]]:
    """Map each tenant id to the sequence and hash of the tenant's last audit entry; omit tenants without entries."""
    found = rows(session, LAST, {"tenant_ids": list(tenant_ids)}) if tenant_ids else ()
    return {tenant_id: (sequence, digest) for tenant_id, sequence, digest in found if sequence}


def checkpoints(
    session: Session, chain: "StoredChain", *, tenant_id: str, before: int | None = None, limit: int
) -> list[Checkpoint]:
    """Return the last `limit` checkpoints of a chain before sequence `before`, newest first."""
    query = sa.select(Checkpoint).where(Checkpoint.tenant_id == tenant_id, Checkpoint.log == chain.name)
    if before is not None:
        query = query.where(Checkpoint.sequence < before)
    return list(session.scalars(query.order_by(Checkpoint.sequence.desc()).limit(limit)))


def checkpoints_after(session: Session, *, number: int, limit: int) -> list[Checkpoint]:
    """Return the next `limit` checkpoints after `number`, across all chains of all tenants, in signing order."""
    query = sa.select(Checkpoint).where(Checkpoint.number > number)
    return list(session.scalars(query.order_by(Checkpoint.number).limit(limit)))


def heads(session: Session, chain: "StoredChain") -> list[tuple[str, int, int]]:
    """Return a row for each nonempty chain: tenant id, sequence of the last row, and sequence of the last checkpoint (0
    if there is none)."""
    table = chain.table
    head = sa.select(sa.func.max(table.sequence)).where(table.tenant_id == Tenant.id).scalar_subquery()
    of_chain = sa.and_(Checkpoint.tenant_id == Tenant.id, Checkpoint.log == chain.name)
    signed = sa.select(sa.func.max(Checkpoint.sequence)).where(of_chain).scalar_subquery()
    query = sa.select(Tenant.id, head, sa.func.coalesce(signed, 0)).where(head.is_not(None))
    return [(tenant_id, last, signed) for tenant_id, last, signed in session.execute(query)]


def tenant_ids(session: Session) -> list[str]:
    return list(session.scalars(sa.select(Tenant.id).order_by(Tenant.created_at, Tenant.id)))


def rows_of(session: Session, chain: "StoredChain", *, tenant_id: str, since: int | None = None) -> Iterator[Any]:
    """Yield a chain's rows in order from sequence `since`, keeping at most `_BATCH` in memory."""
    table = chain.table
    query = sa.select(table).where(table.tenant_id == tenant_id).order_by(table.sequence)
    return _in_batches(session, query, table.sequence, since=since)


def _in_batches(
    session: Session, query: sa.Select[Any], sequence: InstrumentedAttribute[int], *, since: int | None = None
) -> Iterator[Any]:
    """Yield the rows of a query ordered by `sequence`, starting at `since` and keeping at most `_BATCH` in memory."""
    batch = session.scalars((query if since is None else query.where(sequence >= since)).limit(_BATCH)).all()
    while batch:
        yield from batch
        if len(batch) < _BATCH:
            return
        batch = session.scalars(query.where(sequence > batch[-1].sequence).limit(_BATCH)).all()


def all_entries(session: Session, *, tenant_id: str, since: int | None = None) -> Iterator[AuditEntry]:
    """Yield the entries of a tenant's audit log in order, starting at sequence `since`."""
    query = sa.select(AuditEntry).where(AuditEntry.tenant_id == tenant_id).order_by(AuditEntry.sequence)
    return _in_batches(session, query, AuditEntry.sequence, since=since)


def last_row(session: Session, chain: "StoredChain", *, tenant_id: str) -> Any | None:
    table = chain.table
    query = sa.select(table).where(table.tenant_id == tenant_id).order_by(table.sequence.desc())
    return session.scalars(query.limit(1)).one_or_none()


def all_checkpoints(session: Session, chain: "StoredChain", *, tenant_id: str) -> Iterator[Checkpoint]:
    """Yield a chain's checkpoints in order, keeping at most `_BATCH` in memory."""
    query = sa.select(Checkpoint).where(Checkpoint.tenant_id == tenant_id, Checkpoint.log == chain.name)
    return _in_batches(session, query.order_by(Checkpoint.sequence), Checkpoint.sequence)
