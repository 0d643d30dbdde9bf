"""All SQL about how the service is doing: over open requests and recent runs, whatever lies in the archive."""

import datetime
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.db.tables import DeletionRequest, Run
from app.deletion.status import OPEN

_OPEN: sa.BindParameter[list[str]] = sa.bindparam("open", sorted(OPEN), expanding=True, literal_execute=True)
"""In the statement itself: SQLite uses an index of open requests only if it can see that they are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """Open requests of one status under one regulation."""

    status: str
    regulation: str
    count: int
    overdue: int
    at_risk: int  # due within the horizon, and not overdue
    oldest: datetime.datetime


def waiting(session: Session, *, at: datetime.datetime, horizon: datetime.timedelta) -> list[Waiting]:
    due = sa.func.coalesce(DeletionRequest.extended_due_at, DeletionRequest.due_at)
    query = (
        sa.select(
            DeletionRequest.status,
            DeletionRequest.regulation,
            sa.func.count(),
            sa.func.count().filter(due <= at),
            sa.func.count().filter(due > at, due <= at + horizon),
            sa.func.min(DeletionRequest.created_at),
        )
        .where(DeletionRequest.status.in_(_OPEN))
        .group_by(DeletionRequest.status, DeletionRequest.regulation)
    )
    return [
        Waiting(status=status, regulation=regulation, count=count, overdue=overdue, at_risk=at_risk, oldest=oldest)
        for status, regulation, count, overdue, at_risk, oldest in session.execute(query)
    ]


def running(session: Session) -> list[Run]:
    return list(session.scalars(sa.select(Run).where(Run.status == "running")))


def latest(session: Session, *, limit: int) -> list[Run]:
    """The runs that began last and have ended, newest first."""
    query = sa.select(Run).where(Run.status != "running").order_by(Run.started_at.desc(), Run.id.desc())
    return list(session.scalars(query.limit(limit)))


def totals(session: Session, *, before: datetime.datetime) -> list[tuple[str, str, int, int]]:
    """Kind, status, count and steps of all ended runs that began before."""
    query = (
        sa.select(Run.kind, Run.status, sa.func.count(), sa.func.sum(Run.steps_done))
        .where(Run.status != "running", Run.started_at < before)
        .group_by(Run.kind, Run.status)
    )
    return [(kind, status, count, steps) for kind, status, count, steps in session.execute(query)]


def ended(session: Session, *, began_from: datetime.datetime, ended_after: datetime.datetime) -> list[Run]:
    """Runs that began at or after the one and ended at or after the other."""
    query = sa.select(Run).where(Run.started_at >= began_from, Run.status != "running", Run.finished_at >= ended_after)
    return list(session.scalars(query))
