"""Invented observations of lanes from correct and incorrect runs."""

from typing import Any

from lethe.proof import canary_test
from lethe.proof.canary_test import CanaryPlan, Guesses, Observed
from lethe.proof.mechanism import Mechanism


def observed(plan: CanaryPlan, mechanism: Mechanism | None, **changed: Any) -> Observed:
    """Return an observation with nine out of ten guesses right and correct noise, except for the given changes."""
    members = plan.lanes // 2
    wrong = members // 10
    assert mechanism is not None
    parts: dict[str, Any] = {
        "records": canary_test.law(mechanism, plan).records,
        "guesses": Guesses(true_positives=members - wrong, members=members, false_positives=wrong, nonmembers=members),
        "squares": float(plan.lanes),
        "drift": 0.5,
        "visits": 1.0,
    }
    return Observed(plan=plan, **parts | changed)
