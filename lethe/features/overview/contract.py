"""State of a tenant's requests, models, runs and webhooks, as counts."""

import datetime

from pydantic import Field

from lethe.contract import fields, operation, sets
from lethe.features.webhooks.contract import DeliveryStatus

COUNTED = 100_000
"""Limit beyond which ended requests with a given status are no longer counted."""


class HostOut(fields.Answer):
    """Host whose workers share the gateway's data folder."""

    name: str = Field(description="Name of the host.")
    workers: sets.WorkerState = Field(
        description="State of the host's workers: alive, or silent (no heartbeat for 60 s)."
    )
    seen_at: datetime.datetime = Field(description="Time of the last heartbeat of the host's workers.")


class ModelsCountOut(fields.Answer):
    total: int = Field(description="Number of models that are not retired.")
    waiting: int = Field(description="Number of models with a live version trained on people who must be forgotten.")
    failed: int = Field(description="Number of models that could not be trained and are not retried automatically.")
    audits_passed: int = Field(description="Number of models whose last canary test found no fault in its run.")
    audits_refused: int = Field(description="Number of models whose last canary test found a fault in its run.")
    degraded: int = Field(description="Number of models whose live version fails the quality gate.")
    held: int = Field(description="Number of degraded models that are not served.")
    first_due_at: datetime.datetime | None = fields.optional(
        "Earliest deadline of a request about a person whom a live version must still forget; null if there is none."
    )


class BackupsOut(fields.Answer):
    last_at: datetime.datetime | None = Field(description="Time at which the last backup completed; null if none.")
    is_late: bool = Field(
        description="True if the last backup, or the first start without one, is more than LETHE_BACKUP_DAYS days ago."
    )


class OverviewOut(fields.Answer):
    open: dict[str, int] = Field(description="Number of open requests by status.")
    ended: dict[str, int] = Field(description=f"Number of ended requests by status, each counted up to {COUNTED:,}.")
    at_risk: int = Field(description="Number of open requests due within LETHE_RISK_DAYS.")
    overdue: int = Field(description="Number of open requests past their deadline.")
    queue_age_seconds: float = Field(description="Seconds that the oldest request has waited for a worker; 0 if none.")
    running: int = Field(description="Number of runs that are in progress.")
    workers: sets.WorkerState = Field(
        description="Workers: alive, silent (no heartbeat for 60 s) or failing (runs fail)."
    )
    worker_seen_at: datetime.datetime | None = Field(description="Time of a worker's last heartbeat; null if none.")
    hosts: list[HostOut] = Field(description="Hosts sharing the data folder with a worker heartbeat in the last week.")
    models: ModelsCountOut = Field(description="Number of models in each state.")
    failed_runs: dict[str, int] = Field(description="Failed or abandoned runs without a later success, by error code.")
    undelivered: dict[DeliveryStatus, int] = Field(
        description=f"Number of undelivered webhooks by status: pending (tried or not), dead; each up to {COUNTED:,}."
    )
    stored_bytes: dict[str, int] = Field(description="Number of bytes stored by the tenant, by kind of data.")
    max_stored_bytes: int = Field(description="Maximum bytes that the tenant may store (LETHE_MAX_TENANT_BYTES).")
    backups: BackupsOut = Field(description="Age and state of the backups.")


_OVERVIEW = operation.ResourceOperations("Operations", "/v1")

GET = _OVERVIEW.operation(
    "get_overview",
    "GET",
    "/overview",
    scope=sets.Scope.ACCOUNTING_READ,
    gives=OverviewOut,
    does="Return counts that describe the state of a tenant's requests, models, runs and webhooks. A caller could "
    "infer from them whether data is held.",
)
