"""SQL queries about the service's state, limited to open requests and recent runs so that ended ones add no cost."""

import datetime
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.db.tables import DeletionRequest, Erasure, Run
from app.deletion.repository import has_clock, these
from app.deletion.status import OPEN
from app.unlearning import due_repository
from lethe.contract.sets import ClockState, RunStatus

_OPEN = these(OPEN)


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingCount:
    """Number of a tenant's open requests with one status under one regulation. `at_risk` counts requests due within the
    horizon, excluding overdue and paused requests. `oldest` is when the longest-waiting request became ready to start;
    requests in a batch that is still filling up are not waiting."""

    tenant_id: str
    status: str
    regulation: str
    count: int
    overdue: int
    at_risk: int
    oldest: datetime.datetime | None


def waiting(session: Session, *, at: datetime.datetime, horizon: datetime.timedelta) -> list[WaitingCount]:
    held_until, at_risk = DeletionRequest.held_until, has_clock(ClockState.AT_RISK, at=at, horizon=horizon)
    batching = due_repository.patient_datasets(session, due_repository.patient_models(session, at=at))
    unerased = sa.exists().where(Erasure.request_id == DeletionRequest.id, Erasure.nulled_at.is_(None))
    in_batch = unerased & ~unerased.where(Erasure.dataset_id.not_in(batching)) if batching else sa.false()
    query = (
        sa.select(
            DeletionRequest.tenant_id,
            DeletionRequest.status,
            DeletionRequest.regulation,
            sa.func.count().label("count"),
            sa.func.count().filter(has_clock(ClockState.OVERDUE, at=at)).label("overdue"),
            sa.func.count().filter(at_risk).label("at_risk"),
            sa.func.min(sa.case((held_until <= at, held_until), (held_until.is_(None), DeletionRequest.created_at)))
            .filter(~in_batch)
            .label("oldest"),
        )
        .where(DeletionRequest.status.in_(_OPEN))
        .group_by(DeletionRequest.status, DeletionRequest.tenant_id, DeletionRequest.regulation)
    )
    return [WaitingCount(**group) for group in session.execute(query).mappings()]


def running(session: Session) -> list[Run]:
    return list(session.scalars(sa.select(Run).where(Run.status == RunStatus.RUNNING)))


def latest(session: Session, *, limit: int) -> list[Run]:
    """Return the latest `limit` runs that have ended without being cancelled, ordered by start time, newest first."""
    query = (
        sa.select(Run)
        .where(Run.status.not_in((RunStatus.RUNNING, RunStatus.CANCELLED)))
        .order_by(Run.started_at.desc(), Run.id.desc())
    )
    return list(session.scalars(query.limit(limit)))
