"""SQL queries about people who log in to the dashboard."""

import datetime
from collections.abc import Collection
from typing import cast

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.db import bulk, now
from app.features.people import credentials
from app.features.people.tables import User
from lethe.features.people.contract import Role


def is_known(session: Session, email: str) -> bool:
    """Return True if a person in any tenant has this e-mail address, which serves as the login name."""
    table = User.metadata.tables[User.__tablename__]
    return session.connection().scalar(sa.select(table.c.id).where(table.c.email == email)) is not None


def user(session: Session, user_id: str) -> User | None:
    return session.scalars(sa.select(User).where(User.id == user_id)).one_or_none()


def user_with(session: Session, *, email: str) -> User | None:
    return session.scalars(sa.select(User).where(User.email == email)).one_or_none()


def user_of_provider(session: Session, *, issuer: str, subject: str) -> User | None:
    query = sa.select(User).where(User.oidc_issuer == issuer, User.oidc_subject == subject)
    return session.scalars(query).one_or_none()


def invited_user(session: Session, invitation_hash: str) -> User | None:
    return session.scalars(sa.select(User).where(User.invitation_hash == invitation_hash)).one_or_none()


def users(session: Session, *, limit: int, cursor: str | None) -> bulk.Page[User]:
    return bulk.page(session, sa.select(User), User.created_at, User.id, limit=limit, cursor=cursor)


def enabled_users(session: Session, roles: Collection[Role], *, limit: int, cursor: str | None) -> bulk.Page[User]:
    """Return a page of enabled people with one of these roles."""
    query = sa.select(User).where(User.role.in_(roles), User.disabled_at.is_(None))
    return bulk.page(session, query, User.created_at, User.id, limit=limit, cursor=cursor)


def lasting_users(session: Session, tenant_id: str, role: Role, *, at: datetime.datetime) -> list[User]:
    """Return a tenant's people with this role who have a password (and thus do not depend on an identity provider), and
    who are neither disabled nor locked out by wrong codes."""
    is_let_in = User.disabled_at.is_(None) & User.password_hash.is_not(None)
    is_counted = sa.func.coalesce(User.wrong_since > at - credentials.COUNTED_FOR, sa.false())
    is_locked = is_counted & (User.wrong_codes >= credentials.MAX_WRONG_CODES)
    query = sa.select(User).where(User.tenant_id == tenant_id, User.role == role, is_let_in, ~is_locked)
    return list(session.scalars(query))


def is_any_invitation_over(session: Session) -> bool:
    return session.scalar(sa.select(sa.exists().where(User.invitation_expires_at <= now(session)))) is True


def drop_invitations(session: Session, *, limit: int) -> int:
    """Delete at most `limit` expired invitations and return their number."""
    over = sa.select(User.id).where(User.invitation_expires_at <= now(session)).limit(limit)
    nothing = {"invitation_hash": None, "invitation_expires_at": None}
    dropped = session.execute(sa.update(User).where(User.id.in_(over)).values(nothing))
    return cast("sa.CursorResult[tuple[()]]", dropped).rowcount


def void_invitations(session: Session) -> None:
    """Void all open invitations after a restore, because the invited people may have been disabled since the backup."""
    session.execute(sa.update(User).values(invitation_hash=None, invitation_expires_at=None))


def people_by_role(session: Session) -> dict[str, int]:
    """Return the number of people in all tenants who can log in by password or identity provider, keyed by role."""
    is_let_in = User.disabled_at.is_(None) & (User.password_hash.is_not(None) | User.oidc_subject.is_not(None))
    query = sa.select(User.role, sa.func.count()).where(is_let_in).group_by(User.role).order_by(User.role)
    # mypy does not accept dict() of rows.
    return {role: count for role, count in session.execute(query)}  # noqa: C416


def names(session: Session, ids: Collection[str]) -> dict[str, str]:
    """Map each of the `ids` that belongs to a person to the person's name."""
    query = sa.select(User.id, User.name).where(User.id.in_(ids))
    return {row.id: row.name for row in session.execute(query)}
