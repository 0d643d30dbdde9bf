"""Work budgets that limit an evaluation's cost before it is incurred.

Bounds that involve sums or searches reserve the cost of each part before computing it, in units of about a microsecond.
Within a budget (`within`), a part that does not fit is refused, as are all parts after the budget has been stopped or
its deadline has passed. Without a budget, there is no limit.
"""

import contextlib
import time
from collections.abc import Iterator
from contextvars import ContextVar

from lethe.proof.errors import PrivacyError


class WorkBudgetExceeded(PrivacyError):
    """An evaluation would exceed its work budget."""


_budget: ContextVar["WorkBudget | None"] = ContextVar("budget", default=None)


class WorkBudget:
    """Budget of `units` of work to be spent within `seconds`; another thread can stop it."""

    def __init__(self, *, units: int, seconds: float) -> None:
        self.units = units
        self._remaining_units = units
        self._deadline = time.monotonic() + seconds
        self._is_stopped = False

    def stop(self) -> None:
        """Refuse all further work because the caller is no longer waiting for the result."""
        self._is_stopped = True

    def reserve(self, units: int) -> None:
        """Reserve `units` of work, or raise `WorkBudgetExceeded` and reserve none."""
        self.require(units)
        self._remaining_units -= units

    def require(self, units: int) -> None:
        """Check that `units` of work fit in the budget, without reserving them.

        Raises:
            WorkBudgetExceeded: if the budget is stopped, past its deadline, or has fewer units left.
        """
        if self._is_stopped or time.monotonic() > self._deadline:
            raise WorkBudgetExceeded("Expected the evaluation to end in time, while its caller waits")
        if units > self._remaining_units:
            raise WorkBudgetExceeded(
                f"Expected at most {self.units} units of work in total, of which {self._remaining_units} are left, not"
                f" {units} more: request a smaller evaluation, or run `lethe account` on your own machine"
            )


def spend(units: int) -> None:
    """Reserve `units` of the current budget for the next part of an evaluation; a no-op without a budget.

    Raises:
        WorkBudgetExceeded: if the part does not fit in the budget.
    """
    if (budget := _budget.get()) is not None:
        budget.reserve(units)


def foresee(units: int) -> None:
    """Check that an evaluation's remaining parts, at least `units` in total, fit in the budget; each is reserved later.

    Raises:
        WorkBudgetExceeded: if they do not fit.
    """
    if (budget := _budget.get()) is not None:
        budget.require(units)


@contextlib.contextmanager
def within(budget: WorkBudget) -> Iterator[None]:
    """Apply `budget` to the evaluations in the block; a surrounding budget takes precedence."""
    if _budget.get() is not None:
        yield
        return
    token = _budget.set(budget)
    try:
        yield
    finally:
        _budget.reset(token)
