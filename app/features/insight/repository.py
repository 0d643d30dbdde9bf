"""SQL of the summary of requests: counts of open requests by their deadline, and of received and completed ones."""

import datetime
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.db.functions import days_between
from app.db.tables import DeletionRequest
from app.deletion.search_repository import completed_at, is_open, is_overdue, was_completed
from app.deletion.views import View

_ALL = 2**62
"""Limit above any number of rows."""


def count_due(session: Session, edges: Sequence[datetime.datetime], *, view: View) -> list[tuple[int, int, int]]:
    """Return (place, open requests, overdue ones among them) by the place of the deadlines: 0 before the first edge, 1
    before the second, and so on, up to len(edges) after the last."""
    place = _place(DeletionRequest.deadline, edges).label("place")
    overdue = sa.func.count().filter(is_overdue(view))
    query = sa.select(place, sa.func.count(), overdue).where(is_open(view)).group_by(place)
    return [(where, count, late) for where, count, late in session.execute(query)]


def count_received(session: Session, edges: Sequence[datetime.datetime]) -> list[int]:
    """Return the number of requests submitted between each pair of consecutive edges."""
    at = DeletionRequest.submitted_at
    return _counted(session, edges, lambda since, before: sa.and_(at >= since, at < before))


def count_completed(session: Session, edges: Sequence[datetime.datetime], *, view: View) -> list[int]:
    """Return the number of requests completed, as the reader sees it, between each pair of consecutive edges."""
    return _counted(session, edges, lambda since, before: was_completed(view, since=since, before=before))


def count_durations(
    session: Session, *, since: datetime.datetime, before: datetime.datetime, view: View
) -> dict[int, tuple[int, int]]:
    """Count the requests completed in [since, before), as the reader sees it, by whole days from submission. Return the
    number of all and of those completed before their deadline."""
    at = completed_at(view)
    is_early = sa.cast(at < DeletionRequest.deadline, sa.Integer)
    both = (2 * days_between(DeletionRequest.submitted_at, at) + is_early).label("both")
    within = was_completed(view, since=since, before=before)
    # With a limit SQLite sorts only these numbers.
    each = sa.select(both).where(within).limit(_ALL).subquery()
    by_days: dict[int, list[int]] = {}
    for number, count in session.execute(sa.select(each.c.both, sa.func.count()).group_by(each.c.both)):
        by_days.setdefault(number // 2, [0, 0])[number % 2] = count
    return {days: (late + in_time, in_time) for days, (late, in_time) in by_days.items()}


def _counted(
    session: Session,
    edges: Sequence[datetime.datetime],
    within: Callable[[datetime.datetime, datetime.datetime], sa.ColumnElement[bool]],
) -> list[int]:
    """Count requests between each pair of edges along an index; SQLite would sort the rows to group them."""
    count = sa.select(sa.func.count()).select_from(DeletionRequest)
    counts = [count.where(within(since, before)).scalar_subquery() for since, before in pairwise(edges)]
    return list(session.execute(sa.select(*counts)).one())


def _place(
    column: sa.SQLColumnExpression[Any], edges: Sequence[datetime.datetime], first: int = 0
) -> sa.ColumnElement[int]:
    """Return the expression for the number of edges at or before the column's value, as a binary search."""
    if not edges:
        return sa.literal(first, sa.Integer, literal_execute=True)
    middle = len(edges) // 2
    earlier = _place(column, edges[:middle], first)
    return sa.case((column < edges[middle], earlier), else_=_place(column, edges[middle + 1 :], first + middle + 1))
