"""The dual of the planner: the noise with which a given number of steps is enough."""

import math
from dataclasses import replace

from lethe.proof import accountant, conversion
from lethe.proof.accountant import Run
from lethe.proof.errors import require_count
from lethe.proof.mechanism import Mechanism


def least_noise(mechanism: Mechanism, *, records: int, steps: int, epsilon: float, delta: float) -> float:
    """Return the minimum `noise_scale` with which `records` >= 1 learned records meet the target in `steps`.

    Formal Guarantee: the result reaches (epsilon, delta); a value smaller by more than rounding does not. The result
    does not depend on `mechanism.noise_scale`: influence is independent of it, so mu is inversely proportional to it.

    Edge cases: raises `PreconditionError` if float64 cannot represent so little noise relative to the radius.

    """
    require_count(1, records=records)
    target = conversion.gdp_mu(epsilon=epsilon, delta=delta)
    runs = [Run(steps=mechanism.learn_steps), Run(steps=steps, records=records)]

    def mu_with(noise: float) -> float:
        return accountant.unlearning_mu(accountant.replay(replace(mechanism, noise_scale=noise), runs))

    noise = mechanism.noise_scale * (mu_with(mechanism.noise_scale) / target)
    # The quotient is exact up to rounding, so this loop advances a few units in the last place.
    while mu_with(noise) > target:
        noise = math.nextafter(noise, math.inf)
    return noise
