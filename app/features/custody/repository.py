"""SQL queries for the audit log and for the parts of an exported ledger."""

from collections.abc import Iterable

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.db.tables import AuditEntry, LedgerEntry, LedgerLink, Model, Version


def audit_entries(
    session: Session,
    *,
    tenant_id: str,
    before: int | None,
    limit: int,
    object_id: str | None = None,
    actor: str | None = None,
    action: str | None = None,
) -> list[AuditEntry]:
    """Return a tenant's last `limit` entries before number `before` that match the other arguments, newest first."""
    query = sa.select(AuditEntry).where(AuditEntry.tenant_id == tenant_id)
    if before is not None:
        query = query.where(AuditEntry.sequence < before)
    for column, wanted in ((AuditEntry.object_id, object_id), (AuditEntry.actor, actor), (AuditEntry.action, action)):
        if wanted is not None:
            query = query.where(column == wanted)
    return list(session.scalars(query.order_by(AuditEntry.sequence.desc()).limit(limit)))


def versions(session: Session, *, model_id: str) -> Iterable[Version]:
    """Return a model's versions in order."""
    return session.scalars(sa.select(Version).where(Version.model_id == model_id).order_by(Version.number))


def links(session: Session, *, tenant_id: str, since: int, limit: int) -> list[LedgerLink]:
    """Return up to `limit` links of a tenant's ledger, starting at sequence number `since`."""
    query = sa.select(LedgerLink).where(LedgerLink.tenant_id == tenant_id, LedgerLink.sequence >= since)
    return list(session.scalars(query.order_by(LedgerLink.sequence).limit(limit)))


def ledger_lengths(session: Session, *, tenant_id: str) -> dict[str, int]:
    """Map each of a tenant's models, sorted by id, to its number of ledger entries, omitting models without entries."""
    query = sa.select(LedgerEntry.model_id, sa.func.max(LedgerEntry.sequence))
    query = query.join(Model, Model.id == LedgerEntry.model_id).where(Model.tenant_id == tenant_id)
    query = query.group_by(LedgerEntry.model_id).order_by(LedgerEntry.model_id)
    return {model_id: length for model_id, length in session.execute(query)}  # noqa: C416  rows are no pairs to mypy


def versions_between(session: Session, *, model_id: str, after: int, until: int) -> list[Version]:
    """Return a model's versions with numbers in (after, until], in ascending order."""
    query = sa.select(Version).where(Version.model_id == model_id, Version.number > after, Version.number <= until)
    return list(session.scalars(query.order_by(Version.number)))
