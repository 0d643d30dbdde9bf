"""The audit log, and the signatures about chains."""

import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Mapped, mapped_column

from app.db.tables.table import Owned, Table


class AuditEntry(Owned, Table):
    """A deed in the audit log: append-only (by trigger), one chain per tenant; each entry hashes its predecessor."""

    __tablename__ = "audit_entries"
    tenant_id: Mapped[str] = mapped_column(sa.ForeignKey("tenants.id"), primary_key=True)
    sequence: Mapped[int] = mapped_column(primary_key=True)
    at: Mapped[datetime.datetime]
    actor: Mapped[str]
    action: Mapped[str]
    object_id: Mapped[str]
    detail: Mapped[dict[str, Any]]
    previous_hash: Mapped[str]
    hash: Mapped[str]
    __table_args__ = (sa.Index(None, "tenant_id", "object_id", "sequence"),)


class Checkpoint(Owned, Table):
    """The installation's signature about a chain of a tenant, its `audit` log or its `ledger`: up to `sequence` it
    hashes to `hash`. `number`: in the order in which all of them were signed. Append-only (by trigger)."""

    __tablename__ = "checkpoints"
    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=True)
    log: Mapped[str]
    sequence: Mapped[int]
    hash: Mapped[str]
    jws: Mapped[str] = mapped_column(sa.Text)
    signed_at: Mapped[datetime.datetime]
    __table_args__ = (sa.UniqueConstraint("tenant_id", "log", "sequence"),)
