"""Budgets of work: nothing is begun that does not fit, and nothing goes on that nobody waits for."""

import time
from typing import Any

import pytest

from lethe.proof.errors import WorkExceeded
from lethe.theorems import CALCULATOR, evaluate, work
from lethe.theorems.sweep import sweep
from lethe.theorems.work import Budget

SEQUENCE = {"eps_target": 1.0, "sigma": 0.03, "batch": 1, "Mlip": 1, "m": 0.0119, "L": 0.26, "n": 11982, "delta": 1e-5}
CLIPPED = {"eps": 1.0, "delta0": 1.0, "C2": 10.0, "sigma": 0.1}
RATES = {"regime": "nc", "eta": 0.1, "sigma": 1.0, "C_lsi": 1.0, "L": 2.0, "R": 1.0, "Mlip": 1.0}
HEAVY: dict[str, dict[str, Any]] = {
    "alg6_K_list": SEQUENCE | {"total": 200},
    "model_clip_delta": CLIPPED | {"T": 1_000_000},
    "t32_rates": RATES | {"K": 1_000_000},
}


def test_a_part_that_does_not_fit_takes_nothing() -> None:
    """What is refused costs nothing of the budget, and what is foreseen is not spent yet."""
    with work.within(Budget(units=10, seconds=60)):
        work.foresee(10)
        work.spend(6)
        with pytest.raises(WorkExceeded, match=r"10 units of work .* 4 are left, not 5"):
            work.spend(5)
        work.spend(4)
    work.spend(10**12)


def test_a_limit_within_a_limit_is_the_first() -> None:
    """Whoever limits what is limited already changes nothing."""
    with (
        work.within(Budget(units=1, seconds=60)),
        work.within(Budget(units=100, seconds=60)),
        pytest.raises(WorkExceeded),
    ):
        work.spend(2)


def test_nothing_goes_on_after_its_time() -> None:
    """A budget that was stopped, or whose time is over, refuses every further part."""
    stopped, late = Budget(units=10, seconds=60), Budget(units=10, seconds=0)
    stopped.stop()
    time.sleep(0.01)
    for budget in (stopped, late):
        with work.within(budget), pytest.raises(WorkExceeded, match="in time"):
            work.spend(1)


@pytest.mark.parametrize("name", HEAVY)
def test_what_takes_much_work_is_refused(name: str) -> None:
    """The theorems that sum or search say what they cost before they do it."""
    with work.within(Budget(units=100_000, seconds=60)), pytest.raises(WorkExceeded):
        evaluate(name, HEAVY[name])


def test_what_is_small_fits() -> None:
    """Each theorem of usual size stays far below what one call may cost."""
    with work.within(Budget(units=100_000, seconds=60)):
        evaluate("alg6_K_list", SEQUENCE | {"total": 3})
        evaluate("t32_rates", RATES | {"K": 1000})


def test_a_sweep_shares_one_budget() -> None:
    """The points of a sweep that do not fit are refused, with the reason, and the others are there."""
    with work.within(Budget(units=11_000, seconds=60)):
        points = sweep(CALCULATOR["t32_rates"], RATES, over="K", low=1, high=10_000, points=5, scale="log")
    assert [point.refused and point.refused.name for point in points] == [None, None, None, None, "work"]
