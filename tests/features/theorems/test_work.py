"""Theorems within a budget of work."""

from typing import Any

import pytest

from lethe.features.analysis import work
from lethe.features.analysis.work import WorkBudget, WorkBudgetExceeded
from lethe.features.theorems import evaluate

SEQUENCE = {"eps_target": 1.0, "sigma": 0.03, "batch": 1, "Mlip": 1, "m": 0.0119, "L": 0.26, "n": 11982, "delta": 1e-5}
CLIPPED = {"eps": 1.0, "delta0": 1.0, "C2": 10.0, "sigma": 0.1}
RATES = {"regime": "nc", "eta": 0.1, "sigma": 1.0, "C_lsi": 1.0, "L": 2.0, "R": 1.0, "Mlip": 1.0}
HEAVY: dict[str, dict[str, Any]] = {
    "alg6_K_list": SEQUENCE | {"total": 200},
    "model_clip_delta": CLIPPED | {"T": 1_000_000},
    "t32_rates": RATES | {"K": 1_000_000},
}


@pytest.mark.parametrize("name", HEAVY)
def test_expensive_evaluations_are_refused(name: str) -> None:
    """Theorems that sum or search refuse an expensive evaluation before it starts."""
    with work.within(WorkBudget(units=100_000, seconds=60)), pytest.raises(WorkBudgetExceeded):
        evaluate(name, HEAVY[name])


def test_typical_evaluations_are_cheap() -> None:
    """An evaluation of typical size stays far below the work budget of a single call."""
    with work.within(WorkBudget(units=100_000, seconds=60)):
        evaluate("alg6_K_list", SEQUENCE | {"total": 3})
        evaluate("t32_rates", RATES | {"K": 1000})
