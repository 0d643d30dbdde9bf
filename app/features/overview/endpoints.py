"""Overview: the state of a tenant's requests, models, runs, webhooks and backups, in counts."""

import datetime
from collections import ChainMap, Counter
from collections.abc import Sequence
from typing import Protocol

import sqlalchemy as sa
from fastapi import APIRouter
from sqlalchemy.orm import Session

from app import heartbeat
from app.api import calls, gateway
from app.db.tables import AuditEntry, DeletionRequest, InstallationIdentity
from app.deletion.status import OPEN, TRANSITIONS
from app.journal import repository as backup_repository
from app.operations import service as operations
from app.unlearning import repository as unlearning_repository
from lethe import sockets
from lethe.contract.sets import WorkerState
from lethe.features.overview import contract
from lethe.features.webhooks.contract import DeliveryStatus

router = APIRouter()


class CountUndelivered(Protocol):
    """Hook (extension socket `UNDELIVERED`) that counts undelivered messages by status, each up to `at_most`."""

    def __call__(self, session: Session, *, at_most: int) -> dict[str, int]: ...


def _undelivered(session: Session, *, at_most: int) -> dict[str, int]:
    """Return the number of undelivered messages in each status; empty if no feature sends messages."""
    counters: tuple[CountUndelivered, ...] = sockets.plugs("app.features", "hooks", "UNDELIVERED")
    return {status: number for count in counters for status, number in count(session, at_most=at_most).items()}


@gateway.serves(router, contract.GET)
def get_overview(call: calls.Call) -> contract.OverviewOut:
    with call.reading() as session:
        state = operations.state(session, call.installation)
        ended = _ended_requests(session, at_most=contract.COUNTED)
        models = call.find_once(session, operations.standings)
        unresolved = unlearning_repository.unresolved_runs(session)
        undelivered = _undelivered(session, at_most=contract.COUNTED)
        counts = [count(session) for count in sockets.plugs("app.features", "hooks", "STORED_BYTES")]
        backup_at = _last_backup_at(session)
        first_start = session.scalar(sa.select(InstallationIdentity.created_at))
    failed_runs: Counter[str] = Counter()
    for _, code, count in unresolved:
        failed_runs[code or "unknown"] += count
    patience = datetime.timedelta(days=call.installation.settings.backup_days)
    waiting = {status.value: 0 for status in sorted(OPEN)}
    for group in state.waiting:
        waiting[group.status] += group.count
    return contract.OverviewOut.of(
        state,
        open=waiting,
        ended=ended,
        queue_age_seconds=round(state.queue_age_seconds, 3),
        worker_seen_at=state.seen_at,
        hosts=[
            _host(name, seen_at, state.at)
            for name, seen_at in heartbeat.hosts(call.installation.settings.data_dir).items()
        ],
        models=_counted(models),
        failed_runs=failed_runs,
        undelivered={DeliveryStatus(status): count for status, count in undelivered.items()},
        stored_bytes=dict(ChainMap(*counts)),
        max_stored_bytes=call.installation.settings.max_tenant_bytes,
        backups=contract.BackupsOut(
            last_at=backup_at, is_late=state.at - (backup_at or first_start or state.at) > patience
        ),
    )


def _counted(models: Sequence[operations.ModelStanding]) -> contract.ModelsCountOut:
    return contract.ModelsCountOut(
        total=len(models),
        waiting=sum(standing.first_due_at is not None for standing in models),
        failed=sum(standing.has_failed for standing in models),
        audits_passed=sum(standing.refused is False for standing in models),
        audits_refused=sum(standing.refused is True for standing in models),
        degraded=sum(standing.degraded for standing in models),
        held=sum(standing.held for standing in models),
        first_due_at=min((at for standing in models if (at := standing.first_due_at)), default=None),
    )


def _host(name: str, seen_at: datetime.datetime, at: datetime.datetime) -> contract.HostOut:
    workers = WorkerState.SILENT if at - seen_at > heartbeat.SILENT_AFTER else WorkerState.ALIVE
    return contract.HostOut(name=name, workers=workers, seen_at=seen_at)


def _ended_requests(session: Session, *, at_most: int) -> dict[str, int]:
    """Return the number of requests in each final status, each counted up to `at_most`."""
    counts = []
    for status in sorted(TRANSITIONS.keys() - OPEN):
        ids = sa.select(DeletionRequest.id).where(DeletionRequest.status == status).limit(at_most).subquery()
        counts.append(sa.select(sa.func.count()).select_from(ids).scalar_subquery().label(status.value))
    return dict(session.execute(sa.select(*counts)).mappings().one())


def _last_backup_at(session: Session) -> datetime.datetime | None:
    """Return the time of the last finished backup in the tenant's audit log; None if there is none."""
    # Hexadecimal digits follow the prefix.
    is_backup = sa.and_(AuditEntry.object_id >= "bak_", AuditEntry.object_id < "bak_g")
    query = sa.select(sa.func.max(AuditEntry.at)).where(is_backup, AuditEntry.action == backup_repository.BACKED_UP)
    return session.scalar(query)


MOUNTS = (gateway.Mount(router=router),)
