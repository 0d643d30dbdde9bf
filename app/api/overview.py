"""`/overview`: what waits, what is late, and whether it gets done."""

import datetime
from typing import Annotated, Literal

from fastapi import APIRouter
from pydantic import BaseModel, Field

from app import heartbeat
from app.api.calls import Call, call_with
from app.api.problems import responses
from app.deletion.status import OPEN
from app.operations import repository
from app.operations import service as operations
from lethe.contract.sets import Scope

router = APIRouter(tags=["Operations"])

_COUNTED = 10_000


class HostOut(BaseModel):
    """A host whose workers share the data folder of the gateway."""

    name: str
    workers: Literal["alive", "silent"] = Field(description="silent: no sign of life for a minute")
    seen_at: datetime.datetime


class OverviewOut(BaseModel):
    open: dict[str, int] = Field(description="How many requests of each status are not done.")
    ended: dict[str, int] = Field(description=f"How many ended in each way, counted up to {_COUNTED:,}.")
    at_risk: int = Field(description="Open requests due within LETHE_RISK_DAYS.")
    overdue: int = Field(description="Open requests past their deadline.")
    queue_age_seconds: float = Field(description="How long the oldest request has waited for a worker, or 0.")
    running: int = Field(description="Runs under way.")
    workers: str = Field(description="alive, silent (no sign of life for a minute) or failing (no run gets through)")
    worker_seen_at: datetime.datetime | None = Field(description="The last sign of life of any worker.")
    hosts: list[HostOut] = Field(description="Where workers that share the data folder gave signs of life in a week.")


@router.get("/overview", responses=responses())
def get_overview(call: Annotated[Call, call_with(Scope.ACCOUNTING_READ)]) -> OverviewOut:
    """How a tenant's requests stand, in numbers. Who may not learn whether anything is held could tell it from them."""
    with call.reading() as session:
        found = operations.state(session, call.installation)
        ended = repository.ended_requests(session, at_most=_COUNTED)
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
