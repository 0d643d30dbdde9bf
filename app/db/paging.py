"""Pages that stay right while rows arrive: the cursor is the place of the last row, not a count."""

import base64
import binascii
import datetime
import json
from dataclasses import dataclass
from typing import Generic, TypeVar, TypeVarTuple

import sqlalchemy as sa
from sqlalchemy.orm import InstrumentedAttribute, Session

from app.db import sealed
from lethe.contract.problems import FieldError, InputInvalid

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    items: list[T]
    next_cursor: str | None


def page(
    session: Session,
    query: sa.Select[T],
    at: InstrumentedAttribute[datetime.datetime],
    key: InstrumentedAttribute[str],
    *,
    limit: int,
    cursor: str | None,
    ascending: bool = False,
) -> Page[T]:
    """The `limit` rows of `query` that come after `cursor`, ordered by (`at`, `key`), descending unless `ascending`.

    Raises `InputInvalid` for a cursor that no page gave.
    """
    query = ordered(query, at, key, limit=limit, cursor=cursor, ascending=ascending)
    return cut(session, query, at, key, limit=limit)


def ordered(
    query: sa.Select[*Ts],
    at: InstrumentedAttribute[datetime.datetime],
    key: InstrumentedAttribute[str],
    *,
    limit: int,
    cursor: str | None,
    ascending: bool = False,
) -> sa.Select[*Ts]:
    """The statement of a page, which finds one row more than `limit` if there is a next one. Raises as `page` does."""
    if cursor is not None:
        last_at, last_key = _decode(cursor)
        last = sa.tuple_(sa.literal(last_at, at.type), sa.literal(last_key, key.type))
        here = sa.tuple_(at, key)
        query = query.where(here > last if ascending else here < last)  # one range of an index, which an OR is not
    order = (at.asc(), key.asc()) if ascending else (at.desc(), key.desc())
    return query.order_by(*order).limit(limit + 1)


def cut(
    session: Session,
    query: sa.Select[T],
    at: InstrumentedAttribute[datetime.datetime],
    key: InstrumentedAttribute[str],
    *,
    limit: int,
) -> Page[T]:
    """The page of what such a statement finds; for rows of another table, which has the same under names of its own."""
    with sealed.opening(session):
        rows = list(session.scalars(query))
    more = len(rows) > limit
    rows = rows[:limit]
    return Page(rows, _encode(getattr(rows[-1], at.key), getattr(rows[-1], key.key)) if more else None)


def _encode(at: datetime.datetime, key: str) -> str:
    return base64.urlsafe_b64encode(json.dumps([at.isoformat(), key]).encode()).decode().rstrip("=")


def _decode(cursor: str) -> tuple[datetime.datetime, str]:
    try:
        at, key = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
        moment = datetime.datetime.fromisoformat(at)
        if moment.tzinfo is None or not isinstance(key, str):
            raise ValueError
        moment = moment.astimezone(datetime.UTC)
        key.encode()  # a lone surrogate is no text
    except (ValueError, TypeError, OverflowError, binascii.Error) as error:
        message = "Expected the next_cursor of an earlier page"
        raise InputInvalid(message, [FieldError("cursor", message)]) from error
    return moment, key
