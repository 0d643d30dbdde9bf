"""Runtime estimates of a model's runs: measured on its own past runs, or not known; and of a run under way."""

import datetime
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from sqlalchemy.orm import Session

from app.accounting import repository
from app.db.tables import Model, Run
from lethe.contract.sets import RunKind, RunStatus

_RECENT = 20
"""Older runs may have had other machines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeEstimate:
    """Seconds from claim to publication: `seconds_per_run`, whatever its length, and `seconds_per_step`.

    The line of least squares through the last `runs` published runs; a line through the origin where they were all of
    one length, or where theirs would give a run, or a step, less than nothing.
    """

    seconds_per_run: float
    seconds_per_step: float
    runs: int

    @classmethod
    def through(cls, measured: Sequence[tuple[int, float]]) -> Self | None:
        """Fit pairs (steps, seconds); None if there is none.

        >>> RuntimeEstimate.through([(100, 3.0), (300, 5.0)])
        RuntimeEstimate(seconds_per_run=2.0, seconds_per_step=0.01, runs=2)
        """
        if not measured:
            return None
        runs = len(measured)
        mean_steps = math.fsum(steps for steps, _ in measured) / runs
        mean_seconds = math.fsum(seconds for _, seconds in measured) / runs
        spread = math.fsum((steps - mean_steps) ** 2 for steps, _ in measured)
        slope = math.fsum((steps - mean_steps) * (seconds - mean_seconds) for steps, seconds in measured)
        per_step = slope / spread if spread else 0.0
        per_run = mean_seconds - per_step * mean_steps
        if per_step <= 0 or per_run < 0:
            per_step, per_run = mean_seconds / mean_steps, 0.0
        return cls(seconds_per_run=per_run, seconds_per_step=per_step, runs=runs)

    def seconds(self, steps: int, *, runs: int = 1) -> float:
        """Seconds that `steps` in so many runs would take here."""
        return runs * self.seconds_per_run + steps * self.seconds_per_step


def of_model(session: Session, model: Model) -> RuntimeEstimate | None:
    """None before its first version."""
    times = repository.times(session, model_id=model.id, last=_RECENT)
    return RuntimeEstimate.through(
        [(steps, max(0.0, (ended - began).total_seconds())) for steps, began, ended in times]
    )


def of_dataset(session: Session, dataset_id: str) -> RuntimeEstimate | None:
    """The estimate of the newest of a dataset's models that has one, which holds for the runs of the next one if it has
    as many parameters. None before the first version of any."""
    models = repository.models_of(session, dataset_id=dataset_id)
    for model in sorted(models, key=lambda one: one.created_at, reverse=True):
        if found := of_model(session, model):
            return found
    return None


def seconds_left(session: Session, run: Run, *, at: datetime.datetime) -> float | None:
    """Seconds that a run under way still takes; None where nothing is known: it has reported no step, and its model has
    no version that would tell.

    The share of its steps that is done is judged by its own time, the rest by the model's past runs, where there are
    any. The canaries of a run of kind `audit` are many more than those of others, so past runs say nothing of it.
    """
    if run.status != RunStatus.RUNNING or not run.steps_total:
        return None
    done = run.steps_done / run.steps_total
    taken = max(0.0, (at - run.started_at).total_seconds())
    model = session.get(Model, run.model_id) if run.model_id and run.kind != RunKind.AUDIT else None
    estimate = of_model(session, model) if model else None
    if estimate is None:
        return taken * (1 - done) / done if done else None
    in_all = taken + (1 - done) * estimate.seconds(run.steps_total) if done else estimate.seconds(run.steps_total)
    return in_all * (1 - done)
