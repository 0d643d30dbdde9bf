"""Conversion of Renyi divergence to (epsilon, delta), rounded up.

Conventions of all conversions. Symbols: order > 1; divergence in [0, inf] and epsilon >= 0, in nats; 0 < delta < 1; mu
>= 0. An infinite divergence stands for an unknown bound and yields epsilon = inf or delta = 1.

Assumptions: D_order(P || Q) <= divergence; for Gaussian conversions D_alpha(P || Q) <= alpha mu^2/2 for all alpha > 1.

Formal Guarantee: P(O) <= e^epsilon Q(O) + delta for every event O. A conversion covers one direction; a two-sided
assumption yields a two-sided result.

References: C. Canonne, G. Kamath, T. Steinke, "The discrete Gaussian for differential privacy", NeurIPS 2020,
Proposition 12. I. Mironov, "Renyi differential privacy", CSF 2017, Proposition 3.
"""

import math
from dataclasses import dataclass

# scipy loads scipy.optimize only when it is first used.
import scipy

from lethe.proof import errors, rounding


@dataclass(frozen=True, slots=True, kw_only=True)
class AtOrder:
    """Epsilon and the Renyi order that attains it."""

    epsilon: float
    order: float


def renyi_to_epsilon_mironov(*, order: float, divergence: float, delta: float) -> float:
    """Return epsilon = divergence + log(1/delta) / (order - 1).

    `renyi_to_epsilon_cks` never gives a larger value; this conversion is provided for comparison.

    Edge cases: divergence = 0 means P = Q and gives epsilon 0.

    Reference: Mironov 2017, Proposition 3.

    >>> round(renyi_to_epsilon_mironov(order=2.0, divergence=0.1, delta=1e-5), 9)
    11.612925465
    """
    require_order(order=order)
    require_divergence(divergence=divergence)
    errors.require_fraction(delta=delta)
    return rounding.sum_rounded_up(divergence, -math.log(delta) / (order - 1)) if divergence else 0.0


def renyi_to_epsilon_cks(*, order: float, divergence: float, delta: float) -> float:
    """Return divergence + log((order - 1)/order) - (log delta + log order) / (order - 1), or 0 if that is negative.

    Edge cases: divergence = 0 means P = Q and gives epsilon 0.

    Reference: Canonne, Kamath, Steinke 2020, Proposition 12.

    >>> round(renyi_to_epsilon_cks(order=2.0, divergence=0.1, delta=1e-5), 9)
    10.226631104
    """
    require_order(order=order)
    require_divergence(divergence=divergence)
    errors.require_fraction(delta=delta)
    excess = order - 1
    terms = (divergence, -math.log1p(1 / excess), -math.log(delta) / excess, -math.log(order) / excess)
    return max(rounding.sum_rounded_up(*terms), 0.0) if divergence else 0.0


def renyi_to_delta_cks(*, order: float, divergence: float, epsilon: float) -> float:
    """Return e^((order - 1)(divergence - epsilon)) / (order - 1) * (1 - 1/order)^order, or 1 if that is larger.

    Edge cases: divergence = 0 means P = Q and gives delta 0. A value too small for a float is returned as the smallest
    positive float.

    Reference: Canonne, Kamath, Steinke 2020, Proposition 12.

    >>> round(renyi_to_delta_cks(order=8.0, divergence=1.0, epsilon=2.0), 14)
    4.476153908e-05
    """
    require_order(order=order)
    require_divergence(divergence=divergence)
    errors.require_nonnegative(epsilon=epsilon)
    excess = order - 1
    exponent = max(excess * (divergence - epsilon), -1e300)
    log_delta = rounding.sum_rounded_up(exponent, -math.log(excess), -order * math.log1p(1 / excess))
    return math.nextafter(math.exp(min(log_delta, 0.0)), 1.0) if divergence else 0.0


def gaussian_epsilon_mironov(*, mu: float, delta: float) -> AtOrder:
    """Minimise `renyi_to_epsilon_mironov` over alpha for divergence alpha mu^2/2: mu^2/2 + mu sqrt(2 log(1/delta)).

    Edge cases: mu = 0 gives epsilon 0 at infinite order.

    Reference: Mironov 2017, Proposition 3; the order is 1 + sqrt(2 log(1/delta)) / mu.

    >>> round(gaussian_epsilon_mironov(mu=0.3, delta=1 / 11982).epsilon, 3)
    1.345
    """
    errors.require_nonnegative(mu=mu)
    errors.require_fraction(delta=delta)
    if mu == 0:
        return AtOrder(epsilon=0.0, order=math.inf)
    deviation = math.sqrt(-2 * math.log(delta))
    return AtOrder(epsilon=rounding.up(mu * (mu / 2 + deviation)), order=1 + deviation / mu)


def gaussian_epsilon_cks(*, mu: float, delta: float) -> AtOrder:
    """Return the minimum of `renyi_to_epsilon_cks` over alpha for the RDP curve alpha mu^2/2.

    The derivative in alpha, mu^2/2 + (log delta + log alpha) / (alpha - 1)^2, has one root. With l = log(1/delta) and a
    = alpha - 1, it solves (mu a)^2/2 + log(1 + a) = l and lies between min(sqrt(l)/mu, l)/2 and 2 sqrt(l)/mu.

    Edge cases: mu = 0 gives epsilon 0 at infinite order; a positive mu below 1e-100 is treated as 1e-100.

    Reference: Canonne, Kamath, Steinke 2020, Proposition 12.

    >>> round(gaussian_epsilon_cks(mu=0.3, delta=1 / 11982).epsilon, 3)
    1.073
    """
    errors.require_nonnegative(mu=mu)
    errors.require_fraction(delta=delta)
    if mu == 0:
        return AtOrder(epsilon=0.0, order=math.inf)
    mu = max(mu, 1e-100)
    loss = -math.log(delta)
    low, high = math.log(min(math.sqrt(loss) / mu, loss) / 2), math.log(2 * math.sqrt(loss) / mu)
    log_excess = scipy.optimize.brentq(
        lambda u: (mu * math.exp(u)) ** 2 / 2 + math.log1p(math.exp(u)) - loss, low, high
    )
    order = max(1 + math.exp(log_excess), math.nextafter(1.0, 2.0))
    return AtOrder(epsilon=renyi_to_epsilon_cks(order=order, divergence=order * mu * mu / 2, delta=delta), order=order)


def require_order(**values: float) -> None:
    """Check that each value is in (1, inf), the valid range of Renyi orders."""
    errors.require_finite(**values)
    for name, value in values.items():
        if not value > 1:
            raise errors.DomainError(f"Expected {name}={value} > 1")


def require_divergence(**values: float) -> None:
    """Check that each value is in [0, inf]. An infinite divergence stands for an unknown bound."""
    for name, value in values.items():
        if not value >= 0:
            raise errors.DomainError(f"Expected {name}={value} >= 0")
