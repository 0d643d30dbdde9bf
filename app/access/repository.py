"""All SQL about tenants, API keys, people, sessions of the dashboard and remembered answers."""

import datetime
from collections.abc import Collection, Sequence
from typing import Any, cast

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.access import codes
from app.db import bulk
from app.db.paging import Page, page
from app.db.tables import ApiKey, DashboardSession, Dataset, DeletionRequest, IdempotentAnswer, SavedView, Tenant, User
from lethe.contract.sets import Role


def tenant_named(session: Session, name: str) -> Tenant | None:
    return session.scalars(sa.select(Tenant).where(Tenant.name == name)).one_or_none()


def is_business(session: Session, business_id: str, *, besides: str | None) -> bool:
    """Return True if a tenant, `besides` this one, has that id in the network of the Data Rights Protocol."""
    query = sa.select(Tenant.id).where(Tenant.policy["drp_business_id"].as_string() == business_id)
    return any(found != besides for found in session.scalars(query))


def knows_anybody(session: Session) -> bool:
    """Return True if the session's tenant has datasets or requests: references to people, by its rule for subject
    ids."""
    first = [sa.select(table.id).limit(1) for table in (Dataset, DeletionRequest)]
    return any(session.scalars(query).first() is not None for query in first)


def tenants(session: Session, *, limit: int, cursor: str | None) -> Page[Tenant]:
    return page(session, sa.select(Tenant), Tenant.created_at, Tenant.id, limit=limit, cursor=cursor)


def every_tenant(session: Session) -> list[Tenant]:
    return list(session.scalars(sa.select(Tenant).order_by(Tenant.id)))


def by_hash(session: Session, key_hash: str) -> ApiKey | None:
    return session.scalars(sa.select(ApiKey).where(ApiKey.key_hash == key_hash)).one_or_none()


def keys(session: Session, *, limit: int, cursor: str | None) -> Page[ApiKey]:
    return page(session, sa.select(ApiKey), ApiKey.created_at, ApiKey.id, limit=limit, cursor=cursor)


def key(session: Session, key_id: str) -> ApiKey | None:
    return session.scalars(sa.select(ApiKey).where(ApiKey.id == key_id)).one_or_none()


def lasting_keys(session: Session, *, tenant_id: str) -> list[ApiKey]:
    """The keys of a tenant that are in force and do not expire."""
    in_force = ApiKey.revoked_at.is_(None) & ApiKey.expires_at.is_(None)
    return list(session.scalars(sa.select(ApiKey).where(ApiKey.tenant_id == tenant_id, in_force)))


def is_line_in_force(session: Session, line_id: str, *, at: datetime.datetime) -> bool:
    """Return True if a key that is the first of this line, or came in its place, lets anybody in."""
    of_line = sa.or_(ApiKey.id == line_id, ApiKey.line_id == line_id)
    return session.scalars(sa.select(ApiKey.id).where(of_line, _in_force(at)).limit(1)).first() is not None


def _in_force(at: datetime.datetime) -> sa.ColumnElement[bool]:
    lasts = sa.or_(ApiKey.expires_at.is_(None), ApiKey.expires_at > at)
    return sa.and_(lasts, ApiKey.revoked_at.is_(None))


def names(session: Session, ids: Collection[str]) -> dict[str, str]:
    """The names of the keys and the people among these, by id."""
    found = [sa.select(table.id, table.name).where(table.id.in_(ids)) for table in (ApiKey, User)]
    return {row.id: row.name for query in found for row in session.execute(query)}


def is_known(session: Session, email: str) -> bool:
    """Return True if somebody has this address, in whatever tenant: it is what they log in with."""
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


def users(session: Session, *, limit: int, cursor: str | None) -> Page[User]:
    return page(session, sa.select(User), User.created_at, User.id, limit=limit, cursor=cursor)


def enabled_users(session: Session, roles: Collection[Role], *, limit: int, cursor: str | None) -> Page[User]:
    """Those who have one of these roles and are not disabled."""
    query = sa.select(User).where(User.role.in_(roles), User.disabled_at.is_(None))
    return page(session, query, User.created_at, User.id, limit=limit, cursor=cursor)


def lasting_users(session: Session, tenant_id: str, role: Role, *, at: datetime.datetime) -> list[User]:
    """The people of a tenant with this role who are let in with a password, whatever becomes of an identity provider;
    nobody whom wrong codes lock out."""
    is_let_in = User.disabled_at.is_(None) & User.password_hash.is_not(None)
    is_counted = sa.func.coalesce(User.wrong_since > at - codes.COUNTED_FOR, sa.false())
    is_locked = is_counted & (User.wrong_codes >= codes.MOST_WRONG)
    query = sa.select(User).where(User.tenant_id == tenant_id, User.role == role, is_let_in, ~is_locked)
    return list(session.scalars(query))


def is_any_invitation_over(session: Session, *, at: datetime.datetime) -> bool:
    return session.scalar(sa.select(sa.exists().where(User.invitation_expires_at <= at))) is True


def drop_invitations(session: Session, *, at: datetime.datetime, limit: int) -> int:
    """Drop those that have expired, `limit` at most; returns how many."""
    over = sa.select(User.id).where(User.invitation_expires_at <= at).limit(limit)
    nothing = {"invitation_hash": None, "invitation_expires_at": None}
    dropped = session.execute(sa.update(User).where(User.id.in_(over)).values(nothing))
    return cast("sa.CursorResult[tuple[()]]", dropped).rowcount


_USED = (
    sa.update(ApiKey.metadata.tables[ApiKey.__tablename__])
    .where(sa.column("id") == sa.bindparam("key_id"))
    .where(sa.or_(ApiKey.last_used_at.is_(None), ApiKey.last_used_at < sa.bindparam("unless_since")))
    .values(last_used_at=sa.bindparam("at"))
)


def used(session: Session, key_ids: Sequence[str], *, at: datetime.datetime, unless_since: datetime.datetime) -> None:
    """Note that these keys were used, but for those that have been noted since `unless_since`. In the order of their
    ids: two gateways that do it at once wait for each other, and never each for the other."""
    rows = [{"key_id": key_id, "at": at, "unless_since": unless_since} for key_id in sorted(key_ids)]
    session.connection().execute(_USED, rows)


_ANSWERS = sa.select(*IdempotentAnswer.__table__.columns).where(
    IdempotentAnswer.name.in_(sa.bindparam("names", expanding=True))
)


def answers(session: Session, names: Sequence[str]) -> dict[str, Any]:
    """The answers to the calls of these names: rows of `IdempotentAnswer`, by name."""
    return {row.name: row for row in session.connection().execute(_ANSWERS, {"names": names})}


def is_any_answer_older(session: Session, *, than: datetime.datetime) -> bool:
    return session.scalar(sa.select(sa.exists().where(IdempotentAnswer.created_at < than))) is True


def drop_answers(session: Session, *, before: datetime.datetime, limit: int) -> int:
    """Drop what was answered before, the oldest `limit` at most; returns how many."""
    oldest = sa.select(IdempotentAnswer.name).where(IdempotentAnswer.created_at < before)
    oldest = oldest.order_by(IdempotentAnswer.created_at).limit(limit)
    dropped = session.execute(sa.delete(IdempotentAnswer).where(IdempotentAnswer.name.in_(oldest)))
    return cast("sa.CursorResult[tuple[()]]", dropped).rowcount


def add_answers(session: Session, rows: Sequence[dict[str, Any]]) -> None:
    bulk.store(session, IdempotentAnswer, rows)


def dashboard_session(session: Session, token_hash: str) -> DashboardSession | None:
    return session.get(DashboardSession, token_hash)


def end_dashboard_session(session: Session, token_hash: str) -> None:
    session.execute(sa.delete(DashboardSession).where(DashboardSession.token_hash == token_hash))


def end_sessions_of(session: Session, user_id: str) -> None:
    session.execute(sa.delete(DashboardSession).where(DashboardSession.user_id == user_id))


def saved_views(session: Session, owner: str, *, limit: int, cursor: str | None) -> Page[SavedView]:
    query = sa.select(SavedView).where(SavedView.owner == owner)
    return page(session, query, SavedView.created_at, SavedView.id, limit=limit, cursor=cursor)


def saved_view(session: Session, view_id: str, *, owner: str) -> SavedView | None:
    return session.scalars(sa.select(SavedView).where(SavedView.id == view_id, SavedView.owner == owner)).one_or_none()


def names_of_views(session: Session, owner: str) -> set[str]:
    return set(session.scalars(sa.select(SavedView.name).where(SavedView.owner == owner)))


def drop_saved_views(session: Session, owner: str) -> None:
    session.execute(sa.delete(SavedView).where(SavedView.owner == owner))


def _without_owner(at: datetime.datetime) -> sa.ColumnElement[bool]:
    """Views of a line of keys of which none is in force; those of people are dropped with them."""
    lines = sa.select(sa.func.coalesce(ApiKey.line_id, ApiKey.id)).where(_in_force(at))
    return SavedView.owner.not_in(sa.select(User.id)) & SavedView.owner.not_in(lines)


def is_any_view_without_owner(session: Session, *, at: datetime.datetime) -> bool:
    return session.scalar(sa.select(sa.exists().where(_without_owner(at)))) is True


def drop_views_without_owner(session: Session, *, at: datetime.datetime, limit: int) -> int:
    """Drop them, `limit` at most; returns how many."""
    found = sa.select(SavedView.id).where(_without_owner(at)).limit(limit)
    dropped = session.execute(sa.delete(SavedView).where(SavedView.id.in_(found)))
    return cast("sa.CursorResult[tuple[()]]", dropped).rowcount


def _over(at: datetime.datetime, silent_since: datetime.datetime) -> sa.ColumnElement[bool]:
    return sa.or_(DashboardSession.expires_at <= at, DashboardSession.seen_at <= silent_since)


def is_any_dashboard_session_over(session: Session, *, at: datetime.datetime, silent_since: datetime.datetime) -> bool:
    return session.scalar(sa.select(sa.exists().where(_over(at, silent_since)))) is True


def drop_dashboard_sessions(
    session: Session, *, at: datetime.datetime, silent_since: datetime.datetime, limit: int
) -> int:
    """Drop those that are over, `limit` at most; returns how many."""
    over = sa.select(DashboardSession.token_hash).where(_over(at, silent_since)).limit(limit)
    dropped = session.execute(sa.delete(DashboardSession).where(DashboardSession.token_hash.in_(over)))
    return cast("sa.CursorResult[tuple[()]]", dropped).rowcount
