"""A rehearsal: people drawn at random are forgotten on a copy of the live version, another copy learns without them,
and what all three know of them is measured.

Both copies take the steps that runs take, in a process of their own each, on the rows as they are stored but with those
of the people null in memory. Nothing is written. Of a copy nothing outlives its measurement.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from app.rows.blocks import Block
from lethe.contract.problems import RehearsalTooLarge
from lethe.contract.rehearsals import (
    LEAST_PEOPLE,
    CheckpointOut,
    EffortOut,
    MeasuredOut,
    RehearsalReport,
    ReportedOut,
    SetsOut,
)
from lethe.encoding.weights import labels_in
from lethe.proof.mechanism import Mechanism
from worker.isolated import Ran
from worker.measured import Floats, Measure, attack

CHECKPOINTS = 20

Run = Callable[..., Ran]
"""A run without the people: takes what `isolated.run` does of `initial`, `first_step`, `steps`, `on_progress`,
`checkpoints` and `on_checkpoint`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Forgetting:
    """The planner's way to forget them: `steps` from `initial`, after `first_step` others of its chain."""

    way: str
    initial: Floats
    first_step: int
    steps: int


class Sets:
    """The rows on which a rehearsal measures, one of each person, in memory: forget set, retain set, and test set, if
    there is one."""

    def __init__(self, forget: "_Rows", retain: "_Rows", test: "_Rows | None") -> None:
        self.forget, self.retain, self.test = forget, retain, test

    @classmethod
    @contextmanager
    def of(
        cls, forget: Iterable[Block], retain: Iterable[Block], test: Iterable[Block] | None, **slots: tuple[int, ...]
    ) -> Iterator["Sets"]:
        """Those of the blocks' rows that are in the slots of `forget_slots`, `retain_slots` and `test_slots`; they are
        overwritten when the block ends. A mean over too few people is not made: no test set then, and for the others
        raises `RehearsalTooLarge`."""
        found: list[_Rows] = []
        try:
            found.append(_picked(forget, slots["forget_slots"]))
            found.append(_picked(retain, slots["retain_slots"]))
            if test is not None:
                found.append(_picked(test, slots["test_slots"]))
            enough = [len(labels) >= LEAST_PEOPLE for _, labels in found]
            if not all(enough[:2]):
                raise RehearsalTooLarge("Of the people who were drawn to be measured on, too few have rows.")
            yield cls(found[0], found[1], found[2] if enough[2:] == [True] else None)
        finally:
            for features, labels in found:
                features.fill(0)
                labels.fill(0)


def run(
    mechanism: Mechanism,
    *,
    version: int,
    live: Floats,
    forgetting: Forgetting,
    origin: Floats,
    without: Run,
    sets: Sets,
    measure: Measure,
    on_progress: Callable[[int], None],
) -> RehearsalReport:
    """Take the steps of both copies by `without`, and report.

    `on_progress(steps_done)` is told the steps of both, one after the other, and ends this by raising.
    """
    clock = _Clock(on_progress)
    curve = [_checkpoint(0, live, sets, measure)]
    last = forgetting.steps

    def reached(steps_done: int, parameters: Floats) -> None:
        with clock.paused():
            curve.append(_checkpoint(steps_done, parameters, sets, measure))
            parameters.fill(0)

    def effort(steps: int) -> EffortOut:
        passes = steps / mechanism.num_batches
        return EffortOut(steps=steps, passes=round(passes, 3), seconds=round(clock.seconds, 3))

    before = _reported(live, sets, measure, None)
    stops = sorted({round(last * part / CHECKPOINTS) for part in range(1, CHECKPOINTS)} - {0, last})
    clock.start(after=0)
    ran = without(
        initial=forgetting.initial,
        first_step=forgetting.first_step,
        steps=last,
        on_progress=clock.progressed,
        checkpoints=stops,
        on_checkpoint=reached,
    )
    took = effort(last)
    curve.append(_checkpoint(last, ran.parameters, sets, measure))
    forgotten = _reported(ran.parameters, sets, measure, took)
    del ran
    clock.start(after=last)
    ran = without(initial=origin, first_step=0, steps=mechanism.learn_steps, on_progress=clock.progressed)
    relearned = _reported(ran.parameters, sets, measure, effort(mechanism.learn_steps))
    return RehearsalReport(
        version=version,
        way="unlearn" if forgetting.way == "unlearn" else "relearn",
        before=before,
        forgotten=forgotten,
        relearned=relearned,
        curve=curve,
    )


class _Clock:
    """The seconds that steps take, without those for which a run stands still."""

    def __init__(self, on_progress: Callable[[int], None]) -> None:
        self._on_progress = on_progress
        self._began = self._paused = 0.0
        self._after = 0

    def start(self, *, after: int) -> None:
        """Begin anew, `after` so many steps of a run before."""
        self._began, self._paused, self._after = time.monotonic(), 0.0, after

    @contextmanager
    def paused(self) -> Iterator[None]:
        began = time.monotonic()
        try:
            yield
        finally:
            self._paused += time.monotonic() - began

    def progressed(self, steps_done: int) -> None:
        with self.paused():
            self._on_progress(self._after + steps_done)

    @property
    def seconds(self) -> float:
        return max(0.0, time.monotonic() - self._began - self._paused)


_Rows = tuple[NDArray[np.float32], NDArray[np.int32]]  # (n, d) and (n,), none of them null


def _picked(blocks: Iterable[Block], slots: tuple[int, ...]) -> _Rows:
    """The rows in these slots, copied, but for null ones."""
    features: list[NDArray[np.float32]] = []
    labels: list[NDArray[np.int32]] = []
    columns = 0
    for block in blocks:
        here = block.positions(slots)
        here = here[block.features[here].any(axis=1)]
        features.append(block.features[here])
        labels.append(labels_in(block.labels)[here])
        columns = block.features.shape[1]
    if not features:
        return np.zeros((0, columns), np.float32), np.zeros(0, np.int32)
    return np.concatenate(features), np.concatenate(labels)


def _checkpoint(steps: int, parameters: Floats, sets: Sets, measure: Measure) -> CheckpointOut:
    return CheckpointOut(
        steps=steps,
        forget=_measured(parameters, sets.forget, measure)[0],
        retain=_measured(parameters, sets.retain, measure)[0],
    )


def _reported(parameters: Floats, sets: Sets, measure: Measure, effort: EffortOut | None) -> ReportedOut:
    (forget, members), (retain, _) = (_measured(parameters, rows, measure) for rows in (sets.forget, sets.retain))
    test, others = (None, None) if sets.test is None else _measured(parameters, sets.test, measure)
    return ReportedOut(
        sets=SetsOut(forget=forget, retain=retain, test=test),
        attack=None if others is None else attack(members, others),
        effort=effort,
    )


def _measured(parameters: Floats, rows: _Rows, measure: Measure) -> tuple[MeasuredOut, Floats]:
    """The report of the rows, and the loss of each."""
    features, labels = rows
    found = measure.scores(parameters, features, labels)
    return measure.of(found, labels), measure.losses(found, labels)
