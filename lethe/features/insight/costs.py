"""Cost of a target from public numbers alone: the noise that hides a record, and the passes to train and to forget.

Accuracy depends on the rows and is not part of the cost; `lethe.features.tables.previewing` measures it.
"""

import math
from dataclasses import dataclass

from lethe.proof import accountant, calibration, errors, losses
from lethe.proof.mechanism import Mechanism

EPSILONS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
"""Targets of a cost curve: the largest epsilon that counts as forgetting, halved repeatedly."""
MAX_STEPS = 10**7
"""Maximum number of steps considered for one request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Cost of one mechanism at a target.

    Attributes:
        epsilon: Epsilon of the target, in nats.
        delta: Delta of the target.
        l2: Strength of the regularisation.
        noise: Upper bound on the standard deviation of the noise in the score of a row of norm 1. For regression, the
            unit is half the target's range; for counts, the score is the logarithm of the rate.
        learn_passes: Number of passes over the rows for training.
        request_passes: Number of passes over the rows to forget the first record; None if the target is out of reach.
    """

    epsilon: float
    delta: float
    l2: float
    noise: float
    learn_passes: float
    request_passes: float | None


def around(
    num_slots: int, epsilon: float, objective: losses.Objective = losses.Objective.LOGISTIC_REGRESSION
) -> tuple[float, float, float]:
    """Return a quarter of the default l2, the default l2, and four times the default l2.

    >>> around(1000, 1.0)
    (0.0005, 0.002, 0.008)
    """
    middle = calibration.default_l2(num_slots, epsilon, objective)
    return middle / 4, middle, 4 * middle


def of(mechanism: Mechanism, *, epsilon: float, delta: float) -> Cost:
    """Return the cost of `mechanism` at the target (epsilon, delta).

    A request takes the minimum number of steps that reaches the target, or `learn_steps` if that is smaller. `noise` is
    nu / sqrt(1 - c^2), an upper bound for a chain of any length.

    >>> settings = calibration.ModelSettings(epsilon=1.0, delta=1e-5)
    >>> m = calibration.mechanism_for(settings, num_slots=32561, num_classes=2)
    >>> cost = of(m, epsilon=1.0, delta=1e-5)
    >>> round(cost.noise, 2), round(cost.learn_passes, 1), round(cost.request_passes, 1)
    (0.35, 34.7, 1.7)
    """
    learned = accountant.replay(mechanism, [accountant.Run(steps=mechanism.learn_steps)])
    request_passes = None
    try:
        steps = calibration.least_steps(learned, records=1, epsilon=epsilon, delta=delta, at_most=MAX_STEPS)
        request_passes = min(steps, mechanism.learn_steps) / mechanism.num_batches
    except errors.InfeasibleError:
        pass
    gap = 1 - mechanism.contraction
    return Cost(
        epsilon=epsilon,
        delta=delta,
        l2=mechanism.l2,
        noise=math.sqrt(mechanism.step_variance / (gap * (2 - gap))),
        learn_passes=mechanism.learn_steps / mechanism.num_batches,
        request_passes=request_passes,
    )
