"""All SQL about API keys and remembered answers."""

import datetime
from collections.abc import Sequence
from typing import Any

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


_ANSWERS = sa.select(IdempotentAnswer).where(
    sa.tuple_(IdempotentAnswer.api_key_id, IdempotentAnswer.idempotency_key).in_(sa.bindparam("names", expanding=True))
)
_ADD_ANSWERS = sa.insert(IdempotentAnswer.metadata.tables[IdempotentAnswer.__tablename__])


def answers(session: Session, names: Sequence[tuple[str, str]]) -> list[IdempotentAnswer]:
    """What was answered to calls, each named by its API key and its idempotency key."""
    return list(session.scalars(_ANSWERS, {"names": names}))


def add_answers(session: Session, rows: Sequence[dict[str, Any]]) -> None:
    if rows:
        session.connection().execute(_ADD_ANSWERS, rows)
