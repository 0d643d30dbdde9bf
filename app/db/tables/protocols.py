"""The agents of the Data Rights Protocol."""

import datetime

import sqlalchemy as sa
from sqlalchemy.orm import Mapped, mapped_column

from app.db.tables.table import Owned, Table


class Agent(Owned, Table):
    """An authorised agent of the Data Rights Protocol, who signs requests with this Ed25519 key. `set_up_at`: when it
    signed the last call for a token that was answered; it cannot be answered again."""

    __tablename__ = "agents"
    id: Mapped[str] = mapped_column(primary_key=True)
    agent_id: Mapped[str]
    name: Mapped[str]
    verify_key: Mapped[str]
    api_key_id: Mapped[str | None] = mapped_column(sa.ForeignKey("api_keys.id"))
    set_up_at: Mapped[datetime.datetime | None]
    created_at: Mapped[datetime.datetime]
    __table_args__ = (sa.UniqueConstraint("agent_id", "tenant_id"), sa.Index(None, "tenant_id", "created_at", "id"))
