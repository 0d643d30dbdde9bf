"""All SQL about why people leave."""

import datetime

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.db.tables import LeavingCount


def of_week(
    session: Session, *, tenant_id: str, week: datetime.datetime, odds: int, answer: str
) -> LeavingCount | None:
    key = {"tenant_id": tenant_id, "week": week, "odds": odds, "answer": answer}
    return session.get(LeavingCount, key)


def counts(
    session: Session, *, since: datetime.datetime | None, until: datetime.datetime | None
) -> dict[int, dict[str, int]]:
    """Number of times that each answer was sent, by odds, in the weeks that begin in [since, until)."""
    query = sa.select(LeavingCount.odds, LeavingCount.answer, sa.func.sum(LeavingCount.num_sent))
    if since is not None:
        query = query.where(LeavingCount.week >= since)
    if until is not None:
        query = query.where(LeavingCount.week < until)
    found: dict[int, dict[str, int]] = {}
    grouped = query.group_by(LeavingCount.odds, LeavingCount.answer).order_by(LeavingCount.odds)
    for odds, answer, sent in session.execute(grouped):
        found.setdefault(odds, {})[answer] = int(sent)
    return found
