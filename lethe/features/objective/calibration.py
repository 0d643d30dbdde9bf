"""Calibration of objective perturbation to a target, from public numbers alone."""

import math

from lethe.features.objective import accountant, mechanism
from lethe.proof import conversion, errors, losses

OUTPUT_NOISE = 2.0**-7
"""Default standard deviation of a score's output noise. Scores are of order 1."""
SHARE = 0.5
"""Ratio of the default Lambda to noise_scale for a single score, doubled for softmax. It was chosen once, for accuracy
on held-out training rows of eight public tables; `benchmarks/objective.py --rule` compares alternatives."""
MIN_REGULARISATION = 0.25
"""Minimum default Lambda."""


def choose(
    *,
    num_slots: int,
    num_columns: int,
    num_classes: int,
    epsilon: float,
    delta: float,
    versions: int = 1,
    objective: losses.Objective = losses.Objective.LOGISTIC_REGRESSION,
    regularisation: float | None = None,
    class_weights: tuple[float, ...] | None = None,
    weight_bound: float | None = None,
) -> mechanism.ObjectivePerturbation:
    """Return the mechanism with the least noise whose `adaptive` guarantee for one record is (epsilon, delta).

    The choice depends on public numbers alone. `versions` >= 1 is the number of versions that the target covers. Lambda
    is `default_regularisation` if `regularisation` is None. The tolerance is such that `deletion` is (0, delta).

    Raises:
        InfeasibleError: if no `noise_scale` up to 1e5 reaches the target.
        PrivacyError: if an argument is out of range, or the proof does not cover the objective.
    """
    errors.require_positive(epsilon=epsilon)
    errors.require_fraction(delta=delta)
    errors.require_count(1, versions=versions, num_columns=num_columns, num_slots=num_slots)

    size = losses.num_weight_rows(num_classes, objective) * num_columns

    def made(noise_scale: float) -> mechanism.ObjectivePerturbation:
        strength = regularisation or default_regularisation(noise_scale, num_classes, objective)
        return mechanism.ObjectivePerturbation(
            objective=objective,
            num_slots=num_slots,
            num_classes=num_classes,
            num_columns=num_columns,
            l2=strength / num_slots,
            noise_scale=noise_scale,
            tolerance=_tolerance(strength, num_slots, noise_scale, delta, size),
            output_noise=OUTPUT_NOISE,
            class_weights=class_weights,
            weight_bound=weight_bound,
        )

    def reaches(noise_scale: float) -> bool:
        published = [accountant.Releases(mechanism=made(noise_scale), versions=versions)]
        return accountant.adaptive_epsilon(published, delta=delta) <= epsilon

    # Even a single version needs this much noise, without the term for the determinant.
    low = 0.5 / conversion.gdp_mu(epsilon=epsilon, delta=delta)
    high = 2 * low
    while not reaches(high):
        low, high = high, 2 * high
        if high > 1e5:
            raise errors.InfeasibleError(
                f"Expected epsilon={epsilon} and delta={delta} within reach of noise_scale <= 1e5"
            )
    while high / low > 1 + 2**-10:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if reaches(middle) else (middle, high)
    return made(high)


def default_regularisation(
    noise_scale: float, num_classes: int, objective: losses.Objective = losses.Objective.LOGISTIC_REGRESSION
) -> float:
    """Return the default Lambda = num_slots l2: `SHARE` noise_scale, or twice that for softmax, but at least
    `MIN_REGULARISATION`.

    In every direction about which the rows say little, noise alone contributes weights of length noise_scale / Lambda,
    so this ratio bounds what noise adds to a score.
    """
    softmax = objective is losses.Objective.LOGISTIC_REGRESSION and num_classes > 2
    return max((2 if softmax else 1) * SHARE * noise_scale, MIN_REGULARISATION)


def _tolerance(regularisation: float, num_slots: int, noise_scale: float, delta: float, num_parameters: int) -> float:
    """Return the tolerance at which twice the solver's mu, including rounding, is at most the mu of (0, delta).

    It leaves room for the rounding of xi and of gradients. The latter, `num_slots` 2^-40, grows with the rows.
    """
    rounding = OUTPUT_NOISE * 2.0**-32 * math.sqrt(num_parameters)
    distance = min(conversion.gdp_mu(epsilon=0.0, delta=delta), 0.1) / 2 * OUTPUT_NOISE - rounding
    of_noise = noise_scale * 2.0**-32 * math.sqrt(num_parameters)
    return max(0.99 * regularisation * distance, math.ldexp(num_slots, -40) + of_noise)
