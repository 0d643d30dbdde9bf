"""`/overview`: what waits, what is late, and whether it gets done."""

import datetime
from collections import Counter
from collections.abc import Sequence

from fastapi import APIRouter

from app import heartbeat
from app.api.calls import Call
from app.api.gateway import serves
from app.backup import repository as backup_repository
from app.deletion.status import OPEN
from app.operations import repository, standings
from app.operations import service as operations
from app.operations.standings import ModelStanding
from app.unlearning import repository as unlearning_repository
from app.webhooks import repository as webhooks_repository
from lethe.contract import overview as contract
from lethe.contract.overview import COUNTED, BackupsOut, HostOut, ModelsCountOut, OverviewOut
from lethe.contract.sets import DeliveryStatus, WorkerState

router = APIRouter()


@serves(router, contract.GET)
def get_overview(call: Call) -> OverviewOut:
    with call.reading() as session:
        found = operations.state(session, call.installation)
        ended = repository.ended_requests(session, at_most=COUNTED)
        models = call.find_once(session, standings.of_models)
        unresolved = unlearning_repository.unresolved_runs(session)
        undelivered = webhooks_repository.undelivered(session, at_most=COUNTED)
        backup_at, first_start = backup_repository.last_backup_at(session), backup_repository.first_start(session)
    failed_runs: Counter[str] = Counter()
    for _, code, count in unresolved:
        failed_runs[code or "unknown"] += count
    patience = datetime.timedelta(days=call.installation.settings.backup_days)
    waiting = {status.value: 0 for status in sorted(OPEN)}
    for some in found.waiting:
        waiting[some.status] += some.count
    return OverviewOut(
        open=waiting,
        ended=ended,
        at_risk=found.at_risk,
        overdue=found.overdue,
        queue_age_seconds=round(found.queue_age_seconds, 3),
        running=found.running,
        workers=found.workers,
        worker_seen_at=found.seen_at,
        hosts=[
            _host(name, seen_at, found.at)
            for name, seen_at in heartbeat.hosts(call.installation.settings.data_dir).items()
        ],
        models=_counted(models),
        failed_runs=failed_runs,
        undelivered={DeliveryStatus(status): count for status, count in undelivered.items()},
        backups=BackupsOut(last_at=backup_at, is_late=found.at - (backup_at or first_start or found.at) > patience),
    )


def _counted(models: Sequence[ModelStanding]) -> ModelsCountOut:
    return ModelsCountOut(
        total=len(models),
        waiting=sum(one.first_due_at is not None for one in models),
        failed=sum(one.has_failed for one in models),
        audits_passed=sum(one.refused is False for one in models),
        audits_refused=sum(one.refused is True for one in models),
        degraded=sum(one.degraded for one in models),
        held=sum(one.held for one in models),
        first_due_at=min((at for one in models if (at := one.first_due_at)), default=None),
    )


def _host(name: str, seen_at: datetime.datetime, at: datetime.datetime) -> HostOut:
    workers = WorkerState.SILENT if at - seen_at > heartbeat.SILENT_AFTER else WorkerState.ALIVE
    return HostOut(name=name, workers=workers, seen_at=seen_at)
