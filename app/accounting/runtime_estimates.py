"""Estimated durations of a model's future runs, based on its past runs, and of the run in progress."""

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
"""Number of past runs used; older runs may have used different machines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeEstimate:
    """Estimated seconds from a run's claim to its publication: `seconds_per_run` plus `seconds_per_step` for each step.

    It is fitted by least squares to the last `runs` published runs; the fitted line passes through the origin if all
    runs have the same length or the fit would yield a negative constant or a step cost of zero or less.
    """

    seconds_per_run: float
    seconds_per_step: float
    runs: int

    @classmethod
    def through(cls, measured: Sequence[tuple[int, float]]) -> Self | None:
        """Return the estimate fitted to (steps, seconds) pairs, or None if there are no pairs.

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
        """Return the estimated duration in seconds of `runs` runs with `steps` steps in total."""
        return runs * self.seconds_per_run + steps * self.seconds_per_step


def of_model(session: Session, model: Model) -> RuntimeEstimate | None:
    """Return the runtime estimate for a model's runs, or None before its first version."""
    times = repository.times(session, model_id=model.id, last=_RECENT)
    return RuntimeEstimate.through(
        [(steps, max(0.0, (ended - began).total_seconds())) for steps, began, ended in times]
    )


def seconds_left(session: Session, run: Run, *, at: datetime.datetime) -> float | None:
    """Return the estimated seconds remaining for a run in progress; None if no step has been reported and the model has
    no past runs.

    The run's own speed is weighted by the share of its steps already taken, and the estimate from the model's past runs
    by the share that remains. Past runs do not predict a run of kind `audit`, which has many more canaries.
    """
    if run.status != RunStatus.RUNNING or not run.steps_total:
        return None
    done = run.steps_done / run.steps_total
    elapsed = max(0.0, (at - run.started_at).total_seconds())
    model = session.get(Model, run.model_id) if run.model_id and run.kind != RunKind.AUDIT else None
    estimate = of_model(session, model) if model else None
    if estimate is None:
        return elapsed * (1 - done) / done if done else None
    total = elapsed + (1 - done) * estimate.seconds(run.steps_total) if done else estimate.seconds(run.steps_total)
    return total * (1 - done)
