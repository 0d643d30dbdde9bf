"""All SQL that counts requests by days and weeks: grouped in the database, which reads indexes alone."""

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.db.seconds import seconds
from app.db.tables import DeletionRequest
from app.deletion import search_repository
from app.deletion.views import View

_SECONDS_OF_A_DAY = 86400


@dataclass(frozen=True, slots=True, kw_only=True)
class Completed:
    """Requests completed between the same two moments, after the same number of whole days."""

    place: int
    days: int
    count: int
    in_time: int  # completed before their deadline


def overdue(session: Session, *, view: View) -> int:
    """Number of open requests past their deadline whose clock runs."""
    query = sa.select(sa.func.count()).select_from(DeletionRequest)
    return session.scalars(query.where(search_repository.is_overdue(view), search_repository.is_open(view))).one()


def due(session: Session, edges: Sequence[datetime.datetime], *, view: View) -> dict[int, int]:
    """Number of open requests by the place of their deadline: before the first edge (0), before the second (1), and so
    on; after the last (their number)."""
    place = _place(DeletionRequest.deadline, edges).label("place")
    query = sa.select(place, sa.func.count()).where(search_repository.is_open(view)).group_by(place)
    return dict(session.execute(query).all())


def received(session: Session, edges: Sequence[datetime.datetime]) -> dict[int, int]:
    """Number of requests submitted between the edges, by place."""
    at = DeletionRequest.submitted_at
    place = _place(at, edges).label("place")
    query = sa.select(place, sa.func.count()).where(at >= edges[0], at < edges[-1]).group_by(place)
    return dict(session.execute(query).all())


def completed(session: Session, edges: Sequence[datetime.datetime], *, view: View) -> list[Completed]:
    """Requests completed between the edges, by place and by how long they took, in the eyes of the reader."""
    at = search_repository.completed_at(view)
    place = _place(at, edges).label("place")
    days = ((seconds(at) - seconds(DeletionRequest.submitted_at)) // _SECONDS_OF_A_DAY).label("days")
    in_time = sa.func.count().filter(at < DeletionRequest.deadline)
    within = search_repository.was_completed(view, since=edges[0], before=edges[-1])
    query = sa.select(place, days, sa.func.count(), in_time).where(within).group_by(place, days)
    return [
        Completed(place=where, days=took, count=count, in_time=early)
        for where, took, count, early in session.execute(query)
    ]


def _place(
    column: sa.SQLColumnExpression[Any], edges: Sequence[datetime.datetime], first: int = 0
) -> sa.ColumnElement[int]:
    """Number of edges at or before the moment, found by halving."""
    if not edges:
        return sa.literal(first, sa.Integer, literal_execute=True)
    middle = len(edges) // 2
    earlier = _place(column, edges[:middle], first)
    return sa.case((column < edges[middle], earlier), else_=_place(column, edges[middle + 1 :], first + middle + 1))
