"""A worker that dies while its training is suspended for a deletion: neither run is lost or executed twice."""

from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa

from app.config import Settings
from app.db.tables import Run
from app.installations import Installation
from tests.faults import processes
from tests.faults.checks import assert_all_done_once
from tests.faults.processes import wait_until

Make = Callable[..., dict[str, Any]]
Get = Callable[[str], Any]


@pytest.mark.parametrize(
    "hop", ["old rows destroyed", pytest.param("publication not committed", marks=pytest.mark.soak)]
)
def test_a_death_during_suspended_training_loses_neither_run(
    hop: str,
    settings: Settings,
    installation: Installation,
    new_dataset: Make,
    new_model: Make,
    forget: Make,
    get: Get,
    work: Callable[[], int],
) -> None:
    """If a worker dies while its training run is suspended for a deletion, both runs are handed back. Another worker
    forgets the person and trains the model."""
    asked = new_dataset("asked", rows=60)
    new_model(asked["id"], noise_scale=0.02)
    assert work() == 1
    learning = new_model(new_dataset("to learn")["id"], learn_steps=2000)
    request = forget("p3", dataset_ids=[asked["id"]], regulation="ccpa")  # due later than the model
    with processes.worker(settings, name="first", hop=hop) as first:
        first.died()
    with installation.database.reading() as session:
        assert set(session.scalars(sa.select(Run.kind).where(Run.status == "running"))) == {"learn", "unlearn"}
    with processes.worker(settings, name="second") as second:
        wait_until(lambda: get(f"/deletion-requests/{request['id']}")["status"] == "completed")
        wait_until(lambda: get(f"/models/{learning['id']}")["status"] == "live")
        assert second.stop() == 0
    assert_all_done_once(installation)
    published = sorted(run["kind"] for run in get("/runs")["items"] if run["status"] == "published")
    assert published == ["learn", "learn", "unlearn"]
