"""The ledgers and the certificates."""

import datetime

import sqlalchemy as sa
from sqlalchemy.orm import Mapped, mapped_column

from app.db.tables.table import Owned, Table


class LedgerEntry(Table):
    """Append-only (by trigger); each entry hashes its model's one before. `LedgerLink` chains those of all models."""

    __tablename__ = "ledger_entries"
    model_id: Mapped[str] = mapped_column(sa.ForeignKey("models.id"), primary_key=True)
    sequence: Mapped[int] = mapped_column(primary_key=True)
    body: Mapped[str] = mapped_column(sa.Text)
    previous_hash: Mapped[str]
    hash: Mapped[str]


class LedgerLink(Owned, Table):
    """The chain over the ledgers of all models of a tenant: append-only (by trigger). `body`: the entry of which model
    comes next, or that the installation was restored from a backup; each link hashes its predecessor."""

    __tablename__ = "ledger_links"
    tenant_id: Mapped[str] = mapped_column(sa.ForeignKey("tenants.id"), primary_key=True)
    sequence: Mapped[int] = mapped_column(primary_key=True)
    body: Mapped[str] = mapped_column(sa.Text)
    previous_hash: Mapped[str]
    hash: Mapped[str]


class Certificate(Owned, Table):
    __tablename__ = "certificates"
    id: Mapped[str] = mapped_column(primary_key=True)
    request_id: Mapped[str] = mapped_column(sa.ForeignKey("deletion_requests.id"), index=True)
    model_id: Mapped[str] = mapped_column(sa.ForeignKey("models.id"))
    version: Mapped[int]
    jws: Mapped[str] = mapped_column(sa.Text)
    issued_at: Mapped[datetime.datetime]
    __table_args__ = (sa.UniqueConstraint("request_id", "model_id"),)
