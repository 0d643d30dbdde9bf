"""SQL of metrics: requests shown as completed too early, and the runs that ended."""

import datetime

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.db.tables import Dataset, DeletionRequest, Run
from app.deletion.repository import these
from app.deletion.status import OPEN
from app.errors import AuditFailed
from lethe.contract.sets import RunStatus

_TESTED = sa.or_(sa.and_(Run.status == RunStatus.PUBLISHED, Run.audit.is_not(None)), Run.error_code == AuditFailed.code)
"""Condition that a run had a canary test, and either passed or failed because of it."""


def reported_open(session: Session, *, at: datetime.datetime) -> int:
    """Return the number of open requests that discreet callers already see as completed."""
    late = sa.and_(DeletionRequest.status.in_(these(OPEN)), DeletionRequest.discreet, DeletionRequest.reported_at <= at)
    return session.scalars(sa.select(sa.func.count()).select_from(DeletionRequest).where(late)).one()


def totals(session: Session, *, before: datetime.datetime) -> list[tuple[str, str, int, int, int]]:
    """Return (kind, status, runs, steps, tested runs) counts of all ended runs that began before `before`."""
    tested = sa.func.count().filter(_TESTED)
    query = (
        sa.select(Run.kind, Run.status, sa.func.sum(1 + Run.repeated), sa.func.sum(Run.steps_done), tested)
        .where(Run.status != RunStatus.RUNNING, Run.started_at < before)
        .group_by(Run.kind, Run.status)
    )
    return [(kind, status, count, steps, tests) for kind, status, count, steps, tests in session.execute(query)]


def ended(session: Session, *, began_from: datetime.datetime, ended_after: datetime.datetime) -> list[tuple[Run, bool]]:
    """Return the runs that began at `began_from` or later and ended at `ended_after` or later, each with whether it was
    tested."""
    query = sa.select(Run, _TESTED)
    query = query.where(Run.started_at >= began_from, Run.status != RunStatus.RUNNING, Run.finished_at >= ended_after)
    return [(run, bool(tested)) for run, tested in session.execute(query)]


def count_damaged(session: Session) -> int:
    damaged = Dataset.damaged_at.is_not(None), Dataset.retired_at.is_(None)
    return session.scalars(sa.select(sa.func.count()).where(*damaged)).one()
