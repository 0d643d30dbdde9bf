"""State of a tenant's requests, models, runs and webhooks, in counts."""

import datetime

from pydantic import Field

from lethe.contract.fields import Answer, optional
from lethe.contract.operation import ResourceOperations
from lethe.contract.sets import Scope, WorkerState
from lethe.features.webhooks.contract import DeliveryStatus

COUNTED = 100_000
"""Limit up to which ended requests of one status are counted."""


class HostOut(Answer):
    """Host whose workers share the data folder of the gateway."""

    name: str = Field(description="Name of the host.")
    workers: WorkerState = Field(description="State of the workers: alive, or silent (no heartbeat for a minute).")
    seen_at: datetime.datetime = Field(description="Last heartbeat of the host's workers.")


class ModelsCountOut(Answer):
    total: int = Field(description="Number of models that are not retired.")
    waiting: int = Field(description="Number of models whose live version carries people who asked to be forgotten.")
    failed: int = Field(description="Number of models that could not be learned and are not retried automatically.")
    audits_passed: int = Field(description="Number of models whose last canary test did not refute its run.")
    audits_refused: int = Field(description="Number of models whose last canary test refuted its run.")
    degraded: int = Field(description="Number of models whose live version misses their quality gate.")
    held: int = Field(description="Number of degraded models that are kept from serving.")
    first_due_at: datetime.datetime | None = optional(
        "Earliest deadline of a request whose person a live version still carries; null if there is none."
    )


class BackupsOut(Answer):
    last_at: datetime.datetime | None = Field(description="Time at which the last backup was finished; null if never.")
    is_late: bool = Field(description="True if the last backup, or the first start, is over LETHE_BACKUP_DAYS old.")


class OverviewOut(Answer):
    open: dict[str, int] = Field(description="Number of open requests by status.")
    ended: dict[str, int] = Field(description=f"Number of ended requests by status, each counted up to {COUNTED:,}.")
    at_risk: int = Field(description="Number of open requests due within LETHE_RISK_DAYS.")
    overdue: int = Field(description="Number of open requests past their deadline.")
    queue_age_seconds: float = Field(description="Seconds for which the oldest request has waited for a worker, or 0.")
    running: int = Field(description="Number of runs in progress.")
    workers: WorkerState = Field(description="alive, silent (no heartbeat for a minute) or failing (runs fail).")
    worker_seen_at: datetime.datetime | None = Field(description="Last heartbeat of any worker; null if never.")
    hosts: list[HostOut] = Field(description="Hosts whose workers share the data folder and were seen within a week.")
    models: ModelsCountOut = Field(description="Counts of models by state.")
    failed_runs: dict[str, int] = Field(description="Failed or abandoned runs without a later success, by error code.")
    undelivered: dict[DeliveryStatus, int] = Field(
        description=f"Number of undelivered webhooks, counted up to {COUNTED:,} each: pending, tried or not, or dead."
    )
    stored_bytes: dict[str, int] = Field(description="Bytes that the tenant stores, by kind.")
    max_stored_bytes: int = Field(description="Bytes that the tenant may store (LETHE_MAX_TENANT_BYTES).")
    backups: BackupsOut = Field(description="State of the backups.")


_OVERVIEW = ResourceOperations("Operations", "/v1")

GET = _OVERVIEW.operation(
    "get_overview",
    "GET",
    "/overview",
    scope=Scope.ACCOUNTING_READ,
    gives=OverviewOut,
    does="Return the state of a tenant's requests in numbers, from which a caller could learn whether anything is "
    "held.",
)
