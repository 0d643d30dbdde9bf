"""The closed sets of the contract. A gateway refuses what is in none of them; the SDK reads what a newer one adds."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from enum import StrEnum
from typing import Self

_newer: ContextVar[bool] = ContextVar("lethe_newer_members", default=False)


@contextmanager
def newer_members() -> Iterator[None]:
    """Read, while the block lasts, members that are not known here: a newer gateway may say more."""
    token = _newer.set(True)
    try:
        yield
    finally:
        _newer.reset(token)


class ClosedSet(StrEnum):
    """Texts of which no others are taken."""

    @classmethod
    def _missing_(cls, value: object) -> Self | None:
        if not (_newer.get() and isinstance(value, str)):
            return None
        newer = str.__new__(cls, value)
        newer._name_, newer._value_ = value.upper(), value
        return newer


class Scope(ClosedSet):
    """What an API key may do."""

    REQUESTS_READ = "requests:read"
    REQUESTS_WRITE = "requests:write"
    MODELS_READ = "models:read"
    MODELS_WRITE = "models:write"
    ACCOUNTING_READ = "accounting:read"
    ADMIN = "admin"
    """Everything in a tenant, and its keys."""
    AGENT = "agent"
    """What the Data Rights Protocol lets an authorised agent do, about its own requests."""
    METRICS_READ = "metrics:read"
    """How the installation does: counts over all tenants, by which one sees whether there is work to do."""
    OPERATOR = "operator"
    """The tenants of the installation and its metrics, and nothing in them."""


class RunKind(ClosedSet):
    LEARN = "learn"
    UNLEARN = "unlearn"
    RELEARN = "relearn"
    ERASE = "erase"
    """Rows of a dataset that no model carries."""
    ADD = "add"
    """Rows came, and no model is to learn them."""
    AUDIT = "audit"
    """Asked for: canaries alone are learned and forgotten."""


class RunStatus(ClosedSet):
    RUNNING = "running"
    PUBLISHED = "published"
    FAILED = "failed"
    ABANDONED = "abandoned"
    CANCELLED = "cancelled"
