"""A worker is killed with SIGKILL, or sleeps, while it adds rows to an existing dataset."""

import io
import signal
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient

from app.config import Settings
from app.db.tables import Addition, Record, Run, Version
from app.installations import Installation
from tests.conftest import people
from tests.faults import hops, processes
from tests.faults.checks import assert_all_done_once
from tests.faults.processes import wait_until
from tests.stored import rows_of, slots_of
from tests.tables import at_length

Make = Callable[..., dict[str, Any]]
Get = Callable[[str], Any]
KILLED = -signal.SIGKILL


@pytest.fixture
def waiting(
    gateway: TestClient, new_dataset: Make, new_model: Make, forget: Make, work: Callable[[], int]
) -> dict[str, Any]:
    """Create a dataset with two live models and four null slots, rows of three people that wait for these slots, and an
    earlier request of one of the three. Return the ids of the dataset, addition and request."""
    dataset = new_dataset(rows=60, rows_each=2)
    for _ in range(2):
        new_model(dataset["id"], noise_scale=0.02)
    assert work() == 2
    for subject in ("p3", "p20"):
        forget(subject)
    assert work() == 2
    rows = people("new1", "new2", "new3")
    addition = gateway.post(f"/v1/datasets/{dataset['id']}/records", files={"file": ("p.npz", rows)}).json()
    return {"dataset": dataset["id"], "addition": addition["id"], "request": forget("new2")["id"]}


def _assert_added_and_erased(installation: Installation, get: Get, waiting: dict[str, Any]) -> None:
    """Check that the rows are in their slots, except for the erased row, and that no model's chain continues across the
    addition."""
    assert_all_done_once(installation)
    assert set(installation.rows.stored()) == {waiting["dataset"]}
    with installation.database.reading() as session:
        addition = session.get_one(Addition, waiting["addition"])
        assert (addition.status, addition.staged) == ("applied", False)
        came = sa.select(Record.slot).where(Record.addition_id == addition.id).order_by(Record.slot)
        slots = list(session.scalars(came))
        runs = session.execute(
            sa.select(Run.kind, Run.revision).join(Version, Version.run_id == Run.id).order_by(Run.started_at)
        ).all()
    assert len(slots) == 2
    rows = rows_of(installation, waiting["dataset"])
    expected = np.load(io.BytesIO(people("new1", "new2", "new3")))["y"][[0, 2]]
    of_people = slots_of(installation, waiting["dataset"], "new1", "new3")
    assert sorted(of_people) == slots
    assert rows.labels[of_people].tolist() == expected.tolist()
    assert addition.revision is not None
    assert [kind for kind, revision in runs if revision >= addition.revision] == ["relearn", "relearn"]
    assert get(f"/datasets/{waiting['dataset']}")["num_records"] == 58
    assert get(f"/deletion-requests/{waiting['request']}")["status"] == "completed"


@pytest.mark.parametrize("hop", at_length(hops.OF_ADDING, besides=("claimed", "rows written beside", "mid-chain")))
def test_worker_killed_while_adding(
    hop: str, settings: Settings, installation: Installation, waiting: dict[str, Any], get: Get
) -> None:
    """If a worker is killed at any step of an addition, another worker writes the rows into their slots once, and nulls
    the rows of people who have requests."""
    with processes.worker(settings, name="first", hop=hop) as first:
        assert first.died() == KILLED, first.log.read_text()
    with processes.worker(settings, name="second") as second:
        wait_until(lambda: second.logged("worker.started"))
        wait_until(lambda: get(f"/deletion-requests/{waiting['request']}")["status"] == "completed")
        assert second.stop() == 0
    _assert_added_and_erased(installation, get, waiting)


@pytest.mark.parametrize(
    "hop", ["claimed", "about to edit", "rows written beside", "about to destroy the batch", "confirmed"]
)
@pytest.mark.soak
def test_a_worker_that_slept_writes_nothing(
    hop: str, settings: Settings, installation: Installation, waiting: dict[str, Any], get: Get, work: Callable[[], int]
) -> None:
    """If a worker sleeps while another worker writes and erases the rows, it writes none of its own pending changes
    when it wakes."""
    with processes.worker(settings, name="sleeper", hop=hop, act=hops.stop) as sleeper:
        sleeper.pause()
        wait_until(lambda: work() and get(f"/deletion-requests/{waiting['request']}")["status"] == "completed")
        sleeper.wake()
        wait_until(lambda: sleeper.logged("unlearning.run_lost"))
        assert sleeper.stop() == 0
    _assert_added_and_erased(installation, get, waiting)
