"""The price of a target, by public numbers alone: the noise that hides a record, and the passes that it takes.

Accuracy is not among them: it depends on the rows. `lethe.tables.preview` measures it where the rows are.
"""

import math
from dataclasses import dataclass

from lethe.proof import accountant
from lethe.proof.accountant import Run
from lethe.proof.errors import InfeasibleError
from lethe.proof.losses import Objective
from lethe.proof.mechanism import Mechanism
from lethe.theorems import calibration

EPSILONS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
"""Targets that a curve goes through: the largest that is called forgetting, halved and halved again."""
MOST_STEPS = 10**7


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """The cost of one setting. `noise`: standard deviation, at most, that the noise gives to the score of a row of
    norm 1 (of a regression in units of half the target's range, of counts the logarithm of the rate). `learn_passes`,
    `request_passes`: passes over the rows to learn, and to forget the first person by themselves; None where the target
    is out of reach."""

    epsilon: float
    delta: float
    l2: float
    noise: float
    learn_passes: float
    request_passes: float | None


def around(
    num_slots: int, epsilon: float, objective: Objective = Objective.LOGISTIC_REGRESSION
) -> tuple[float, float, float]:
    """A quarter of the default l2, the default, and four times the default.

    >>> around(1000, 1.0)
    (0.0005, 0.002, 0.008)
    """
    middle = calibration.default_l2(num_slots, epsilon, objective)
    return middle / 4, middle, 4 * middle


def of(mechanism: Mechanism, *, epsilon: float, delta: float) -> Cost:
    """The cost of a mechanism that aims at (epsilon, delta).

    A request takes the least steps that reach the target, or those of learning again where they are no more.
    `noise` is nu / sqrt(1 - c^2), which the noise of a chain of any length stays below.

    >>> m = calibration.mechanism_for(num_slots=32561, num_classes=2, epsilon=1.0, delta=1e-5)
    >>> found = of(m, epsilon=1.0, delta=1e-5)
    >>> round(found.noise, 2), round(found.learn_passes, 1), round(found.request_passes, 1)
    (0.35, 69.8, 1.9)
    """
    learned = accountant.replay(mechanism, [Run(steps=mechanism.learn_steps)])
    passes = None
    try:
        steps = calibration.least_steps(learned, records=1, epsilon=epsilon, delta=delta, at_most=MOST_STEPS)
        passes = min(steps, mechanism.learn_steps) / mechanism.num_batches
    except InfeasibleError:
        pass
    gap = 1 - mechanism.contraction
    return Cost(
        epsilon=epsilon,
        delta=delta,
        l2=mechanism.l2,
        noise=math.sqrt(mechanism.step_variance / (gap * (2 - gap))),
        learn_passes=mechanism.learn_steps / mechanism.num_batches,
        request_passes=passes,
    )
