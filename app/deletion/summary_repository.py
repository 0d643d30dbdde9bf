"""All SQL that counts requests by days and weeks: in the database, which reads indexes alone."""

import datetime
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.db.elapsed import days_between
from app.db.tables import DeletionRequest
from app.deletion import search_repository
from app.deletion.views import View

_ALL = 2**62
"""More rows than there are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """Open requests whose deadlines are between the same two moments."""

    place: int
    count: int
    overdue: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Took:
    """Requests completed after the same number of whole days."""

    days: int
    count: int
    in_time: int  # completed before their deadline


def due(session: Session, edges: Sequence[datetime.datetime], *, view: View) -> list[Due]:
    """Open requests by the place of their deadline: before the first edge (0), before the second (1), and so on; after
    the last (their number)."""
    place = _place(DeletionRequest.deadline, edges).label("place")
    overdue = sa.func.count().filter(search_repository.is_overdue(view))
    query = sa.select(place, sa.func.count(), overdue).where(search_repository.is_open(view)).group_by(place)
    return [Due(place=where, count=count, overdue=late) for where, count, late in session.execute(query)]


def received(session: Session, edges: Sequence[datetime.datetime]) -> list[int]:
    """Number of requests submitted between each two edges."""
    at = DeletionRequest.submitted_at
    return _counted(session, edges, lambda since, before: sa.and_(at >= since, at < before))


def completed(session: Session, edges: Sequence[datetime.datetime], *, view: View) -> list[int]:
    """Number of requests completed between each two edges, in the eyes of the reader."""
    return _counted(
        session, edges, lambda since, before: search_repository.was_completed(view, since=since, before=before)
    )


def took(session: Session, *, since: datetime.datetime, before: datetime.datetime, view: View) -> list[Took]:
    """Requests completed in [since, before) in the eyes of the reader, by how long they took."""
    at = search_repository.completed_at(view)
    is_early = sa.cast(at < DeletionRequest.deadline, sa.Integer)
    both = (2 * days_between(DeletionRequest.submitted_at, at) + is_early).label("both")
    within = search_repository.was_completed(view, since=since, before=before)
    each = sa.select(both).where(within).limit(_ALL).subquery()  # with a limit SQLite sorts nothing but these numbers
    found: dict[int, list[int]] = {}
    for number, count in session.execute(sa.select(each.c.both, sa.func.count()).group_by(each.c.both)):
        found.setdefault(number // 2, [0, 0])[number % 2] = count
    return [Took(days=days, count=sum(counts), in_time=counts[1]) for days, counts in found.items()]


def _counted(
    session: Session,
    edges: Sequence[datetime.datetime],
    within: Callable[[datetime.datetime, datetime.datetime], sa.ColumnElement[bool]],
) -> list[int]:
    """Count along an index between each two edges: to group as many rows, SQLite would sort them."""
    one = sa.select(sa.func.count()).select_from(DeletionRequest)
    counts = [one.where(within(since, before)).scalar_subquery() for since, before in pairwise(edges)]
    return list(session.execute(sa.select(*counts)).one())


def _place(
    column: sa.SQLColumnExpression[Any], edges: Sequence[datetime.datetime], first: int = 0
) -> sa.ColumnElement[int]:
    """Number of edges at or before the moment, found by halving."""
    if not edges:
        return sa.literal(first, sa.Integer, literal_execute=True)
    middle = len(edges) // 2
    earlier = _place(column, edges[:middle], first)
    return sa.case((column < edges[middle], earlier), else_=_place(column, edges[middle + 1 :], first + middle + 1))
