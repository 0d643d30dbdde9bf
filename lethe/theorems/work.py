"""A budget of work: what an evaluation may cost, checked before it is spent.

Bounds that sum or search say what each part costs before they do it, in units of about a microsecond. Where a budget
was set (`within`), a part that does not fit is refused, and so is every part after the budget was stopped or its time
was over; where none was, nothing is limited.
"""

import contextlib
import time
from collections.abc import Iterator
from contextvars import ContextVar

from lethe.proof.errors import WorkExceeded

_budget: ContextVar["Budget | None"] = ContextVar("budget", default=None)


class Budget:
    """`units` of work, to be done within `seconds`; it may be stopped from another thread."""

    def __init__(self, *, units: int, seconds: float) -> None:
        self.units = units
        self._left = units
        self._ends = time.monotonic() + seconds
        self._is_stopped = False

    def stop(self) -> None:
        """Refuse whatever comes: nobody waits for it any more."""
        self._is_stopped = True

    def take(self, units: int, *, only_look: bool) -> None:
        """Raises `WorkExceeded`; then nothing of it is taken."""
        if self._is_stopped or time.monotonic() > self._ends:
            raise WorkExceeded("Expected the evaluation to end in time, and its caller to wait for it")
        if units > self._left:
            raise WorkExceeded(
                f"Expected at most {self.units} units of work for all of it, of which {self._left} are left, not"
                f" {units} for this: ask for less, or use `lethe account` on a machine of your own"
            )
        self._left -= 0 if only_look else units


def spend(units: int) -> None:
    """Say what the next part costs. Raises `WorkExceeded` if it does not fit."""
    if (budget := _budget.get()) is not None:
        budget.take(units, only_look=False)


def foresee(units: int) -> None:
    """Say what all parts to come will cost at least, each of which is spent when it comes. Raises `WorkExceeded`."""
    if (budget := _budget.get()) is not None:
        budget.take(units, only_look=True)


@contextlib.contextmanager
def within(budget: Budget) -> Iterator[None]:
    """Limit what is evaluated in the block, unless it is limited already."""
    if _budget.get() is not None:
        yield
        return
    token = _budget.set(budget)
    try:
        yield
    finally:
        _budget.reset(token)
