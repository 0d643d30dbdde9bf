"""Lanes: extra coordinates of a run that no row touches, half of them with a canary, driven by the run's own steps.

What their law is, and what follows from how they end, says `app/privacy/audit.py`. Nothing of a person is in them.
"""

from typing import Protocol

import torch
from torch import Tensor

from app.errors import AuditFailed
from app.privacy import audit
from app.privacy.audit import AuditPlan, Guesses, Law, Observed
from app.privacy.mechanism import Mechanism


class Draws(Protocol):
    def normal(self, size: int) -> Tensor: ...  # (size,) float64


class Lanes:
    """The lanes of one run, the first half of them with a canary. `start`, (lanes,): where they are, if it is known."""

    def __init__(self, law: Law, plan: AuditPlan, *, start: Tensor | None = None) -> None:
        self._law, self._plan, self._start = law, plan, start
        self._canaries = torch.zeros(plan.lanes, dtype=torch.float64)
        self._canaries[: plan.lanes // 2] = 1

    def start(self, noise: Draws) -> Tensor:
        """Where the lanes are before the run: at the origin, or as the steps before it have left them  # (lanes,)"""
        if self._start is not None:
            return self._start.clone()
        start = self._law.start * self._canaries
        if self._plan.steps_before:
            start += self._law.start_variance**0.5 * noise.normal(len(start))
        return start

    @property
    def push(self) -> Tensor:
        """What a step adds to the lanes because of their canaries  # (lanes,)"""
        return self._law.push * self._canaries

    def observed(self, start: Tensor, end: Tensor) -> Observed:
        """What the lanes show that went from `start` to `end`  # (lanes,) each"""
        law = self._law
        if not bool(end.isfinite().all()):
            raise AuditFailed("A lane did not end as a finite number.")
        if self._plan.steps_before:
            foreseen, along = start * law.decay, start  # which has not faded, however long the run
        else:
            foreseen, along = law.mean * self._canaries, self._canaries
        residuals = (end - foreseen) / law.unforeseen**0.5
        said = end * (1 if law.mean >= 0 else -1) > abs(law.mean) / 2
        had = self._canaries > 0
        return Observed(
            plan=self._plan,
            records=law.records,
            guesses=Guesses(
                true_positives=int((said & had).sum()),
                members=int(had.sum()),
                false_positives=int((said & ~had).sum()),
                nonmembers=int((~had).sum()),
            ),
            squares=float(residuals.square().sum()),
            drift=float(residuals @ along / along.norm()),
        )


def of(mechanism: Mechanism, plan: AuditPlan) -> Lanes:
    return Lanes(audit.law(mechanism, plan), plan)
