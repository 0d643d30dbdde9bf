"""Fixtures: models with ledgers, whose budgets are spent and renewed."""

import datetime
from collections.abc import Callable
from typing import Any

import pytest
from fastapi.testclient import TestClient

from app.installations import Installation
from app.operations.periodic_jobs import settle
from tests.command_line import lethe
from tests.lethe.conftest import client

__all__ = ["client", "lethe"]

LEDGER = {"format": "opacus", "history": [[2.0, 0.01, 200]]}
"""Ledger with epsilon 0.2, 0.5 and 1.0 for one, two and four rows, as `test_requests_count` states."""


def moment(**before: float) -> str:
    """Return an ISO time that lies the given duration in the past."""
    return (datetime.datetime.now(datetime.UTC) - datetime.timedelta(**before)).isoformat()


def ledger(**given: Any) -> dict[str, Any]:
    """Return the fields that register a ledger whose training started an hour ago and whose budget covers four rows."""
    made = {"ledger": LEDGER, "delta": 1e-5, "max_rows_per_person": 2, "budget_epsilon": 1.5}
    return made | {"trained_from": moment(hours=1)} | given


@pytest.fixture
def new_dp_model(gateway: TestClient) -> Callable[..., dict[str, Any]]:
    """Return a function that registers a model with a ledger and returns the model."""

    def create(name: str = "Ranker", **given: Any) -> dict[str, Any]:
        answer = gateway.post("/v1/dp-models", json={"name": name} | ledger(**given))
        assert answer.status_code == 201, answer.text
        made: dict[str, Any] = answer.json()
        return made

    return create


@pytest.fixture
def settled(installation: Installation) -> Callable[[], None]:
    """Return a function that completes requests that are no longer waiting for anything, as a worker does every
    second."""

    def do() -> None:
        settle(installation)

    return do
