"""Tables of the `webhooks` feature."""

import datetime
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.orm import Mapped, mapped_column

from app.db import sealed, tables


@dataclass(frozen=True, slots=True, kw_only=True)
class Payload(sealed.Private):
    """Body sent to a receiver, and the receiver's URL."""

    url: str = ""
    body: str = ""


class WebhookDelivery(tables.Owned, tables.Table):
    """Delivery of one event to one URL. `receiver_ref`: keyed hash of the URL. `status`: pending, delivered, gone (the
    receiver wants no more), dead, or withdrawn (not to be sent, and purged soon). `created_at`: time from which the
    receiver may know of it. `next_attempt_at`: time of the next attempt; during an attempt, end of the sender's
    lease."""

    __tablename__ = "webhook_deliveries"
    id: Mapped[str] = mapped_column(primary_key=True)
    request_id: Mapped[str] = mapped_column(index=True)
    event: Mapped[str]
    receiver_ref: Mapped[str] = mapped_column(sealed.Reference)
    host: Mapped[str]
    letter: Mapped[Payload] = mapped_column(sealed.Sealed(Payload), nullable=True)
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


OF_REQUESTS = (WebhookDelivery,)
"""Tables whose rows are visible to callers who may see the request concerned."""
