"""Health and readiness of a process."""

import datetime

from pydantic import Field

from lethe.contract.fields import Answer, optional


class HealthOut(Answer):
    status: str = Field(description="Always `ok`.")


class ReadyOut(Answer):
    status: str = Field(description="State: ready, full (calls are refused) or database_not_migrated.")
    queue_age_seconds: float | None = optional(
        "Seconds that the oldest request has been waiting for a worker; 0 if none is. Null without metrics:read."
    )
    at_risk: int | None = optional("Number of requests due within LETHE_RISK_DAYS; null without metrics:read.")
    overdue: int | None = optional("Number of open requests past their deadline; null without metrics:read.")
    workers: str | None = optional(
        "Workers: alive, silent (no heartbeat for a minute) or failing (no run succeeds). Null without metrics:read."
    )
    worker_seen_at: datetime.datetime | None = optional(
        "Time of the last heartbeat of any worker; null if there was none, or without metrics:read."
    )
    tombstones: str | None = optional(
        "State of the tombstone journal: whole, damaged (no erasure runs) or unverified (not checked for two hours); "
        "null without metrics:read."
    )
    texts_damaged: int | None = optional(
        "Number of stored texts and certificates found damaged by the last hourly check; null without metrics:read."
    )
