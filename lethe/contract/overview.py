"""The overview: what waits, what is late, and whether it gets done."""

import datetime

from pydantic import Field

from lethe.contract.fields import Answer
from lethe.contract.operation import Resource
from lethe.contract.sets import DeliveryStatus, Scope, WorkerState

COUNTED = 100_000
"""Requests that ended in one way are counted up to here."""


class HostOut(Answer):
    """A host whose workers share the data folder of the gateway."""

    name: str
    workers: WorkerState = Field(description="silent: no sign of life for a minute")
    seen_at: datetime.datetime


class ModelsCountOut(Answer):
    total: int = Field(description="Models that are not retired.")
    waiting: int = Field(description="Those whose live version carries people who asked to be forgotten.")
    failed: int = Field(description="Those that could not be learned, and are not tried again by themselves.")
    audits_passed: int = Field(description="Those of which nothing refuted the last run that was audited.")
    audits_refused: int = Field(description="Those whose last audit refuted its run.")
    degraded: int = Field(description="Those whose live version misses their quality gate.")
    held: int = Field(description="Those of them that are not served for that.")
    first_due_at: datetime.datetime | None = Field(
        default=None,
        description="The earliest deadline of anybody who asked and is in a live version; null: nobody is.",
    )


class BackupsOut(Answer):
    last_at: datetime.datetime | None = Field(description="When the last backup was finished; null: never.")
    is_late: bool = Field(description="It, or the first start, is longer ago than LETHE_BACKUP_DAYS.")


class OverviewOut(Answer):
    open: dict[str, int] = Field(description="How many requests of each status are not done.")
    ended: dict[str, int] = Field(description=f"How many ended in each way, counted up to {COUNTED:,}.")
    at_risk: int = Field(description="Open requests due within LETHE_RISK_DAYS.")
    overdue: int = Field(description="Open requests past their deadline.")
    queue_age_seconds: float = Field(description="How long the oldest request has waited for a worker, or 0.")
    running: int = Field(description="Runs under way.")
    workers: WorkerState = Field(
        description="alive, silent (no sign of life for a minute) or failing (no run gets through)"
    )
    worker_seen_at: datetime.datetime | None = Field(description="The last sign of life of any worker.")
    hosts: list[HostOut] = Field(description="Where workers that share the data folder gave signs of life in a week.")
    models: ModelsCountOut
    failed_runs: dict[str, int] = Field(
        description="Runs that failed or were abandoned and that no later one made good, by their error code."
    )
    undelivered: dict[DeliveryStatus, int] = Field(
        description=f"Webhook deliveries that did not arrive, counted up to {COUNTED:,} each: pending after an attempt "
        "that failed, or dead."
    )
    backups: BackupsOut


_OVERVIEW = Resource("Operations", "/v1")

GET = _OVERVIEW.operation(
    "get_overview",
    "GET",
    "/overview",
    scope=Scope.ACCOUNTING_READ,
    gives=OverviewOut,
    does="How a tenant's requests stand, in numbers. Who may not learn whether anything is held could tell it "
    "from them.",
)
