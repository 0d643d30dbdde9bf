"""Tables of the `protocols` feature: agents, identity issuers and used identity statements."""

import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Mapped, mapped_column

from app.db.tables import Owned, Table


class Agent(Owned, Table):
    """Authorised agent of the Data Rights Protocol. `verify_key`: Ed25519 key that verifies the agent's signatures.
    `set_up_at`: time at which the agent signed its last successful token request; older requests count as replays."""

    __tablename__ = "agents"
    id: Mapped[str] = mapped_column(primary_key=True)
    agent_id: Mapped[str]
    name: Mapped[str]
    verify_key: Mapped[str]
    api_key_id: Mapped[str | None] = mapped_column(sa.ForeignKey("api_keys.id"))
    set_up_at: Mapped[datetime.datetime | None]
    created_at: Mapped[datetime.datetime]
    __table_args__ = (sa.UniqueConstraint("agent_id", "tenant_id"), sa.Index(None, "tenant_id", "created_at", "id"))


class IdentityIssuer(Owned, Table):
    """Issuer whose signed JWTs prove people's identity."""

    __tablename__ = "identity_issuers"
    id: Mapped[str] = mapped_column(primary_key=True)
    issuer: Mapped[str]
    audience: Mapped[str]
    jwks: Mapped[dict[str, Any]]
    created_at: Mapped[datetime.datetime]
    __table_args__ = (sa.UniqueConstraint("tenant_id", "issuer"),)


class UsedStatement(Table):
    """Identity statement that has been used and is not accepted again."""

    __tablename__ = "used_statements"
    issuer_id: Mapped[str] = mapped_column(sa.ForeignKey("identity_issuers.id"), primary_key=True)
    statement_hash: Mapped[str] = mapped_column(primary_key=True)
    expires_at: Mapped[datetime.datetime] = mapped_column(index=True)
