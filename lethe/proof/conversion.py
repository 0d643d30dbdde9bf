"""From mu-GDP and from Renyi divergence to (epsilon, delta).

Two laws P, Q are (epsilon, delta)-indistinguishable when P(O) <= e^epsilon Q(O) + delta for every event O, and with P
and Q swapped. The conversions act on one direction; from a two-sided hypothesis they give a two-sided result.

**The Gaussian curve.** mu-GDP (no test tells P from Q better than N(0, 1) from N(mu, 1)) is equivalent to holding, for
every epsilon >= 0,

    delta(epsilon) = Phi(-x) - e^epsilon Phi(-x - mu),            x = epsilon/mu - mu/2.

The two terms agree to many digits when mu is small. Let phi be the normal density and R(z) = Phi(-z)/phi(z) Mills'
ratio. Since e^epsilon phi(x + mu) = phi(x), the exponential cancels:

    delta = phi(x) (R(x) - R(x + mu)),
    R(x) - R(x + mu) = integral of m over [x, x + mu],            m(z) = 1 - z R(z) = -R'(z) > 0.

Nothing is lost in the integral: over a short interval Gauss' rule of three points suffices, over a long one the
difference itself is accurate.

**The inverses** find the root of log delta by Newton's method, which cannot fail here, because log delta is concave:

  - in epsilon (hence in x): d log delta / dx = -mu / (R(x)/R(x + mu) - 1), and R(x)/R(x + mu) falls in x, since
    R(z) = integral of exp(-zs - s^2/2) over s > 0 is log-convex (Hoelder);
  - in mu: d log delta / dmu = 1 / (R(x) - R(x + mu)), and the denominator, the integral over s > 0 of
    exp(-s epsilon/mu - s^2/2) 2 sinh(s mu/2), rises in mu.

A tangent of a concave function lies above it, so from the second iterate on epsilon descends to its root and mu climbs
to its own: each iterate is on the safe side. Both start from delta <= Phi(-x), which is nearly exact for large mu, or
for mu from its value at epsilon = 0 if that is larger.

**Rounding is outward.** The evaluation is accurate to 1e-12, relative to delta and to 1 - delta; `_MARGIN` is added on
top, so that a returned epsilon or delta is never below the truth and a returned mu never above it.

References: J. Dong, A. Roth, W. Su, "Gaussian differential privacy", JRSS B 84 (2022), arXiv 1905.02383, Corollary
2.13. B. Balle, Y.-X. Wang, "Improving the Gaussian mechanism for differential privacy", ICML 2018, Theorem 8.
C. Canonne, G. Kamath, T. Steinke, "The discrete Gaussian for differential privacy", NeurIPS 2020, Proposition 12.
I. Mironov, "Renyi differential privacy", CSF 2017, Proposition 3.
"""

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from scipy.optimize import brentq
from scipy.special import erfcx, erfinv, ndtr, ndtri

from lethe.proof.errors import (
    InfeasibleError,
    require_divergence,
    require_fraction,
    require_nonnegative,
    require_order,
)

_MARGIN = 1e-9  # relative to delta and to 1 - delta: an inverse gives away this much, a direct evaluation half of it
_ROUNDING = 2.0**-49  # more than the rounding of any of the short sums and products below, relative to their terms
_LOG_SQRT_2PI = 0.5 * math.log(2 * math.pi)
_SQRT_HALF = math.sqrt(0.5)
_SQRT_HALF_PI = math.sqrt(0.5 * math.pi)


# --- the Gaussian curve ----------------------------------------------------------------------------------------------


def gdp_log_delta(*, epsilon: float, mu: float) -> float:
    """Natural logarithm of `gdp_delta`, for values too small for a float.

    Symbols and reference as in `gdp_delta`.

    Formal Guarantee: never below log delta(epsilon); for mu <= 1e3 and epsilon <= 1e6, above it by at most
    1e-9 (1 - delta) + 1e-14 |log delta| + 1e-300.

    Edge cases: mu = 0 gives -inf. Beyond epsilon/mu = 1e100 the value at 1e100 is returned.

    >>> round(gdp_log_delta(epsilon=100.0, mu=1.0), 6)
    -4960.254554
    """
    require_nonnegative(epsilon=epsilon, mu=mu)
    if mu == 0:
        return -math.inf
    ratio = min(epsilon / mu, 1e100)
    x = ratio - mu / 2 - _ROUNDING * (ratio + mu / 2)
    log_delta, _ = _log_delta(x, mu)
    return min(log_delta * (1 - _ROUNDING) - _MARGIN / 2 * math.expm1(log_delta), 0.0)


def gdp_delta(*, epsilon: float, mu: float) -> float:
    """The least delta for which mu-GDP implies (epsilon, delta)-indistinguishability.

    Symbols: epsilon >= 0, in nats; mu >= 0, the distance of two unit Gaussians. Result in [0, 1].

    Assumptions: mu-GDP holds. If the two laws are N(0, 1) and N(mu, 1) the result is attained.

    Formal Guarantee: never below the exact value; above it by at most 1e-9 delta (1 - delta) for mu <= 1e3 and
    delta >= 1e-300, outside that range by more.

    Edge cases: mu = 0 gives 0. epsilon = 0 gives the total variation distance, 2 Phi(mu/2) - 1. A value too small for a
    float becomes the least positive one.

    Reference: Dong, Roth, Su 2022, Corollary 2.13; Balle, Wang 2018, Theorem 8.

    >>> round(gdp_delta(epsilon=2.0, mu=1.0), 9)
    0.020923636
    """
    log_delta = gdp_log_delta(epsilon=epsilon, mu=mu)
    return 0.0 if mu == 0 else math.nextafter(math.exp(log_delta), 1.0)


def gdp_epsilon(*, mu: float, delta: float) -> float:
    """The least epsilon for which mu-GDP implies (epsilon, delta)-indistinguishability.

    Symbols: mu >= 0; 0 < delta < 1. Result >= 0, in nats.

    Assumptions: mu-GDP holds.

    Formal Guarantee: never below the exact value; it is at most the exact epsilon of some delta' < delta with
    delta - delta' <= 1.2e-9 delta (1 - delta), up to the last digits of the float.

    Edge cases: 0 if mu = 0 or delta >= gdp_delta(epsilon=0, mu). Above mu = 1e154, where mu^2/2 exceeds the floats,
    infinite.

    Reference: as `gdp_delta`, of which this is the inverse in epsilon.

    >>> round(gdp_epsilon(mu=1.0, delta=1e-5), 6)
    4.377178
    """
    require_nonnegative(mu=mu)
    require_fraction(delta=delta)
    if delta >= gdp_delta(epsilon=0.0, mu=mu):
        return 0.0
    if mu > 1e154:
        return math.inf
    target, tolerance = _target(delta)

    def gap(x: float) -> tuple[float, float]:
        log_delta, elasticity = _log_delta(x, mu)
        return log_delta - target, -elasticity * _mills(x + mu)

    x = _newton(-float(ndtri(delta)), gap, tolerance)
    return _up(mu * (x + mu / 2))


def gdp_epsilon_below(*, mu: float, delta: float) -> float:
    """As `gdp_epsilon`, rounded down: what a guarantee of this mu must state at least.

    Symbols, assumptions and reference as in `gdp_epsilon`.

    Formal Guarantee: for delta <= 1 - 1e-6 never above the exact value, and so never above `gdp_epsilon` of the same or
    of a larger mu.

    Edge cases: as `gdp_epsilon`.

    >>> round(gdp_epsilon_below(mu=1.0, delta=1e-5), 6)
    4.377178
    """
    require_nonnegative(mu=mu)
    require_fraction(delta=delta)
    larger = delta + 2 * _MARGIN * delta * (1 - delta)  # `gdp_epsilon` aims less than 1.2 margins below it
    return gdp_epsilon(mu=mu, delta=larger) * (1 - 2.0**-40)


def gdp_balanced_accuracy(*, mu: float) -> float:
    """The balanced accuracy of the best attacker against mu-GDP: how often they are right about which of two worlds
    they see, each as likely as the other.

    Symbols: mu >= 0. Result in [1/2, 1].

    Assumptions: mu-GDP holds. If the two laws are N(0, 1) and N(mu, 1) the result is attained.

    Formal Guarantee: never below Phi(mu/2), above it by at most 1e-11 of it. For errors a and b of a test, a + b is at
    least 2 Phi(-mu/2): the trade-off curve Phi(Phi^-1(1 - a) - mu) + a is least where both errors are equal.

    Edge cases: mu = 0 gives 1/2.

    Reference: Dong, Roth, Su 2022, Section 2.1.

    >>> round(gdp_balanced_accuracy(mu=0.27), 6)
    0.553694
    """
    require_nonnegative(mu=mu)
    return min(1.0, float(ndtr(mu / 2)) * (1 + 1e-12)) if mu else 0.5


def gdp_mu(*, epsilon: float, delta: float) -> float:
    """The largest mu for which mu-GDP implies (epsilon, delta)-indistinguishability: a target to stay under.

    Symbols: epsilon >= 0, in nats; 0 < delta < 1. Result > 0.

    Assumptions: none; a mechanism meets (epsilon, delta) if it is mu-GDP for the mu returned.

    Formal Guarantee: never above the exact value; it is at least the exact mu of some delta' < delta with
    delta - delta' <= 1.2e-9 delta (1 - delta), up to the last digits of the float.

    Edge cases: epsilon = 0 gives 2 Phi^-1((1 + delta)/2). Above epsilon = 1e12 the root of delta = Phi(-x) is returned,
    which differs by 1/epsilon at most.

    Reference: as `gdp_delta`, of which this is the inverse in mu.

    >>> round(gdp_mu(epsilon=1.0, delta=1 / 11982), 9)
    0.309534497
    """
    require_nonnegative(epsilon=epsilon)
    require_fraction(delta=delta)
    target, tolerance = _target(delta)

    def gap(mu: float) -> tuple[float, float]:
        log_delta, elasticity = _log_delta(epsilon / mu - mu / 2, mu)
        return log_delta - target, elasticity / mu

    x = -float(ndtri(delta))
    mu = _mu_at(x, epsilon)
    if epsilon <= 1e12:
        mu = _newton(max(mu, math.sqrt(8) * float(erfinv(delta))), gap, tolerance)
    return math.nextafter(mu * (1 - _ROUNDING), 0.0)


def _log_delta(x: float, mu: float) -> tuple[float, float]:
    """log delta at x = epsilon/mu - mu/2, and its elasticity d log delta / d log mu = mu phi(x) / delta."""
    log_phi = -0.5 * x * x - _LOG_SQRT_2PI
    if mu < 0.025 * max(1.0, x):
        middle = x + mu / 2
        reach = math.sqrt(0.6) * mu / 2
        mean = (5 * _mills_slope(middle - reach) + 8 * _mills_slope(middle) + 5 * _mills_slope(middle + reach)) / 18
        log_delta = log_phi + math.log(mu) + math.log(mean)
    elif x >= 0:
        log_delta = log_phi + math.log(_mills(x) - _mills(x + mu))
    else:
        log_delta = math.log1p(-0.5 * math.erfc(-_SQRT_HALF * x) - math.exp(log_phi) * _mills(x + mu))
    return log_delta, math.exp(log_phi + math.log(mu) - log_delta)


def _mills(z: float) -> float:
    """R(z) = Phi(-z) / phi(z)."""
    return _SQRT_HALF_PI * float(erfcx(_SQRT_HALF * z))


def _mills_slope(z: float) -> float:
    """m(z) = 1 - z R(z) = -R'(z): by its asymptotic series where 1 and z R(z) share more than three digits."""
    if z < 64:
        return 1 - z * _mills(z)
    v = 1 / (z * z)
    return v * (1 - 3 * v * (1 - 5 * v * (1 - 7 * v)))


def _mu_at(x: float, epsilon: float) -> float:
    """The mu > 0 with epsilon/mu - mu/2 = x."""
    width = math.sqrt(2) * math.sqrt(epsilon)
    root = math.hypot(x, width)
    return root - x if x <= 0 else width * (width / (x + root))


def _target(delta: float) -> tuple[float, float]:
    """The log delta an inverse aims at, within the tolerance: below log(delta) by the margin."""
    margin = _MARGIN * (1 - delta)
    return math.log(delta) - margin, 0.1 * margin


def _newton(start: float, gap: Callable[[float], tuple[float, float]], tolerance: float) -> float:
    """The root of a concave function, given as (value, slope), to the tolerance or to the last digits of the float."""
    at = start
    for _ in range(100):
        value, slope = gap(at)
        step = value / slope
        if abs(value) <= tolerance or abs(step) <= _ROUNDING / 2 * abs(at):
            return at
        at -= step
    raise ArithmeticError(f"Newton's method from {start} has not converged")  # no input is known that leads here


# --- Renyi divergence ------------------------------------------------------------------------------------------------
#
# Common to the conversions below. Symbols: order > 1; divergence in [0, inf] and epsilon >= 0, in nats; 0 < delta < 1;
# mu >= 0. An infinite divergence means that no bound is known: it gives epsilon = inf or delta = 1.
# Assumptions: D_order(P || Q) <= divergence; for the Gaussian ones D_alpha(P || Q) <= alpha mu^2/2 for every alpha > 1.
# Formal Guarantee: P(O) <= e^epsilon Q(O) + delta for every event O. Rounded up.


@dataclass(frozen=True, slots=True, kw_only=True)
class AtOrder:
    """An epsilon and the Renyi order that attains it."""

    epsilon: float
    order: float


class Conversion(Protocol):
    """From the divergence of one order to epsilon: `renyi_to_epsilon_cks` or `renyi_to_epsilon_mironov`."""

    def __call__(self, *, order: float, divergence: float, delta: float) -> float: ...


def renyi_to_epsilon_mironov(*, order: float, divergence: float, delta: float) -> float:
    """epsilon = divergence + log(1/delta) / (order - 1). For comparison: `renyi_to_epsilon_cks` is never larger.

    Edge cases: divergence = 0 means P = Q and gives 0.

    Reference: Mironov 2017, Proposition 3.

    >>> round(renyi_to_epsilon_mironov(order=2.0, divergence=0.1, delta=1e-5), 9)
    11.612925465
    """
    require_order(order=order)
    require_divergence(divergence=divergence)
    require_fraction(delta=delta)
    return _sum_rounded_up(divergence, -math.log(delta) / (order - 1)) if divergence else 0.0


def renyi_to_epsilon_cks(*, order: float, divergence: float, delta: float) -> float:
    """epsilon = divergence + log((order - 1)/order) - (log delta + log order) / (order - 1), or 0 if that is negative.

    Edge cases: divergence = 0 means P = Q and gives 0.

    Reference: Canonne, Kamath, Steinke 2020, Proposition 12.

    >>> round(renyi_to_epsilon_cks(order=2.0, divergence=0.1, delta=1e-5), 9)
    10.226631104
    """
    require_order(order=order)
    require_divergence(divergence=divergence)
    require_fraction(delta=delta)
    excess = order - 1
    terms = (divergence, -math.log1p(1 / excess), -math.log(delta) / excess, -math.log(order) / excess)
    return max(_sum_rounded_up(*terms), 0.0) if divergence else 0.0


def renyi_to_delta_cks(*, order: float, divergence: float, epsilon: float) -> float:
    """delta = e^((order - 1)(divergence - epsilon)) / (order - 1) * (1 - 1/order)^order, or 1 if that is larger.

    Edge cases: divergence = 0 means P = Q and gives 0. A value too small for a float becomes the least positive one.

    Reference: Canonne, Kamath, Steinke 2020, Proposition 12.

    >>> round(renyi_to_delta_cks(order=8.0, divergence=1.0, epsilon=2.0), 14)
    4.476153908e-05
    """
    require_order(order=order)
    require_divergence(divergence=divergence)
    require_nonnegative(epsilon=epsilon)
    excess = order - 1
    exponent = max(excess * (divergence - epsilon), -1e300)
    log_delta = _sum_rounded_up(exponent, -math.log(excess), -order * math.log1p(1 / excess))
    return math.nextafter(math.exp(min(log_delta, 0.0)), 1.0) if divergence else 0.0


def gaussian_epsilon_mironov(*, mu: float, delta: float) -> AtOrder:
    """The least `renyi_to_epsilon_mironov` on the curve alpha mu^2/2: mu^2/2 + mu sqrt(2 log(1/delta)).

    Edge cases: mu = 0 gives 0 at the order infinity.

    Reference: Mironov 2017, Proposition 3; the order is 1 + sqrt(2 log(1/delta)) / mu.

    >>> round(gaussian_epsilon_mironov(mu=0.3, delta=1 / 11982).epsilon, 3)
    1.345
    """
    require_nonnegative(mu=mu)
    require_fraction(delta=delta)
    if mu == 0:
        return AtOrder(epsilon=0.0, order=math.inf)
    deviation = math.sqrt(-2 * math.log(delta))
    return AtOrder(epsilon=_up(mu * (mu / 2 + deviation)), order=1 + deviation / mu)


def gaussian_epsilon_cks(*, mu: float, delta: float) -> AtOrder:
    """The least `renyi_to_epsilon_cks` on the curve alpha mu^2/2.

    Its derivative in alpha, mu^2/2 + (log delta + log alpha) / (alpha - 1)^2, has one root. With l = log(1/delta) and
    a = alpha - 1 it is the root of (mu a)^2/2 + log(1 + a) = l, between min(sqrt(l)/mu, l)/2 and 2 sqrt(l)/mu.

    Edge cases: mu = 0 gives 0 at the order infinity; any other mu below 1e-100 gives what 1e-100 gives.

    Reference: Canonne, Kamath, Steinke 2020, Proposition 12.

    >>> round(gaussian_epsilon_cks(mu=0.3, delta=1 / 11982).epsilon, 3)
    1.073
    """
    require_nonnegative(mu=mu)
    require_fraction(delta=delta)
    if mu == 0:
        return AtOrder(epsilon=0.0, order=math.inf)
    mu = max(mu, 1e-100)
    loss = -math.log(delta)
    low, high = math.log(min(math.sqrt(loss) / mu, loss) / 2), math.log(2 * math.sqrt(loss) / mu)
    log_excess = brentq(lambda u: (mu * math.exp(u)) ** 2 / 2 + math.log1p(math.exp(u)) - loss, low, high)
    order = max(1 + math.exp(log_excess), math.nextafter(1.0, 2.0))
    return AtOrder(epsilon=renyi_to_epsilon_cks(order=order, divergence=order * mu * mu / 2, delta=delta), order=order)


def epsilon_over_orders(
    curve: Callable[[float], float], *, delta: float, conversion: Conversion = renyi_to_epsilon_cks
) -> AtOrder:
    """The least epsilon over all orders alpha of a Renyi curve, D_alpha(P || Q) <= curve(alpha).

    Every order gives a valid epsilon, so the search can cost tightness only. It scans log(alpha - 1) over [-14, 28] in
    steps of 1/4, then halves the step around the best order; that is the minimum if epsilon has one valley there.

    Edge cases: the curve may be inf where no bound is known; if it is so everywhere, InfeasibleError.

    Reference: that of `conversion`.

    >>> round(epsilon_over_orders(lambda alpha: 0.045 * alpha, delta=1 / 11982).epsilon, 3)
    1.073
    """
    require_fraction(delta=delta)

    def epsilon_at(log_excess: float) -> float:
        order = 1 + math.exp(log_excess)
        divergence = curve(order) or sys.float_info.min  # a curve that underflows is not zero
        return conversion(order=order, divergence=divergence, delta=delta)

    best = min((quarters / 4 for quarters in range(-56, 113)), key=epsilon_at)
    for halvings in range(3, 28):
        best = min((best, best - 2.0**-halvings, best + 2.0**-halvings), key=epsilon_at)
    if math.isinf(epsilon_at(best)):
        raise InfeasibleError("Expected curve finite at some order in [1.000001, 1e12]")
    return AtOrder(epsilon=epsilon_at(best), order=1 + math.exp(best))


def _up(value: float) -> float:
    return math.nextafter(value * (1 + _ROUNDING), math.inf)


def _sum_rounded_up(*terms: float) -> float:
    return math.fsum(terms) + _ROUNDING * sum(map(abs, terms))
