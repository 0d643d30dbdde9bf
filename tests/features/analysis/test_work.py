"""Work budgets: work that exceeds its budget is refused, and work stops when no caller is waiting for it."""

import time

import pytest

from lethe.features.analysis import work
from lethe.features.analysis.work import WorkBudget, WorkBudgetExceeded


def test_a_refused_charge_leaves_the_budget_unchanged() -> None:
    """A refused charge leaves the work budget unchanged, and announcing work does not spend any of the budget."""
    with work.within(WorkBudget(units=10, seconds=60)):
        work.foresee(10)
        work.spend(6)
        with pytest.raises(WorkBudgetExceeded, match=r"10 units of work .* 4 are left, not 5"):
            work.spend(5)
        work.spend(4)
    work.spend(10**12)


def test_nested_limits_have_no_effect() -> None:
    """A work limit set inside the `with` block of another limit has no effect."""
    with (
        work.within(WorkBudget(units=1, seconds=60)),
        work.within(WorkBudget(units=100, seconds=60)),
        pytest.raises(WorkBudgetExceeded),
    ):
        work.spend(2)


def test_a_stopped_budget_refuses_further_work() -> None:
    """A budget that was stopped or has run out of time refuses all further work."""
    stopped, late = WorkBudget(units=10, seconds=60), WorkBudget(units=10, seconds=0)
    stopped.stop()
    time.sleep(0.01)
    for budget in (stopped, late):
        with work.within(budget), pytest.raises(WorkBudgetExceeded, match="in time"):
            work.spend(1)
