"""Endpoints for operators and their tools: alive, ready, the public keys, metrics."""

import datetime

from pydantic import Field

from lethe.contract.fields import Answer


class HealthOut(Answer):
    status: str


class ReadyOut(Answer):
    status: str = Field(description="ready, full (calls are refused) or database_not_migrated")
    queue_age_seconds: float | None = Field(
        default=None, description="How long the oldest request has waited for a worker, or 0."
    )
    at_risk: int | None = Field(default=None, description="Open requests due within LETHE_RISK_DAYS.")
    overdue: int | None = Field(default=None, description="Open requests past their deadline.")
    workers: str | None = Field(
        default=None, description="alive, silent (no sign of life for a minute) or failing (no run gets through)"
    )
    worker_seen_at: datetime.datetime | None = Field(default=None, description="The last sign of life of any worker.")
    tombstones: str | None = Field(
        default=None, description="whole, damaged (nobody is erased), or unverified (not looked at for two hours)"
    )
