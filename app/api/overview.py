"""`/overview`: what waits, what is late, and whether it gets done."""

import datetime

from fastapi import APIRouter

from app import heartbeat
from app.api.calls import Call
from app.api.gateway import serves
from app.deletion.status import OPEN
from app.operations import repository
from app.operations import service as operations
from lethe.contract import overview as contract
from lethe.contract.overview import COUNTED, HostOut, OverviewOut

router = APIRouter()


@serves(router, contract.GET)
def get_overview(call: Call) -> OverviewOut:
    with call.reading() as session:
        found = operations.state(session, call.installation)
        ended = repository.ended_requests(session, at_most=COUNTED)
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
    )


def _host(name: str, seen_at: datetime.datetime, at: datetime.datetime) -> HostOut:
    is_silent = at - seen_at > heartbeat.SILENT_AFTER
    return HostOut(name=name, workers="silent" if is_silent else "alive", seen_at=seen_at)
