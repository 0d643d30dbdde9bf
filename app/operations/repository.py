"""SQL of monitoring. The queries read open requests and recent runs, so ended requests do not slow them down."""

import datetime
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.db.tables import DeletionRequest, Run
from app.deletion.repository import these
from app.deletion.status import OPEN, TRANSITIONS
from app.errors import AuditFailed
from lethe.contract.sets import RunStatus

_OPEN = these(OPEN)
_TESTED = sa.or_(sa.and_(Run.status == RunStatus.PUBLISHED, Run.audit.is_not(None)), Run.error_code == AuditFailed.code)
"""Condition that a run had a canary test, and either passed or failed because of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingCount:
    """Number of a tenant's open requests of one status under one regulation. `at_risk` counts requests due within the
    horizon, without overdue requests and paused clocks. `oldest` is the time since which the longest waiting request
    could have been started."""

    tenant_id: str
    status: str
    regulation: str
    count: int
    overdue: int
    at_risk: int
    oldest: datetime.datetime | None


def reported_open(session: Session, *, at: datetime.datetime) -> int:
    """Return the number of open requests that discreet callers already see as completed."""
    late = sa.and_(DeletionRequest.status.in_(_OPEN), DeletionRequest.discreet, DeletionRequest.reported_at <= at)
    return session.scalars(sa.select(sa.func.count()).select_from(DeletionRequest).where(late)).one()


def waiting(session: Session, *, at: datetime.datetime, horizon: datetime.timedelta) -> list[WaitingCount]:
    deadline, held_until = DeletionRequest.deadline, DeletionRequest.held_until
    runs = DeletionRequest.paused_at.is_(None)
    query = (
        sa.select(
            DeletionRequest.tenant_id,
            DeletionRequest.status,
            DeletionRequest.regulation,
            sa.func.count().label("count"),
            sa.func.count().filter(runs, deadline <= at).label("overdue"),
            sa.func.count().filter(runs, deadline > at, deadline <= at + horizon).label("at_risk"),
            sa.func.min(
                sa.case((held_until <= at, held_until), (held_until.is_(None), DeletionRequest.created_at))
            ).label("oldest"),
        )
        .where(DeletionRequest.status.in_(_OPEN))
        .group_by(DeletionRequest.status, DeletionRequest.tenant_id, DeletionRequest.regulation)
    )
    return [WaitingCount(**group) for group in session.execute(query).mappings()]


def ended_requests(session: Session, *, at_most: int) -> dict[str, int]:
    """Return the number of requests by final status, each counted up to `at_most`."""
    counts = []
    for status in sorted(TRANSITIONS.keys() - OPEN):
        ids = sa.select(DeletionRequest.id).where(DeletionRequest.status == status).limit(at_most).subquery()
        counts.append(sa.select(sa.func.count()).select_from(ids).scalar_subquery().label(status.value))
    return dict(session.execute(sa.select(*counts)).mappings().one())


def running(session: Session) -> list[Run]:
    return list(session.scalars(sa.select(Run).where(Run.status == RunStatus.RUNNING)))


def latest(session: Session, *, limit: int) -> list[Run]:
    """Return the latest ended runs by start, without cancelled ones, newest first."""
    query = (
        sa.select(Run)
        .where(Run.status.not_in((RunStatus.RUNNING, RunStatus.CANCELLED)))
        .order_by(Run.started_at.desc(), Run.id.desc())
    )
    return list(session.scalars(query.limit(limit)))


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
