"""Lanes: extra coordinates of a run that no row touches, half of them with a canary, driven by the run's own steps.

What their law is, and what follows from how they end, says `app/privacy/audit.py`. Nothing of a person is in them.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from app.errors import AuditFailed
from app.privacy import audit
from app.privacy.audit import AuditPlan, Guesses, Law, Observed
from app.privacy.mechanism import Mechanism


class Draws(Protocol):
    def normal(self, size: int) -> Tensor: ...  # (size,) float64


@dataclass(frozen=True, slots=True, kw_only=True)
class Push:
    """What a step of the full size adds to each lane if it reads the batch in which the lane's canary is."""

    amounts: Tensor  # (p,) float64
    places: Tensor  # (p,) int64

    def of(self, batch: int) -> Tensor:
        """# (p,)"""
        return torch.where(self.places == batch, self.amounts, 0.0)


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
        start = self._each(self._law.start) * self._canaries
        if self._plan.steps_before:
            start += self._law.start_variance**0.5 * noise.normal(len(start))
        return start

    @property
    def push(self) -> Push:
        """What a step of the full size adds to the lanes whose canaries it reads, as long as they are there."""
        there = 0.0 if self._plan.steps_before else self._law.push
        return Push(amounts=there * self._canaries, places=torch.from_numpy(self._law.place).repeat(2))

    def observed(self, start: Tensor, end: Tensor) -> Observed:
        """What the lanes show that went from `start` to `end`  # (lanes,) each"""
        law, mean = self._law, self._each(self._law.mean)
        if not bool(end.isfinite().all()):
            raise AuditFailed("A lane did not end as a finite number.")
        if self._plan.steps_before:
            foreseen, along = start * law.decay, start  # which has not faded, however long the run
        else:
            foreseen = along = mean * self._canaries
        residuals = (end - foreseen) / law.unforeseen**0.5
        said = torch.where(mean >= 0, end, -end) > mean.abs() / 2
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

    @staticmethod
    def _each(of_canaries: NDArray[np.float64]) -> Tensor:
        return torch.from_numpy(of_canaries).repeat(2)


def of(mechanism: Mechanism, plan: AuditPlan) -> Lanes:
    return Lanes(audit.law(mechanism, plan), plan)
