"""All SQL about API keys and remembered answers."""

import datetime

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.db.paging import Page, page
from app.db.tables import ApiKey, IdempotentAnswer


def by_hash(session: Session, key_hash: str) -> ApiKey | None:
    return session.scalars(sa.select(ApiKey).where(ApiKey.key_hash == key_hash)).one_or_none()


def keys(session: Session, *, limit: int, cursor: str | None) -> Page[ApiKey]:
    return page(session, sa.select(ApiKey), ApiKey.created_at, ApiKey.id, limit=limit, cursor=cursor)


def revoke(session: Session, key_id: str, *, at: datetime.datetime) -> bool:
    row = session.get(ApiKey, key_id)
    if row is None or row.revoked_at is not None:
        return False
    row.revoked_at = at
    return True


def answer(session: Session, *, api_key_id: str, idempotency_key: str) -> IdempotentAnswer | None:
    return session.get(IdempotentAnswer, (api_key_id, idempotency_key))
