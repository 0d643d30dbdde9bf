"""Blocks of a dataset's rows that are in memory together during a run, determined only by public numbers."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from app.rows.blocks import BLOCK_ROWS, Shape
from lethe.proof.mechanism import Mechanism
from worker.langevin.schedule import Schedule


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocks:
    """Blocks read until the first `until` steps are done: their `numbers`, as disjoint ranges."""

    until: int
    numbers: tuple[range, ...]


def next_blocks(schedule: Schedule, shape: Shape, *, steps_done: int, most_bytes: int) -> Blocks:
    """Return the blocks for as many of the next steps as fit into `most_bytes`, but for at least one step."""

    def needed(until: int) -> int:
        return num_bytes(shape, blocks_of(schedule.reads(steps_done, until)))

    untils = range(steps_done + 1, schedule.steps + 1)
    until = steps_done + max(1, bisect_right(untils, most_bytes, key=needed))
    return Blocks(until=until, numbers=blocks_of(schedule.reads(steps_done, until)))


def read_by(mechanism: Mechanism, *, first_step: int, steps: int) -> tuple[range, ...]:
    """Return all blocks read by a run's steps."""
    return blocks_of(Schedule.of(mechanism, first_step=first_step, steps=steps).reads(0, steps))


def bytes_of_a_step(schedule: Schedule, shape: Shape) -> int:
    """Return the maximum number of bytes occupied by one step's blocks, wherever the step's batch begins."""
    most_rows = -(-schedule.num_slots // schedule.num_batches)
    touched = min(shape.num_blocks, -(-(most_rows - 1) // BLOCK_ROWS) + 1)
    return num_bytes(shape, (range(touched),))


def num_bytes(shape: Shape, numbers: Sequence[range]) -> int:
    rows = sum(min(blocks.stop * BLOCK_ROWS, shape.num_slots) - blocks.start * BLOCK_ROWS for blocks in numbers)
    return rows * shape.row_bytes


def blocks_of(slots: Sequence[slice]) -> tuple[range, ...]:
    """Return the blocks that contain these slots, as disjoint ascending ranges."""
    ranges: list[range] = []
    for start, stop in sorted((part.start // BLOCK_ROWS, -(-part.stop // BLOCK_ROWS)) for part in slots):
        if ranges and start <= ranges[-1].stop:
            ranges[-1] = range(ranges[-1].start, max(ranges[-1].stop, stop))
        else:
            ranges.append(range(start, stop))
    return tuple(ranges)
