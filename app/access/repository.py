"""SQL queries about tenants, API keys and stored idempotent responses."""

import datetime
from collections.abc import Collection, Sequence
from typing import Any, cast

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.audit import repository as audit_repository
from app.db import bulk, rows, tables


def tenant_named(session: Session, name: str) -> tables.Tenant | None:
    return session.scalars(sa.select(tables.Tenant).where(tables.Tenant.name == name)).one_or_none()


def is_business(session: Session, business_id: str, *, besides: str | None) -> bool:
    """Return True if a tenant other than `besides` has this business id in the Data Rights Protocol network."""
    query = sa.select(tables.Tenant.id).where(tables.Tenant.policy["drp_business_id"].as_string() == business_id)
    return any(tenant_id != besides for tenant_id in session.scalars(query))


def knows_anybody(session: Session) -> bool:
    """Return True if the session's tenant has datasets or requests, which identify people under its current rule for
    subject ids."""
    first = [sa.select(table.id).limit(1) for table in (tables.Dataset, tables.DeletionRequest)]
    return any(session.scalars(query).first() is not None for query in first)


def tenants(session: Session, *, limit: int, cursor: str | None) -> bulk.Page[tables.Tenant]:
    return bulk.page(
        session, sa.select(tables.Tenant), tables.Tenant.created_at, tables.Tenant.id, limit=limit, cursor=cursor
    )


TENANTS = audit_repository.LAST.add_columns(tables.Tenant.policy)


def every_tenant(session: Session) -> list[tables.Tenant]:
    return list(session.scalars(sa.select(tables.Tenant).order_by(tables.Tenant.id)))


def by_hash(session: Session, key_hash: str) -> tables.ApiKey | None:
    return session.scalars(sa.select(tables.ApiKey).where(tables.ApiKey.key_hash == key_hash)).one_or_none()


def keys(session: Session, *, limit: int, cursor: str | None) -> bulk.Page[tables.ApiKey]:
    return bulk.page(
        session, sa.select(tables.ApiKey), tables.ApiKey.created_at, tables.ApiKey.id, limit=limit, cursor=cursor
    )


def key(session: Session, key_id: str) -> tables.ApiKey | None:
    return session.scalars(sa.select(tables.ApiKey).where(tables.ApiKey.id == key_id)).one_or_none()


def lasting_keys(session: Session, *, tenant_id: str) -> list[tables.ApiKey]:
    """Return the valid keys of a tenant that do not expire."""
    in_force = tables.ApiKey.revoked_at.is_(None) & tables.ApiKey.expires_at.is_(None)
    return list(session.scalars(sa.select(tables.ApiKey).where(tables.ApiKey.tenant_id == tenant_id, in_force)))


def names(session: Session, ids: Collection[str]) -> dict[str, str]:
    """Return the names of the API keys whose id is in `ids`, keyed by id."""
    query = sa.select(tables.ApiKey.id, tables.ApiKey.name).where(tables.ApiKey.id.in_(ids))
    return {row.id: row.name for row in session.execute(query)}


_USED = (
    sa.update(tables.ApiKey.metadata.tables[tables.ApiKey.__tablename__])
    .where(sa.column("id") == sa.bindparam("key_id"))
    .where(sa.or_(tables.ApiKey.last_used_at.is_(None), tables.ApiKey.last_used_at < sa.bindparam("unless_since")))
    .values(last_used_at=sa.bindparam("at"))
)


def used(session: Session, key_ids: Sequence[str], *, at: datetime.datetime, unless_since: datetime.datetime) -> None:
    """Record when API keys were last used, except for keys whose recorded use is later than `unless_since`. Rows are
    updated in order of id, so that two gateways cannot deadlock."""
    rows = [{"key_id": key_id, "at": at, "unless_since": unless_since} for key_id in sorted(key_ids)]
    session.connection().execute(_USED, rows)


_ANSWERS = sa.select(*tables.IdempotentAnswer.__table__.columns).where(
    tables.IdempotentAnswer.name.in_(sa.bindparam("names", expanding=True))
)


def answers(session: Session, names: Sequence[str]) -> dict[str, Any]:
    """Map `names` (`Once.name`) to stored responses: rows of name, fingerprint, status, location, body and time."""
    return {row[0]: row for row in rows(session, _ANSWERS, {"names": names})}


def is_any_answer_older(session: Session, *, than: datetime.datetime) -> bool:
    return session.scalar(sa.select(sa.exists().where(tables.IdempotentAnswer.created_at < than))) is True


def drop_answers(session: Session, *, before: datetime.datetime, limit: int) -> int:
    """Delete at most `limit` idempotent responses older than `before`, oldest first, and return the number deleted."""
    oldest = sa.select(tables.IdempotentAnswer.name).where(tables.IdempotentAnswer.created_at < before)
    oldest = oldest.order_by(tables.IdempotentAnswer.created_at).limit(limit)
    dropped = session.execute(sa.delete(tables.IdempotentAnswer).where(tables.IdempotentAnswer.name.in_(oldest)))
    return cast("sa.CursorResult[tuple[()]]", dropped).rowcount
