"""SQL queries of the desk feature: dashboard sessions, and requests' notes and attachments."""

import datetime
from collections.abc import Callable, Collection
from typing import Any, TypeVar, cast

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.db import bulk, tables
from app.deletion.repository import is_about
from app.features.desk.tables import DashboardSession, RequestAttachment, RequestNote

T = TypeVar("T", RequestNote, RequestAttachment)


def dashboard_session(session: Session, token_hash: str) -> DashboardSession | None:
    return session.get(DashboardSession, token_hash)


def end_dashboard_session(session: Session, token_hash: str) -> None:
    session.execute(sa.delete(DashboardSession).where(DashboardSession.token_hash == token_hash))


def end_sessions_of(session: Session, user_id: str) -> None:
    """End all of a user's sessions."""
    session.execute(sa.delete(DashboardSession).where(DashboardSession.user_id == user_id))


def end_sessions(session: Session) -> None:
    """End all sessions after a restore, because the backup may contain sessions that have been ended since."""
    session.execute(sa.delete(DashboardSession))


def is_any_session_over(session: Session, *, at: datetime.datetime, idle_since: datetime.datetime) -> bool:
    return session.scalar(sa.select(sa.exists().where(_is_over(at, idle_since)))) is True


def drop_ended_sessions(session: Session, *, at: datetime.datetime, idle_since: datetime.datetime, limit: int) -> int:
    """Delete up to `limit` sessions that have ended, and return their number."""
    ended = sa.select(DashboardSession.token_hash).where(_is_over(at, idle_since)).limit(limit)
    result = session.execute(sa.delete(DashboardSession).where(DashboardSession.token_hash.in_(ended)))
    return cast("sa.CursorResult[tuple[()]]", result).rowcount


def _is_over(at: datetime.datetime, idle_since: datetime.datetime) -> sa.ColumnElement[bool]:
    return sa.or_(DashboardSession.expires_at <= at, DashboardSession.seen_at <= idle_since)


def names(session: Session, ids: Collection[str]) -> dict[str, str]:
    """Map the ids of datasets and models among `ids` to their names."""
    names: dict[str, str] = {}
    for prefix, table in (("ds_", tables.Dataset), ("mdl_", tables.Model)):
        if sought := [id_ for id_ in ids if id_.startswith(prefix)]:
            rows = session.execute(sa.select(table.id, table.name).where(table.id.in_(sought)))
            names |= {row.id: row.name for row in rows if row.name}
    return names


def page_of(session: Session, table: type[T], *, request_id: str, limit: int, cursor: str | None) -> bulk.Page[T]:
    """Return one page of a request's notes or attachments, oldest first, without the attachments' bytes."""
    query = sa.select(table).where(table.request_id == request_id)
    return bulk.page(session, query, table.at, table.id, limit=limit, cursor=cursor, ascending=True)


def requests_about(session: Session, subject_refs: Collection[str], *, at_most: int) -> list[tables.DeletionRequest]:
    """Return up to `at_most` of the newest requests about a person."""
    query = sa.select(tables.DeletionRequest).where(is_about(subject_refs))
    return list(
        session.scalars(
            query.order_by(tables.DeletionRequest.created_at.desc(), tables.DeletionRequest.id).limit(at_most)
        )
    )


def count_of(session: Session, table: type[T], *, request_id: str) -> int:
    """Count a request's notes or attachments."""
    query = sa.select(sa.func.count()).select_from(table).where(table.request_id == request_id)
    return session.scalars(query).one()


def keys_of(table: type[T], sealed: Any) -> Callable[[Session, Collection[str]], dict[str, list[str]]]:
    """Return a function that maps request ids to the keys that seal column `sealed` in the rows of these requests."""

    def keys(session: Session, request_ids: Collection[str]) -> dict[str, list[str]]:
        by_request: dict[str, list[str]] = {}
        query = sa.select(table.request_id, sealed).where(table.request_id.in_(request_ids))
        for request_id, content in session.execute(query):
            if content.key is not None:
                by_request.setdefault(request_id, []).append(content.key)
        return by_request

    return keys


def drop_of(table: type[T]) -> Callable[[Session, Collection[str]], None]:
    """Return a function that deletes the rows of `table` that belong to the given requests."""

    def drop(session: Session, request_ids: Collection[str]) -> None:
        session.execute(
            sa.delete(table).where(table.request_id.in_(request_ids)), execution_options={"synchronize_session": False}
        )

    return drop


def attachment(session: Session, *, request_id: str, attachment_id: str) -> RequestAttachment | None:
    query = sa.select(RequestAttachment).where(RequestAttachment.id == attachment_id)
    return session.scalars(query.where(RequestAttachment.request_id == request_id)).one_or_none()


def certificates_with(session: Session, *, prefix: str) -> list[tables.Certificate]:
    """Return up to ten certificates whose ids begin with `prefix`, which must end in a hexadecimal digit."""
    # A range, unlike LIKE, is served by the primary key on both databases.
    query = sa.select(tables.Certificate).where(tables.Certificate.id >= prefix, tables.Certificate.id < f"{prefix}g")
    return list(session.scalars(query.order_by(tables.Certificate.id).limit(10)))


def audit_entries(
    session: Session, *, tenant_id: str, before: int | None, limit: int, **matching: Any
) -> list[tables.AuditEntry]:
    """Return a tenant's newest `limit` audit entries numbered below `before`, filtered as in `audit_totals`."""
    query = _audit_query(sa.select(tables.AuditEntry), tenant_id=tenant_id, **matching)
    if before is not None:
        query = query.where(tables.AuditEntry.sequence < before)
    return list(session.scalars(query.order_by(tables.AuditEntry.sequence.desc()).limit(limit)))


def audit_totals(session: Session, *, tenant_id: str, at_most: int, **matching: Any) -> dict[str, int]:
    """Count a tenant's newest matching audit entries, up to `at_most`, grouped by action, most frequent first.

    `matching` can contain `object_id`, `actor`, `action`, and the times `since` and `until` (exclusive).
    """
    query = _audit_query(sa.select(tables.AuditEntry.action), tenant_id=tenant_id, **matching)
    newest = query.order_by(tables.AuditEntry.sequence.desc()).limit(at_most).subquery()
    total = sa.func.count().label("total")
    counted = sa.select(newest.c.action, total).group_by(newest.c.action).order_by(total.desc(), newest.c.action)
    return {row.action: row.total for row in session.execute(counted)}


def _audit_query(
    query: sa.Select[Any],
    *,
    tenant_id: str,
    since: datetime.datetime | None = None,
    until: datetime.datetime | None = None,
    **equal: str,
) -> sa.Select[Any]:
    query = query.where(tables.AuditEntry.tenant_id == tenant_id)
    for name, value in equal.items():
        query = query.where(getattr(tables.AuditEntry, name) == value)
    if since is not None:
        query = query.where(tables.AuditEntry.at >= since)
    return query if until is None else query.where(tables.AuditEntry.at < until)
