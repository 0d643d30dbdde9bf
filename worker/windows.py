"""The blocks of a dataset's rows that are in memory at once, while a run reads: functions of public numbers alone."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from app.rows.manifest import BLOCK_ROWS, Shape
from lethe.proof.mechanism import Mechanism
from worker.langevin.schedule import Schedule


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocks:
    """Those that the steps up to `until` read: their numbers, disjoint ranges of them."""

    until: int
    numbers: tuple[range, ...]


def next_blocks(schedule: Schedule, shape: Shape, *, steps_done: int, most_bytes: int) -> Blocks:
    """Those of as many of the next steps as fit into so many bytes, and of one step at least."""

    def needed(until: int) -> int:
        return num_bytes(shape, blocks_of(schedule.reads(steps_done, until)))

    untils = range(steps_done + 1, schedule.steps + 1)
    until = steps_done + max(1, bisect_right(untils, most_bytes, key=needed))
    return Blocks(until=until, numbers=blocks_of(schedule.reads(steps_done, until)))


def read_by(mechanism: Mechanism, *, first_step: int, steps: int) -> tuple[range, ...]:
    """All blocks that the steps of a run read."""
    return blocks_of(Schedule.of(mechanism, first_step=first_step, steps=steps).reads(0, steps))


def bytes_of_a_step(schedule: Schedule, shape: Shape) -> int:
    """The most memory that the blocks of any one step take, wherever its batch begins."""
    most_rows = -(-schedule.num_slots // schedule.num_batches)
    touched = min(shape.num_blocks, -(-(most_rows - 1) // BLOCK_ROWS) + 1)
    return num_bytes(shape, (range(touched),))


def num_bytes(shape: Shape, numbers: Sequence[range]) -> int:
    rows = sum(min(one.stop * BLOCK_ROWS, shape.num_slots) - one.start * BLOCK_ROWS for one in numbers)
    return rows * shape.row_bytes


def blocks_of(slots: Sequence[slice]) -> tuple[range, ...]:
    """The blocks in which these are."""
    found: list[range] = []
    for one in sorted((one.start // BLOCK_ROWS, -(-one.stop // BLOCK_ROWS)) for one in slots):
        if found and one[0] <= found[-1].stop:
            found[-1] = range(found[-1].start, max(found[-1].stop, one[1]))
        else:
            found.append(range(*one))
    return tuple(found)
