"""A worker abandons runs that have been taken back or make no progress."""

import dataclasses
import time
from collections.abc import Callable
from typing import Any

from app.errors import LeaseLost
from app.installations import Installation
from app.unlearning import queue, service as unlearning
from tests.faults.processes import wait_until
from worker.lease import Lease

Make = Callable[..., dict[str, Any]]
Get = Callable[[str], Any]


def _newest_run(get: Get) -> Any:
    return get("/runs")["items"][0]


def test_a_lost_lease_stops_the_chain(installation: Installation, new_dataset: Make, new_model: Make, get: Get) -> None:
    """If a worker's run has been taken back, its next step after a heartbeat raises `LeaseLost`."""
    new_model(new_dataset()["id"])
    with installation.database.writing() as session:
        claimed = queue.claim(session, worker="w", lease_seconds=30, max_requests=10)
    assert claimed
    with Lease(installation, claimed) as lease:
        lease.progressed(7)
        wait_until(lambda: _newest_run(get)["steps_done"] == 7, seconds=60)
        with installation.database.writing() as session:
            assert unlearning.take_back(session, worker="w") == 1

        def lost() -> bool:
            try:
                lease.progressed(8)
            except LeaseLost:
                return True
            return False

        wait_until(lost, seconds=60)
    assert _newest_run(get)["status"] == "abandoned"


def test_a_stalled_run_is_abandoned(installation: Installation, new_dataset: Make, new_model: Make) -> None:
    """A worker abandons a run that has made no progress for too long, so that the lease expires, but keeps a run that
    is making progress."""
    new_model(new_dataset()["id"])
    with installation.database.writing() as session:
        claimed = queue.claim(session, worker="w", lease_seconds=30, max_requests=500)
    assert claimed is not None
    impatient = installation.settings.model_copy(update={"stall_seconds": 3.0, "lease_seconds": 0.3})
    with Lease(dataclasses.replace(installation, settings=impatient), claimed) as lease:
        for steps in range(20):
            lease.progressed(steps)
            time.sleep(0.2)

        def stopped() -> bool:
            try:
                lease.progressed(19)
            except LeaseLost:
                return True
            return False

        wait_until(stopped)
