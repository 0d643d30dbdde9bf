"""Runs that read rows window by window have the same result as other runs, and hold only the rows of the next steps in
memory."""

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from app.errors import DatasetTooLarge, RunDiffersFromPlan
from app.rows.blocks import BLOCK_ROWS, Shape
from app.rows.row_store import OpenedRows
from lethe.proof.losses import Objective
from lethe.proof.mechanism import Mechanism
from tests.stored import held_in_memory
from tests.tables import each
from tests.worker.langevin.conftest import ReplayableNoise
from worker import isolated, windows
from worker.langevin import chain
from worker.langevin.schedule import Schedule
from worker.langevin.window import Window

NUM_SLOTS, NUM_COLUMNS = 6 * BLOCK_ROWS + 100, 3
SHAPE = Shape(num_slots=NUM_SLOTS, num_columns=NUM_COLUMNS)
BLOCK_BYTES = BLOCK_ROWS * SHAPE.row_bytes


def mechanism(**changed: Any) -> Mechanism:
    settings = {
        "objective": Objective.LOGISTIC_REGRESSION,
        "num_slots": NUM_SLOTS,
        "num_classes": 2,
        "l2": 0.05,
        "step_size": 1.0,
        "noise_scale": 0.1,
        "radius": 10.0,
        "learn_steps": 10,
        "grid": 2.0**-40,
        "num_parameters": NUM_COLUMNS,
        "batch_size": NUM_SLOTS // 20,
    }
    return Mechanism(**settings | changed)


@pytest.fixture
def data() -> tuple[Any, Any]:
    generator = np.random.default_rng(0)
    features = generator.standard_normal((NUM_SLOTS, NUM_COLUMNS)).astype(np.float32)
    features /= 1.001 * np.linalg.norm(features, axis=1, keepdims=True)
    features[:: BLOCK_ROWS // 2] = 0
    return features, (features[:, 0] > 0).astype(np.int32)


@each("num_blocks_at_once", [2, 3, 4, 100])
@each(("batches", "first_step", "steps"), [(20, 0, 60), (20, 17, 5), (7, 3, 1), (300, 299, 700)])
def test_windows_cover_the_blocks_of_their_steps(
    num_blocks_at_once: int, batches: int, first_step: int, steps: int
) -> None:
    """Consecutive windows cover all steps of a run, and each contains exactly the blocks that its steps read. Each
    window fits in memory and could not be longer."""
    schedule = Schedule(num_slots=NUM_SLOTS, num_batches=batches, first_step=first_step, steps=steps)
    most, done = num_blocks_at_once * BLOCK_BYTES, 0
    while done < steps:
        window = windows.next_blocks(schedule, SHAPE, steps_done=done, most_bytes=most)
        assert done < window.until <= steps
        read = _read(schedule, done, window.until)
        assert {number for some in window.numbers for number in some} == read
        assert windows.num_bytes(SHAPE, window.numbers) <= most
        if window.until < steps:
            further = _read(schedule, done, window.until + 1)
            assert sum(SHAPE.rows_in(number) for number in further) * SHAPE.row_bytes > most
        done = window.until


def _read(schedule: Schedule, done: int, until: int) -> set[int]:
    """Return the blocks that these steps read."""
    steps = [schedule.step(step).rows for step in range(done, until)]
    return {number for rows in steps for number in range(rows.start // BLOCK_ROWS, -(-rows.stop // BLOCK_ROWS))}


@pytest.mark.parametrize("batches", [1, 2, 7, 20, NUM_SLOTS])
def test_the_memory_of_a_step_is_bounded_in_advance(batches: int) -> None:
    """No step of a run reads blocks that need more memory than `bytes_of_a_step` predicts. With full batches, the
    prediction is the memory of all blocks."""
    schedule = Schedule(num_slots=NUM_SLOTS, num_batches=batches, steps=1)
    at_most = windows.bytes_of_a_step(schedule, SHAPE)
    looked_at = range(0, batches, max(1, batches // 500))
    needed = [
        windows.next_blocks(
            Schedule(num_slots=NUM_SLOTS, num_batches=batches, first_step=batch, steps=1),
            SHAPE,
            steps_done=0,
            most_bytes=1,
        ).numbers
        for batch in looked_at
    ]
    assert max(windows.num_bytes(SHAPE, numbers) for numbers in needed) <= at_most
    assert batches > 1 or at_most == SHAPE.num_bytes


def test_a_run_through_windows_takes_the_same_steps(data: tuple[Any, Any]) -> None:
    """A run that passes several times through windows of three blocks takes bit-identical steps to a run without
    windows. It opens each block once per pass and counts every block's rows."""
    settings = {
        "mechanism": mechanism(),
        "initial": np.zeros((1, NUM_COLUMNS)),
        "first_step": 13,
        "steps": 45,
        "on_progress": lambda done: None,
    }
    whole = chain.run(features=data[0], labels=data[1], noise=ReplayableNoise(1), **settings)
    schedule = Schedule(num_slots=NUM_SLOTS, num_batches=20, first_step=13, steps=45)
    opened: list[int] = []
    with held_in_memory(*data) as rows:
        blocks = rows._blocks

        def noted(numbers: Any) -> Any:
            opened.extend(numbers)
            return blocks(numbers)

        rows._blocks = noted

        def show(steps_done: int) -> Window:
            found = windows.next_blocks(schedule, SHAPE, steps_done=steps_done, most_bytes=3 * BLOCK_BYTES)
            rows.show(found.numbers)
            assert os.fstat(rows.descriptor).st_blocks * 512 <= 3 * BLOCK_BYTES + 6 * 4096
            slots = [slice(one.start * BLOCK_ROWS, min(one.stop * BLOCK_ROWS, NUM_SLOTS)) for one in found.numbers]
            return Window(until=found.until, slots=tuple(slots))

        ran = chain.run(features=rows.features, labels=rows.labels, noise=ReplayableNoise(1), show=show, **settings)
    np.testing.assert_array_equal(ran.parameters, whole.parameters)
    first, last = schedule.step(0).rows.start // BLOCK_ROWS, (schedule.step(44).rows.stop - 1) // BLOCK_ROWS
    assert sorted(opened) == sorted([*range(first, 7), *range(7), *range(last + 1)])
    there = data[0].any(axis=1)
    counts = [int(there[number * BLOCK_ROWS : (number + 1) * BLOCK_ROWS].sum()) for number in range(7)]
    assert ran.records == sum(counts[number] for number in opened)


def _run(rows: OpenedRows, **told: Any) -> isolated.IsolatedResult:
    settings = {"initial": np.zeros((1, NUM_COLUMNS)), "on_progress": lambda done: None}
    return isolated.run(mechanism(), rows=rows, **settings, **told)


def test_a_process_requests_the_blocks_it_needs(data: tuple[Any, Any]) -> None:
    """A run's process receives the blocks of its next steps and counts their rows. For a one-step run, it receives only
    the blocks of one batch."""
    with held_in_memory(*data) as rows:
        ran = _run(rows, first_step=19, steps=1)
        assert ran.records == data[0][5 * BLOCK_ROWS :].any(axis=1).sum()
        assert os.fstat(rows.descriptor).st_blocks * 512 <= BLOCK_BYTES + 100 * SHAPE.row_bytes + 4 * 4096
        rows.most_bytes = 2 * BLOCK_BYTES
        assert _run(rows, first_step=5, steps=50).steps == 50


def test_a_batch_that_does_not_fit_is_refused(data: tuple[Any, Any]) -> None:
    """A run is refused before it begins if a single step would read more blocks than fit in memory."""
    with held_in_memory(*data) as rows:
        rows.most_bytes = 2 * BLOCK_BYTES - 1
        with pytest.raises(DatasetTooLarge, match="smaller batch_size"):
            _run(rows, steps=1)
        assert os.fstat(rows.descriptor).st_blocks == 0


@pytest.mark.parametrize("missing", ["a block", "all"])
def test_a_step_outside_its_window_ends_the_run(missing: str, data: tuple[Any, Any]) -> None:
    """If a window lacks a block that its steps read, the run ends before those steps."""
    slots: dict[str, tuple[slice, ...]] = {"a block": (slice(BLOCK_ROWS, NUM_SLOTS),), "all": ()}
    show: Callable[[int], Window] = lambda done: Window(until=3, slots=slots[missing])  # noqa: E731
    with pytest.raises(RunDiffersFromPlan):
        chain.run(
            features=data[0],
            labels=data[1],
            initial=np.zeros((1, NUM_COLUMNS)),
            noise=ReplayableNoise(1),
            on_progress=lambda done: None,
            steps=3,
            show=show,
            mechanism=mechanism(),
        )


@pytest.mark.slow
def test_a_run_that_counts_other_rows_fails(data: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """A run fails if its process reports a number of rows that differs from the number it was given."""
    show = OpenedRows.show
    monkeypatch.setattr(
        OpenedRows, "show", lambda *given, **named: {n: count - 1 for n, count in show(*given, **named).items()}
    )
    with held_in_memory(*data) as rows, pytest.raises(RunDiffersFromPlan, match="other rows"):
        _run(rows, steps=1)


def test_only_rows_that_are_read_are_checked(data: tuple[Any, Any]) -> None:
    """Rows that no step of the run reads can have any values, but an invalid row that a step reads is refused."""
    features, labels = data
    settings = {
        "mechanism": mechanism(),
        "initial": np.zeros((1, NUM_COLUMNS)),
        "steps": 2,
        "on_progress": lambda done: None,
    }
    features[-1], labels[-1] = 7, 7
    ran = chain.run(features=features, labels=labels, noise=ReplayableNoise(1), **settings)
    assert ran.records == features[: 2 * NUM_SLOTS // 20].any(axis=1).sum()
    with pytest.raises(ValueError, match="Expected 0 <= label"):
        chain.run(features=features, labels=labels, noise=ReplayableNoise(1), first_step=19, **settings)


def test_opened_blocks_are_reported_as_progress(data: tuple[Any, Any]) -> None:
    """Each block opened for a run is reported as progress, so that the run does not appear stalled. An exception in the
    callback ends the run."""
    opened: list[int] = []

    class Enough(Exception):
        pass

    def told() -> None:
        opened.append(1)
        if len(opened) == 3:
            raise Enough

    with held_in_memory(*data) as rows:
        with pytest.raises(Enough):
            _run(rows, steps=20, on_opened=told)
        assert len(opened) == 3
