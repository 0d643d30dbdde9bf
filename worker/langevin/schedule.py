"""Batch and step size of each step in a run, as functions of public numbers only."""

from dataclasses import dataclass
from typing import Self

from lethe.proof.mechanism import Mechanism


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """Step that reads `batch`, whose slots are `rows`, and uses a `share` in (0, 1] of the step size."""

    batch: int
    rows: slice
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """Schedule of `steps` steps of a run that follows `first_step` earlier steps of its chain.

    Step t of a chain reads batch t mod `num_batches`, a range of the `num_slots` slots. When r < `cool_down` steps
    remain, the next step uses r / `cool_down` of the step size.
    """

    num_slots: int
    steps: int
    num_batches: int = 1
    cool_down: int = 1
    first_step: int = 0

    def __post_init__(self) -> None:
        for name, minimum in {"steps": 1, "num_batches": 1, "cool_down": 1, "first_step": 0}.items():
            if getattr(self, name) < minimum:
                raise ValueError(f"Expected {name}={getattr(self, name)} >= {minimum}")
        if self.num_batches > self.num_slots:
            raise ValueError(f"Expected num_batches={self.num_batches} <= num_slots={self.num_slots}")

    @classmethod
    def of(cls, mechanism: Mechanism, *, first_step: int, steps: int) -> Self:
        return cls(
            num_slots=mechanism.num_slots,
            num_batches=mechanism.num_batches,
            cool_down=mechanism.cool_down,
            first_step=first_step,
            steps=steps,
        )

    @property
    def num_alike(self) -> int:
        """Number of initial steps that read all rows at the full step size, and are therefore identical."""
        return max(self.steps - self.cool_down + 1, 0) if self.num_batches == 1 else 0

    def step(self, done: int) -> Step:
        """Return the step that comes after the first `done` >= 0 steps."""
        batch = (self.first_step + done) % self.num_batches
        return Step(batch=batch, rows=self.rows_of(batch), share=min(1.0, (self.steps - done) / self.cool_down))

    def reads(self, done: int, until: int) -> tuple[slice, ...]:
        """Return the slots read by the steps after the first `done`, up to step `until`: one range, or two if the batch
        order wraps around."""
        first, count = (self.first_step + done) % self.num_batches, until - done
        if count >= self.num_batches:
            return (slice(0, self.num_slots),)
        stop = first + count
        ranges = ((first, min(stop, self.num_batches)), (0, stop - self.num_batches))
        return tuple(
            slice(self.rows_of(begin).start, self.rows_of(end - 1).stop) for begin, end in ranges if begin < end
        )

    def rows_of(self, batch: int) -> slice:
        """Return the slots of a batch. Batch sizes differ by at most one slot."""
        return slice(self.num_slots * batch // self.num_batches, self.num_slots * (batch + 1) // self.num_batches)
