"""Lanes: extra coordinates of a run that no row touches, half of them with a canary and all of them with witnesses,
driven by the run's own steps.

`lethe/proof/canary_test.py` states their law and what follows from their end. They hold nothing about a person.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from app.errors import AuditFailed
from lethe.proof import canary_test
from lethe.proof.canary_test import CanaryPlan, Guesses, Law, Observed
from lethe.proof.mechanism import Mechanism


class Draws(Protocol):
    def normal(self, size: int) -> Tensor: ...  # (size,) float64


@dataclass(frozen=True, slots=True, kw_only=True)
class Push:
    """Displacement of each lane by a full-size step: by the witnesses in the batch that the step reads, and by the
    lane's canary, while present, if the step reads the canary's batch."""

    witnesses: Tensor  # (batches that differ, groups) float64
    groups: Tensor  # (p,) int64
    canaries: Tensor | None  # (p,) float64
    places: Tensor  # (p,) int64

    def of(self, batch: int) -> Tensor:
        """Return the displacement of each lane by a full-size step that reads `batch`  # (p,)"""
        push = self.witnesses[batch % len(self.witnesses)].index_select(0, self.groups)
        return push if self.canaries is None else push.add_(torch.where(self.places == batch, self.canaries, 0.0))

    def to(self, device: torch.device) -> "Push":
        return Push(
            witnesses=self.witnesses.to(device),
            groups=self.groups.to(device),
            canaries=self.canaries if self.canaries is None else self.canaries.to(device),
            places=self.places.to(device),
        )


class Lanes:
    """Lanes of one run, the first half with a canary. `start`, (lanes,), is their position if it is known."""

    def __init__(self, law: Law, plan: CanaryPlan, *, start: Tensor | None = None) -> None:
        self._law, self._plan, self._start = law, plan, start
        self._canaries = torch.zeros(plan.lanes, dtype=torch.float64)
        self._canaries[: plan.lanes // 2] = 1
        self._groups = (torch.arange(plan.lanes // 2) % plan.groups).repeat(2)

    def start(self, noise: Draws) -> Tensor:
        """Return the lanes before the run: at the origin, or as the steps before it left them  # (lanes,)"""
        if self._start is not None:
            return self._start.clone()
        start = self._each(self._law.start) * self._canaries
        if self._plan.steps_before:
            start += self._law.start_variance**0.5 * noise.normal(len(start))
        return start

    @property
    def push(self) -> Push:
        """Displacement of the lanes by a full-size step, for every batch."""
        return Push(
            witnesses=torch.from_numpy(self._law.witnesses),
            groups=self._groups,
            canaries=None if self._plan.steps_before else self._law.push * self._canaries,
            places=self._each(self._law.place),
        )

    def without_witnesses(self, end: Tensor) -> Tensor:
        """Return where lanes that ended at `end` would have ended without witnesses  # (lanes,)"""
        return end - torch.from_numpy(self._law.witnessed)[self._groups]

    def observed(self, start: Tensor, end: Tensor) -> Observed:
        """Return the statistics of lanes that went from `start` to `end`  # (lanes,) each"""
        law, mean = self._law, self._each(self._law.mean)
        if not bool(end.isfinite().all()):
            raise AuditFailed("A lane did not end as a finite number.")
        end = self.without_witnesses(end)
        if self._plan.steps_before:
            # Lanes that continue a chain are compared with their start, which has not faded, however long the run is.
            foreseen, along = start * law.decay, start
        else:
            foreseen = along = mean * self._canaries
        residuals, means = self._apart((end - foreseen) / law.unforeseen**0.5)
        along, _ = self._apart(along)
        guessed = torch.where(mean >= 0, end, -end) > mean.abs() / 2
        had = self._canaries > 0
        return Observed(
            plan=self._plan,
            records=law.records,
            guesses=Guesses(
                true_positives=int((guessed & had).sum()),
                members=int(had.sum()),
                false_positives=int((guessed & ~had).sum()),
                nonmembers=int((~had).sum()),
            ),
            squares=float(residuals.square().sum()),
            drift=float(residuals @ along / along.norm()),
            visits=float(means.square().sum()),
        )

    def _apart(self, numbers: Tensor) -> tuple[Tensor, Tensor]:
        """Return the lanes' numbers less the mean of their group, and this mean for each lane  # (lanes,) each"""
        sums = numbers.new_zeros(2, self._plan.groups)
        sums.index_add_(1, self._groups, torch.stack((numbers, torch.ones_like(numbers))))
        means = (sums[0] / sums[1])[self._groups]
        return numbers - means, means

    @staticmethod
    def _each(of_canaries: NDArray[np.float64]) -> Tensor:
        return torch.from_numpy(of_canaries).repeat(2)


def of(mechanism: Mechanism, plan: CanaryPlan) -> Lanes:
    return Lanes(canary_test.law(mechanism, plan), plan)
