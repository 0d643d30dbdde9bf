"""Conversion between mu-GDP and (epsilon, delta).

Two laws P, Q are (epsilon, delta)-indistinguishable when P(O) <= e^epsilon Q(O) + delta for every event O, and with P
and Q swapped. A conversion acts on one direction; a two-sided hypothesis yields a two-sided result.

**The Gaussian curve.** mu-GDP (no test tells P from Q better than N(0, 1) from N(mu, 1)) is equivalent to holding, for
every epsilon >= 0,

    delta(epsilon) = Phi(-x) - e^epsilon Phi(-x - mu),            x = epsilon/mu - mu/2.

The two terms agree to many digits when mu is small. Let phi be the normal density and R(z) = Phi(-z)/phi(z) Mills'
ratio. Since e^epsilon phi(x + mu) = phi(x), the exponential cancels:

    delta = phi(x) (R(x) - R(x + mu)),
    R(x) - R(x + mu) = integral of m over [x, x + mu],            m(z) = 1 - z R(z) = -R'(z) > 0.

The integral has no cancellation: over a short interval the three-point Gauss rule suffices, and over a long interval
the difference itself is accurate.

**The inverses** solve for log delta by Newton's method, which converges because log delta is concave:

  - in epsilon (hence in x): d log delta / dx = -mu / (R(x)/R(x + mu) - 1), and R(x)/R(x + mu) falls in x, since
    R(z) = integral of exp(-zs - s^2/2) over s > 0 is log-convex (Hoelder);
  - in mu: d log delta / dmu = 1 / (R(x) - R(x + mu)), and the denominator, the integral over s > 0 of
    exp(-s epsilon/mu - s^2/2) 2 sinh(s mu/2), rises in mu.

A tangent of a concave function lies above it. From the second iterate on, epsilon therefore decreases to its root and
mu increases to its own, and each iterate is on the safe side. Both start from delta <= Phi(-x), which is nearly exact
for large mu. The start of mu is its value at epsilon = 0 if that is larger.

**Rounding is outward.** The evaluation is accurate to 1e-12, relative to delta and to 1 - delta. `_MARGIN` is added to
it, so that a returned epsilon or delta is never below the exact value and a returned mu never above it.

References: J. Dong, A. Roth, W. Su, "Gaussian differential privacy", JRSS B 84 (2022), arXiv 1905.02383, Corollary
2.13. B. Balle, Y.-X. Wang, "Improving the Gaussian mechanism for differential privacy", ICML 2018, Theorem 8.
"""

import math
from collections.abc import Callable

# scipy loads scipy.special only when it is first used.
import scipy

from lethe.proof import errors, rounding

_MARGIN = 1e-9
"""Safety margin relative to delta and to 1 - delta: in full for an inverse, half for a direct evaluation."""
_LOG_SQRT_2PI = 0.5 * math.log(2 * math.pi)
_SQRT_HALF = math.sqrt(0.5)
_SQRT_HALF_PI = math.sqrt(0.5 * math.pi)


def gdp_log_delta(*, epsilon: float, mu: float) -> float:
    """Return the natural logarithm of `gdp_delta`, even if `gdp_delta` underflows a float.

    Symbols and reference as in `gdp_delta`.

    Formal Guarantee: never below log delta(epsilon); for mu <= 1e3 and epsilon <= 1e6, above it by at most
    1e-9 (1 - delta) + 1e-14 |log delta| + 1e-300.

    Edge cases: mu = 0 gives -inf. If epsilon/mu exceeds 1e100, the value at 1e100 is returned.

    >>> round(gdp_log_delta(epsilon=100.0, mu=1.0), 6)
    -4960.254554
    """
    errors.require_nonnegative(epsilon=epsilon, mu=mu)
    if mu == 0:
        return -math.inf
    ratio = min(epsilon / mu, 1e100)
    # Since delta falls as x grows, a smaller x is on the safe side.
    x = ratio - mu / 2 - rounding.ROUNDING * (ratio + mu / 2)
    log_delta, _ = _log_delta(x, mu)
    return min(log_delta * (1 - rounding.ROUNDING) - _MARGIN / 2 * math.expm1(log_delta), 0.0)


def gdp_delta(*, epsilon: float, mu: float) -> float:
    """Return the minimum delta for which mu-GDP implies (epsilon, delta)-indistinguishability.

    Symbols: epsilon >= 0, in nats; mu >= 0, the distance between two unit Gaussians. Result in [0, 1].

    Assumptions: mu-GDP holds. If the two laws are N(0, 1) and N(mu, 1) the result is attained.

    Formal Guarantee: never below the exact value; above it by at most 1e-9 delta (1 - delta) for mu <= 1e3 and
    delta >= 1e-300; the excess can be larger outside that range.

    Edge cases: mu = 0 gives 0. epsilon = 0 gives the total variation distance, 2 Phi(mu/2) - 1. A value too small for a
    float is returned as the smallest positive float.

    Reference: Dong, Roth, Su 2022, Corollary 2.13; Balle, Wang 2018, Theorem 8.

    >>> round(gdp_delta(epsilon=2.0, mu=1.0), 9)
    0.020923636
    """
    log_delta = gdp_log_delta(epsilon=epsilon, mu=mu)
    return 0.0 if mu == 0 else math.nextafter(math.exp(log_delta), 1.0)


def gdp_epsilon(*, mu: float, delta: float) -> float:
    """Return the minimum epsilon for which mu-GDP implies (epsilon, delta)-indistinguishability.

    Symbols: mu >= 0; 0 < delta < 1. Result >= 0, in nats.

    Assumptions: mu-GDP holds.

    Formal Guarantee: never below the exact value; it is at most the exact epsilon of some delta' < delta with
    delta - delta' <= 1.2e-9 delta (1 - delta), up to the last digits of the float.

    Edge cases: 0 if mu = 0 or delta >= gdp_delta(epsilon=0, mu). Infinite for mu > 1e154, where mu^2/2 exceeds the
    range of floats.

    Reference: as for `gdp_delta`, of which this is the inverse in epsilon.

    >>> round(gdp_epsilon(mu=1.0, delta=1e-5), 6)
    4.377178
    """
    errors.require_nonnegative(mu=mu)
    errors.require_fraction(delta=delta)
    if delta >= gdp_delta(epsilon=0.0, mu=mu):
        return 0.0
    if mu > 1e154:
        return math.inf
    target, tolerance = _target(delta)

    def gap(x: float) -> tuple[float, float]:
        log_delta, elasticity = _log_delta(x, mu)
        return log_delta - target, -elasticity * _mills(x + mu)

    x = _newton(-float(scipy.special.ndtri(delta)), gap, tolerance)
    return rounding.up(mu * (x + mu / 2))


def gdp_epsilon_below(*, mu: float, delta: float) -> float:
    """Return `gdp_epsilon` rounded down: a lower bound on the epsilon that a mu-GDP guarantee must state.

    Symbols, assumptions and reference as in `gdp_epsilon`.

    Formal Guarantee: for delta <= 1 - 1e-6 never above the exact value, and therefore never above `gdp_epsilon` of the
    same or a larger mu.

    Edge cases: as in `gdp_epsilon`.

    >>> round(gdp_epsilon_below(mu=1.0, delta=1e-5), 6)
    4.377178
    """
    errors.require_nonnegative(mu=mu)
    errors.require_fraction(delta=delta)
    # gdp_epsilon solves for a delta less than 1.2 margins below its argument, so two margins keep the result below.
    increased_delta = delta + 2 * _MARGIN * delta * (1 - delta)
    return gdp_epsilon(mu=mu, delta=increased_delta) * (1 - 2.0**-40)


def gdp_balanced_accuracy(*, mu: float) -> float:
    """Return the balanced accuracy of the best attacker against mu-GDP.

    This is the probability of guessing correctly which of two equally likely laws produced the observation.

    Symbols: mu >= 0. Result in [1/2, 1].

    Assumptions: mu-GDP holds. If the two laws are N(0, 1) and N(mu, 1) the result is attained.

    Formal Guarantee: never below Phi(mu/2), with a relative excess of at most 1e-11. The errors a and b of a test
    satisfy a + b >= 2 Phi(-mu/2), because Phi(Phi^-1(1 - a) - mu) + a is minimal where both errors are equal.

    Edge cases: mu = 0 gives 1/2.

    Reference: Dong, Roth, Su 2022, Section 2.1.

    >>> round(gdp_balanced_accuracy(mu=0.27), 6)
    0.553694
    """
    errors.require_nonnegative(mu=mu)
    return min(1.0, float(scipy.special.ndtr(mu / 2)) * (1 + 1e-12)) if mu else 0.5


def gdp_mu(*, epsilon: float, delta: float) -> float:
    """Return the largest mu for which mu-GDP implies (epsilon, delta)-indistinguishability.

    Symbols: epsilon >= 0, in nats; 0 < delta < 1. Result > 0.

    Assumptions: none. A mechanism that is mu-GDP for the returned mu meets (epsilon, delta).

    Formal Guarantee: never above the exact value; it is at least the exact mu of some delta' < delta with
    delta - delta' <= 1.2e-9 delta (1 - delta), up to the last digits of the float.

    Edge cases: epsilon = 0 gives 2 Phi^-1((1 + delta)/2). Above epsilon = 1e12 the root of delta = Phi(-x) is returned,
    which differs by at most 1/epsilon.

    Reference: as for `gdp_delta`, of which this is the inverse in mu.

    >>> round(gdp_mu(epsilon=1.0, delta=1 / 11982), 9)
    0.309534497
    """
    errors.require_nonnegative(epsilon=epsilon)
    errors.require_fraction(delta=delta)
    target, tolerance = _target(delta)

    def gap(mu: float) -> tuple[float, float]:
        log_delta, elasticity = _log_delta(epsilon / mu - mu / 2, mu)
        return log_delta - target, elasticity / mu

    x = -float(scipy.special.ndtri(delta))
    mu = _mu_at(x, epsilon)
    if epsilon <= 1e12:
        mu = _newton(max(mu, math.sqrt(8) * float(scipy.special.erfinv(delta))), gap, tolerance)
    return math.nextafter(mu * (1 - rounding.ROUNDING), 0.0)


def _log_delta(x: float, mu: float) -> tuple[float, float]:
    """Return log delta at x = epsilon/mu - mu/2 and its elasticity d log delta / d log mu = mu phi(x) / delta."""
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
    """Return Mills' ratio R(z) = Phi(-z) / phi(z)."""
    return _SQRT_HALF_PI * float(scipy.special.erfcx(_SQRT_HALF * z))


def _mills_slope(z: float) -> float:
    """Return m(z) = 1 - z R(z) = -R'(z).

    For z >= 64, where 1 and z R(z) agree to more than three digits, an asymptotic series avoids the cancellation.
    """
    if z < 64:
        return 1 - z * _mills(z)
    v = 1 / (z * z)
    return v * (1 - 3 * v * (1 - 5 * v * (1 - 7 * v)))


def _mu_at(x: float, epsilon: float) -> float:
    """Return the mu > 0 that solves epsilon/mu - mu/2 = x."""
    width = math.sqrt(2) * math.sqrt(epsilon)
    root = math.hypot(x, width)
    return root - x if x <= 0 else width * (width / (x + root))


def _target(delta: float) -> tuple[float, float]:
    """Return the log delta to solve for, which is log(delta) less the margin, and the solver's tolerance."""
    margin = _MARGIN * (1 - delta)
    return math.log(delta) - margin, 0.1 * margin


def _newton(start: float, gap: Callable[[float], tuple[float, float]], tolerance: float) -> float:
    """Return the root of a concave function by Newton's method.

    `gap` returns value and slope. The iteration ends when |value| <= `tolerance` or float precision is reached.

    Raises:
        ArithmeticError: after 100 iterations, which no known input needs.
    """
    root = start
    for _ in range(100):
        value, slope = gap(root)
        step = value / slope
        if abs(value) <= tolerance or abs(step) <= rounding.ROUNDING / 2 * abs(root):
            return root
        root -= step
    raise ArithmeticError(f"Newton's method did not converge from {start}")
