"""Tables of the `people` feature."""

import datetime
from dataclasses import dataclass, field

import sqlalchemy as sa
from sqlalchemy.orm import Mapped, mapped_column

from app.db import sealed, tables


@dataclass(frozen=True, slots=True, kw_only=True)
class Authenticator(sealed.Private):
    """Secret shared with a person's authenticator app (RFC 6238, base32)."""

    secret: str = field(default="", repr=False)


class User(tables.Owned, tables.Table):
    """Person who logs in to the dashboard. `email`: address in lower case. `password_hash`: argon2 hash; null until a
    password is chosen. `totp_last_step`: time step of the last accepted code. `wrong_codes`: number of wrong codes
    since then. `wrong_since`: time of the first wrong code. `oidc_subject`: id at the identity provider `oidc_issuer`.
    `invitation_hash`: hash of the invitation to choose a password."""

    __tablename__ = "users"
    id: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str]
    email: Mapped[str] = mapped_column(unique=True)
    role: Mapped[str]
    password_hash: Mapped[str | None]
    totp: Mapped[Authenticator] = mapped_column(sealed.Sealed(Authenticator), nullable=True)
    totp_last_step: Mapped[int | None] = mapped_column(sa.BigInteger)
    wrong_codes: Mapped[int] = mapped_column(default=0, server_default=sa.text("0"))
    wrong_since: Mapped[datetime.datetime | None]
    oidc_issuer: Mapped[str | None]
    oidc_subject: Mapped[str | None]
    invitation_hash: Mapped[str | None] = mapped_column(unique=True)
    invitation_expires_at: Mapped[datetime.datetime | None]
    created_at: Mapped[datetime.datetime]
    disabled_at: Mapped[datetime.datetime | None]
    last_login_at: Mapped[datetime.datetime | None]
    __table_args__ = (
        sa.UniqueConstraint("oidc_issuer", "oidc_subject"),
        sa.Index(None, "tenant_id", "created_at", "id"),
    )
