from typing import Any

import numpy as np

from lethe.proof import calibration, canary_test
from lethe.proof.canary_test import CanaryPlan, Guesses, Observed
from lethe.proof.mechanism import Mechanism

MECHANISM = calibration.mechanism_for(
    calibration.ModelSettings(epsilon=1.0, delta=1e-5, batch_size=1000, cool_down=1),
    num_slots=1000,
    num_classes=2,
    num_parameters=21,
)


def guesses(true_positives: int, members: int, false_positives: int, nonmembers: int) -> Guesses:
    return Guesses(
        true_positives=true_positives, members=members, false_positives=false_positives, nonmembers=nonmembers
    )


# --- results of a run ------------------------------------------------------------------------------------------------


def seen(
    plan: CanaryPlan,
    guessed: Guesses,
    *,
    squares: float,
    drift: float = 0.0,
    visits: float = 1.0,
    made: Mechanism = MECHANISM,
) -> Observed:
    records = canary_test.law(made, plan).records
    return Observed(plan=plan, records=records, guesses=guessed, squares=squares, drift=drift, visits=visits)


def apart(plan: CanaryPlan, numbers: Any) -> tuple[Any, Any]:
    """Return the lanes' numbers minus the mean of their group, and that mean, both as arrays (canary tests, lanes)."""
    group = np.tile(np.arange(plan.lanes // 2) % plan.groups, 2)
    same = (group[:, None] == group) / np.bincount(group)[group]
    return numbers - numbers @ same, numbers @ same
