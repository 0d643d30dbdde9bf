"""Fixtures: runs claimed as a worker does, failing runs, and a live model."""

from collections.abc import Callable
from typing import Any

import pytest

from app.installations import Installation
from app.unlearning import queue, service as unlearning
from app.unlearning.queue import ClaimedRun
from tests.app.unlearning.held import forget_pauses

Make = Callable[..., dict[str, Any]]
Claim = Callable[..., ClaimedRun | None]


@pytest.fixture
def claim(installation: Installation) -> Claim:
    """Return a function that claims the next run as a worker does."""

    def claimed(*, worker: str = "w", lease_seconds: float = 30.0, max_requests: int = 100) -> ClaimedRun | None:
        with installation.database.writing() as session:
            return queue.claim(session, worker=worker, lease_seconds=lease_seconds, max_requests=max_requests)

    return claimed


@pytest.fixture
def fail(installation: Installation) -> Callable[[ClaimedRun | None], None]:
    """Return a function that fails a run and ends its back-off."""

    def failed(claimed: ClaimedRun | None) -> None:
        assert claimed
        with installation.database.writing() as session:
            unlearning.fail(session, run_id=claimed.run_id, error_code="OSError")
        forget_pauses(installation)

    return failed


@pytest.fixture
def live(new_dataset: Make, new_model: Make, work: Callable[[], int]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a dataset of 60 people with one row each, and its live model."""
    dataset = new_dataset()
    model = new_model(dataset["id"], noise_scale=0.02)
    assert work() == 1
    return dataset, model
