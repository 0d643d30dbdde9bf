"""Events on their way to receivers."""

import datetime

import sqlalchemy as sa
from sqlalchemy.orm import Mapped, mapped_column

from app.db.sealed import Payload, Reference, Sealed
from app.db.tables.table import Owned, Table


class WebhookDelivery(Owned, Table):
    """One event on its way to one address (`receiver_ref` for short). `status`: pending, delivered, gone (the receiver
    wants no more), dead, or withdrawn (nobody is told; it is about to be purged). `created_at`: since when its receiver
    may know of it. `next_attempt_at` of one that is being sent: when its sender is taken for dead."""

    __tablename__ = "webhook_deliveries"
    id: Mapped[str] = mapped_column(primary_key=True)
    request_id: Mapped[str] = mapped_column(index=True)
    event: Mapped[str]
    receiver_ref: Mapped[str] = mapped_column(Reference)
    host: Mapped[str]
    letter: Mapped[Payload] = mapped_column(Sealed(Payload), nullable=True)
    status: Mapped[str]
    attempts: Mapped[int]
    next_attempt_at: Mapped[datetime.datetime]
    error: Mapped[str | None]
    created_at: Mapped[datetime.datetime]
    ended_at: Mapped[datetime.datetime | None] = mapped_column(index=True)
    __table_args__ = (
        sa.Index(None, "tenant_id", "created_at", "id"),
        sa.Index(None, "tenant_id", "status", "created_at", "id"),
        sa.Index(
            "ix_webhook_deliveries_pending",
            "next_attempt_at",
            sqlite_where=sa.text("status = 'pending'"),
            postgresql_where=sa.text("status = 'pending'"),
        ),
    )
