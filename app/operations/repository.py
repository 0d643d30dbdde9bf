"""All SQL about how the service is doing: over open requests and recent runs, whatever lies in the archive."""

import datetime
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.db.tables import DeletionRequest, Run
from app.deletion.status import OPEN, TRANSITIONS
from app.errors import AuditFailed
from lethe.contract.sets import RunStatus

_OPEN: sa.BindParameter[list[str]] = sa.bindparam("open", sorted(OPEN), expanding=True, literal_execute=True)
"""In the statement itself: SQLite uses an index of open requests only if it can see that they are."""
_AUDITED = sa.or_(
    sa.and_(Run.status == RunStatus.PUBLISHED, Run.audit.is_not(None)), Run.error_code == AuditFailed.code
)
"""Runs whose audit was made and either passed, or was why they failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """A tenant's open requests of one status under one regulation."""

    tenant_id: str
    status: str
    regulation: str
    count: int
    overdue: int
    at_risk: int  # due within the horizon, and not overdue; nor is a paused clock either
    oldest: datetime.datetime | None  # since when the one that waits longest could have been begun


def reported_open(session: Session, *, at: datetime.datetime) -> int:
    """Number of requests that apps see as completed and that are not."""
    late = sa.and_(DeletionRequest.status.in_(_OPEN), DeletionRequest.discreet, DeletionRequest.reported_at <= at)
    return session.scalars(sa.select(sa.func.count()).select_from(DeletionRequest).where(late)).one()


def waiting(session: Session, *, at: datetime.datetime, horizon: datetime.timedelta) -> list[Waiting]:
    due, held, runs = DeletionRequest.deadline, DeletionRequest.held_until, DeletionRequest.paused_at.is_(None)
    query = (
        sa.select(
            DeletionRequest.tenant_id,
            DeletionRequest.status,
            DeletionRequest.regulation,
            sa.func.count(),
            sa.func.count().filter(runs, due <= at),
            sa.func.count().filter(runs, due > at, due <= at + horizon),
            sa.func.min(sa.case((held <= at, held), (held.is_(None), DeletionRequest.created_at))),
        )
        .where(DeletionRequest.status.in_(_OPEN))
        .group_by(DeletionRequest.status, DeletionRequest.tenant_id, DeletionRequest.regulation)
    )
    return [
        Waiting(
            tenant_id=tenant_id,
            status=status,
            regulation=regulation,
            count=count,
            overdue=overdue,
            at_risk=at_risk,
            oldest=oldest,
        )
        for tenant_id, status, regulation, count, overdue, at_risk, oldest in session.execute(query)
    ]


def ended_requests(session: Session, *, at_most: int) -> dict[str, int]:
    """Number of requests that ended in each way, counted up to `at_most`."""
    counts = []
    for status in sorted(TRANSITIONS.keys() - OPEN):
        some = sa.select(DeletionRequest.id).where(DeletionRequest.status == status).limit(at_most).subquery()
        counts.append(sa.select(sa.func.count()).select_from(some).scalar_subquery().label(status.value))
    return dict(session.execute(sa.select(*counts)).mappings().one())


def running(session: Session) -> list[Run]:
    return list(session.scalars(sa.select(Run).where(Run.status == RunStatus.RUNNING)))


def latest(session: Session, *, limit: int) -> list[Run]:
    """The runs that began last and have ended by themselves, newest first."""
    query = (
        sa.select(Run)
        .where(Run.status.not_in((RunStatus.RUNNING, RunStatus.CANCELLED)))
        .order_by(Run.started_at.desc(), Run.id.desc())
    )
    return list(session.scalars(query.limit(limit)))


def totals(session: Session, *, before: datetime.datetime) -> list[tuple[str, str, int, int, int]]:
    """Kind, status, count, steps, and how many were audited, of all ended runs that began before."""
    audited = sa.func.count().filter(_AUDITED)
    query = (
        sa.select(Run.kind, Run.status, sa.func.sum(1 + Run.repeated), sa.func.sum(Run.steps_done), audited)
        .where(Run.status != RunStatus.RUNNING, Run.started_at < before)
        .group_by(Run.kind, Run.status)
    )
    return [(kind, status, count, steps, audits) for kind, status, count, steps, audits in session.execute(query)]


def ended(session: Session, *, began_from: datetime.datetime, ended_after: datetime.datetime) -> list[tuple[Run, bool]]:
    """Runs that began at or after the one and ended at or after the other, and whether they were audited."""
    query = sa.select(Run, _AUDITED)
    query = query.where(Run.started_at >= began_from, Run.status != RunStatus.RUNNING, Run.finished_at >= ended_after)
    return [(run, bool(audited)) for run, audited in session.execute(query)]
