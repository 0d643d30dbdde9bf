"""Before a run erases a person, it examines only what it edits and what its steps read."""

import datetime
import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from app.accounting import repository as accounting_repository
from app.catalogue import service as catalogue
from app.db import now
from app.db.tables import Dataset, Model, Run
from app.installations import Installation
from app.rows.blocks import BLOCK_ROWS
from app.rows.row_store import RowStore
from app.unlearning import queue
from tests.faults.checks import assert_all_done_once
from tests.settled import is_settled
from tests.stored import flipped, slots_of
from worker import runner
from worker.langevin.schedule import Schedule
from worker.windows import blocks_of

Make = Callable[..., dict[str, Any]]
Get = Callable[[str], Any]

NUM_ROWS = 5 * BLOCK_ROWS + 50


@pytest.fixture
def live(new_dataset: Make, new_model: Make, work: Callable[[], int]) -> dict[str, Any]:
    """Return a model with six blocks of rows that reads a hundredth of the rows in each step and forgets in a few
    steps."""
    dataset = new_dataset(rows=NUM_ROWS)
    model = new_model(dataset["id"], noise_scale=0.2, batch_size=NUM_ROWS // 100, cool_down=4)
    assert work() == 1
    return model


def _files(installation: Installation, dataset_id: str) -> list[Path]:
    return sorted((installation.settings.data_dir / "blocks").glob(f"{dataset_id}.*.sealed"))


def _read_next(installation: Installation, model_id: str) -> set[int]:
    """Return the blocks that the model's next run reads."""
    with installation.database.reading() as session:
        model = session.get_one(Model, model_id)
        plan, _ = queue.next_run(session, model, max_requests=10)
        first_step = accounting_repository.chain_steps(session, model_id=model_id)
        schedule = Schedule.of(catalogue.mechanism_of(model), first_step=first_step, steps=plan.steps)
        assert plan.kind == "unlearn"
    return {number for some in blocks_of(schedule.reads(0, plan.steps)) for number in some}


@pytest.mark.parametrize("damaged", ["elsewhere", "edited", "read"])
def test_only_damage_to_blocks_in_use_stops_a_run(
    damaged: str, live: dict[str, Any], installation: Installation, forget: Make, get: Get, work: Callable[[], int]
) -> None:
    """If a block that a run edits or reads is damaged, nothing is erased. Damage to other blocks does not stop the
    run."""
    dataset = live["dataset_id"]
    holding = {slots_of(installation, dataset, f"p{number}")[0] // BLOCK_ROWS: f"p{number}" for number in range(200)}
    edited = 3 if 3 in holding else 2
    request = forget(holding[edited])
    read = _read_next(installation, live["id"])
    assert edited not in read
    elsewhere = next(number for number in range(6) if number not in {edited, *read})
    number = {"elsewhere": elsewhere, "edited": edited, "read": min(read)}[damaged]
    file = _files(installation, dataset)[number]
    file.write_bytes(flipped(file.read_bytes(), 50))
    assert runner.run_next(installation, worker="w") is True
    found = get(f"/datasets/{dataset}")["damage"]
    if damaged == "elsewhere":
        assert found is None
        assert get(f"/deletion-requests/{request['id']}")["status"] == "completed"
    else:
        assert (found["kind"], found["block"]) == ("block", number)
        assert get(f"/deletion-requests/{request['id']}")["status"] == "accepted"


def test_leftovers_of_an_interrupted_run_are_destroyed(
    live: dict[str, Any],
    installation: Installation,
    forget: Make,
    work: Callable[[], int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A run lists the stored objects of its dataset only if an earlier run was interrupted within the last hour. It
    then destroys what the interrupted run left behind."""
    dataset, settle = live["dataset_id"], RowStore.settle
    settled: list[str] = []

    def noted(self: RowStore, rows_id: str, root: str) -> None:
        settled.append(rows_id)
        settle(self, rows_id, root)

    monkeypatch.setattr(RowStore, "settle", noted)
    forget("p1")
    assert work() == 1
    assert settled == []

    def cut_off(*given: Any, **named: Any) -> None:
        raise OSError(errno.EIO, "a disk")

    forget("p2")
    with monkeypatch.context() as patch:
        patch.setattr(RowStore, "destroy_replaced", cut_off)
        assert runner.run_next(installation, worker="w") is True
    with installation.database.writing() as session:
        assert not is_settled(installation.rows, dataset, session.get_one(Dataset, dataset).digest)
        session.execute(sa.update(Model).values(not_before=None))
    assert work() == 1
    assert settled == [dataset]
    assert_all_done_once(installation)

    with installation.database.writing() as session:
        session.execute(sa.update(Run).values(finished_at=now(session) - datetime.timedelta(hours=2)))
    forget("p3")
    assert work() == 1
    assert settled == [dataset]
