"""All SQL about identity issuers and the statements of theirs that were used."""

import datetime
from collections.abc import Collection

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.db.paging import Page, page
from app.db.tables import IdentityIssuer, UsedStatement


def get(session: Session, issuer_id: str) -> IdentityIssuer | None:
    return session.get(IdentityIssuer, issuer_id)


def by_name(session: Session, issuer: str) -> IdentityIssuer | None:
    return session.scalars(sa.select(IdentityIssuer).where(IdentityIssuer.issuer == issuer)).one_or_none()


def listed(session: Session, *, limit: int, cursor: str | None) -> Page[IdentityIssuer]:
    query = sa.select(IdentityIssuer)
    return page(session, query, IdentityIssuer.created_at, IdentityIssuer.id, limit=limit, cursor=cursor)


def drop(session: Session, issuer: IdentityIssuer) -> None:
    session.execute(sa.delete(UsedStatement).where(UsedStatement.issuer_id == issuer.id))
    session.delete(issuer)


def existing(session: Session, issuer_ids: Collection[str]) -> set[str]:
    return set(session.scalars(sa.select(IdentityIssuer.id).where(IdentityIssuer.id.in_(issuer_ids))))


def used(session: Session, hashes: Collection[str]) -> set[str]:
    return set(session.scalars(sa.select(UsedStatement.statement_hash).where(UsedStatement.statement_hash.in_(hashes))))


def is_any_expired(session: Session, *, at: datetime.datetime) -> bool:
    return (
        session.scalars(sa.select(UsedStatement.expires_at).where(UsedStatement.expires_at < at).limit(1)).first()
        is not None
    )


def drop_expired(session: Session, *, at: datetime.datetime, limit: int) -> int:
    query = sa.select(UsedStatement).where(UsedStatement.expires_at < at).limit(limit)
    found = list(session.scalars(query))
    for row in found:
        session.delete(row)
    return len(found)
