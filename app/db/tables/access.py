"""The installation, its tenants, their API keys, and sessions of the dashboard."""

import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Mapped, mapped_column

from app.db.sealed import Authenticator, Sealed
from app.db.tables.table import Owned, Table


class InstallationIdentity(Table):
    """The identity of the database's installation: one line, from the first start on. `check_values`: of each key of
    the installation, by its name, which tell it from any other and say nothing about it (`app.key_checks`); of the
    key-encryption key both, while it is changed."""

    __tablename__ = "installation_identity"
    id: Mapped[str] = mapped_column(primary_key=True)
    check_values: Mapped[dict[str, Any]]
    created_at: Mapped[datetime.datetime]


class Tenant(Table):
    """An organisation. `policy`: how it handles requests (`app.access.policy`); `webhook_generation`: which of its
    webhook secrets is the present one, since `webhook_rotated_at` (None: from the beginning)."""

    __tablename__ = "tenants"
    id: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(unique=True)
    policy: Mapped[dict[str, Any]]
    webhook_generation: Mapped[int] = mapped_column(default=1)
    webhook_rotated_at: Mapped[datetime.datetime | None]
    created_at: Mapped[datetime.datetime]
    __table_args__ = (sa.Index(None, "created_at", "id"),)


class ApiKey(Owned, Table):
    """`calls_per_minute`: None for the installation's limit; `expires_at`: None for never. `line_id`: the first key of
    those that each replaced the one before; None for that one itself. `own_requests_only`: of requests it sees those
    of its line alone."""

    __tablename__ = "api_keys"
    id: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str]
    key_hash: Mapped[str] = mapped_column(unique=True)
    scopes: Mapped[list[str]]
    calls_per_minute: Mapped[int | None]
    line_id: Mapped[str | None]
    own_requests_only: Mapped[bool] = mapped_column(default=False, server_default=sa.false())
    created_at: Mapped[datetime.datetime]
    expires_at: Mapped[datetime.datetime | None]
    last_used_at: Mapped[datetime.datetime | None]
    revoked_at: Mapped[datetime.datetime | None]
    __table_args__ = (sa.Index(None, "tenant_id", "created_at", "id"),)


class IdempotentAnswer(Table):
    """The first answer to a creating POST, given again to the same call. `name`: a keyed hash of the API key and the
    Idempotency-Key."""

    __tablename__ = "idempotent_answers"
    name: Mapped[str] = mapped_column(primary_key=True)
    fingerprint: Mapped[str]
    status: Mapped[int]
    location: Mapped[str | None]
    answer: Mapped[dict[str, Any]]
    created_at: Mapped[datetime.datetime] = mapped_column(index=True)


class User(Owned, Table):
    """Somebody who logs in to the dashboard. `email`: in lower case; `password_hash`: argon2, None before one was
    chosen. `totp_last_step`: the time step of the last code that was accepted; `wrong_codes`: those since then,
    of which `wrong_since` is the time of the first. `oidc_subject`: of the identity provider `oidc_issuer`.
    `invitation_hash`: of what lets them choose a password."""

    __tablename__ = "users"
    id: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str]
    email: Mapped[str] = mapped_column(unique=True)
    role: Mapped[str]
    password_hash: Mapped[str | None]
    totp: Mapped[Authenticator] = mapped_column(Sealed(Authenticator), nullable=True)
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


class SavedView(Owned, Table):
    """A view of the list of requests that somebody kept. `owner`: a person, or the line of an API key; `shows`: what
    differs from the view that everybody has, as `lethe.contract.saved_views` says."""

    __tablename__ = "saved_views"
    id: Mapped[str] = mapped_column(primary_key=True)
    owner: Mapped[str]
    name: Mapped[str]
    shows: Mapped[dict[str, Any]]
    created_at: Mapped[datetime.datetime]
    __table_args__ = (sa.UniqueConstraint("owner", "name"),)


class DashboardSession(Table):
    """Somebody who logged in to the dashboard with an API key, or as the person that they are. `token_hash`: of what
    their browser keeps."""

    __tablename__ = "dashboard_sessions"
    token_hash: Mapped[str] = mapped_column(primary_key=True)
    api_key_id: Mapped[str | None] = mapped_column(sa.ForeignKey("api_keys.id"))
    user_id: Mapped[str | None] = mapped_column(sa.ForeignKey("users.id"), index=True)
    opened_at: Mapped[datetime.datetime]
    seen_at: Mapped[datetime.datetime] = mapped_column(index=True)
    expires_at: Mapped[datetime.datetime] = mapped_column(index=True)
    __table_args__ = (sa.CheckConstraint("(api_key_id IS NULL) <> (user_id IS NULL)", name="key_or_user"),)
