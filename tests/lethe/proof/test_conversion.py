import math
from statistics import NormalDist

import mpmath
import pytest
from hypothesis import assume, example, given, strategies as st

from lethe.proof import conversion
from lethe.proof.errors import DomainError
from tests.lethe.proof.ranges import MNIST_DELTA, deltas, epsilons, mus, powers_of_ten
from tests.tables import each

pytestmark = pytest.mark.usefixtures("digits")
NAN_INF_NEGATIVE = [math.nan, math.inf, -math.inf, -0.1]


def exact(epsilon: float, mu: float) -> tuple[mpmath.mpf, mpmath.mpf]:
    """Return delta and 1 - delta from the definition, with enough digits for the cancellation at small mu."""
    with mpmath.workdps(mpmath.mp.dps - math.floor(min(math.log10(mu), 0))):
        e, m = mpmath.mpf(epsilon), mpmath.mpf(mu)
        excess = mpmath.exp(e) * mpmath.ncdf(-e / m - m / 2)
        return mpmath.ncdf(-e / m + m / 2) - excess, mpmath.ncdf(e / m - m / 2) + excess


def given_away(epsilon: float, mu: float, delta: float) -> float:
    """Return how far the exact delta lies below `delta`, relative to delta and to 1 - delta. The result is negative if
    the exact delta is larger."""
    given = mpmath.mpf(delta)
    return float((given - exact(epsilon, mu)[0]) / (given * (1 - given)))


# --- the Gaussian curve: closed forms and published numbers ----------------------------------------------------------


@pytest.mark.parametrize("mu", [1e-6, 1e-3, 0.024, 0.026, 1.0, 8.0])
def test_delta_at_zero_epsilon_is_total_variation(mu):
    """At epsilon = 0, delta is the total variation distance of two unit Gaussians, erf(mu / sqrt(8))."""
    assert conversion.gdp_delta(epsilon=0.0, mu=mu) == pytest.approx(math.erf(mu / math.sqrt(8)), rel=1e-9)


@pytest.mark.parametrize("delta", [1e-300, 1e-5, 0.5, 0.99])
def test_mu_at_zero_epsilon_is_a_quantile(delta):
    """At epsilon = 0, the permitted mu is a quantile of the normal distribution."""
    expected = 2 * NormalDist().inv_cdf((1 + delta) / 2) if delta > 1e-9 else delta * math.sqrt(2 * math.pi)
    assert conversion.gdp_mu(epsilon=0.0, delta=delta) == pytest.approx(expected, rel=2e-9)


@pytest.mark.parametrize("mu", [0.01, 0.3, 3.0, 100.0])
def test_delta_where_the_curve_crosses_half(mu):
    """At epsilon = mu^2/2, where the first term of delta is exactly one half, delta equals the closed form."""
    expected = 0.5 - mpmath.exp(mpmath.mpf(mu) ** 2 / 2) * mpmath.ncdf(-mpmath.mpf(mu))
    assert conversion.gdp_delta(epsilon=mu * mu / 2, mu=mu) == pytest.approx(float(expected), rel=1e-9)


def test_identical_laws_cost_nothing():
    """For mu = 0, epsilon and delta are 0."""
    assert conversion.gdp_delta(epsilon=0.0, mu=0.0) == conversion.gdp_delta(epsilon=1.0, mu=0.0) == 0.0
    assert conversion.gdp_log_delta(epsilon=1.0, mu=0.0) == -math.inf
    assert conversion.gdp_epsilon(mu=0.0, delta=1e-300) == 0.0


@pytest.mark.parametrize(
    ("epsilon", "mu", "delta"),
    [(1.0, 0.5, 0.00682959498311), (2.0, 1.0, 0.0209236358211), (5.0, 1.5, 0.00159818951205)],
)
def test_delta_matches_example_vectors(epsilon, mu, delta):
    """Delta agrees with independently computed values to nine digits."""
    assert conversion.gdp_delta(epsilon=epsilon, mu=mu) == pytest.approx(delta, rel=1e-9)


@pytest.mark.parametrize(
    ("mu", "delta", "epsilon"),
    [
        (0.050421500147688, MNIST_DELTA, 0.130174863322),
        (1.0, 1e-5, 4.37717809568),
        (3.0, 1e-6, 18.1634457591),
    ],
)
def test_epsilon_matches_example_vectors(mu, delta, epsilon):
    """Epsilon agrees with independently computed values to nine digits."""
    assert conversion.gdp_epsilon(mu=mu, delta=delta) == pytest.approx(epsilon, rel=1e-9)


@pytest.mark.parametrize(
    ("epsilon", "delta", "mu"),
    [(1.0, MNIST_DELTA, 0.309534497408), (0.01, MNIST_DELTA, 0.00560221247796), (2.0, 1e-9, 0.351549815898)],
)
def test_mu_matches_example_vectors(epsilon, delta, mu):
    """Mu agrees with independently computed values to nine digits."""
    assert conversion.gdp_mu(epsilon=epsilon, delta=delta) == pytest.approx(mu, rel=1e-9)


# --- the Gaussian curve: the oracle ----------------------------------------------------------------------------------


@given(mu=mus, epsilon=epsilons)
@example(mu=1e-6, epsilon=1e6)
@example(mu=1e3, epsilon=0.0)
@example(mu=1e3, epsilon=1e6)
@example(mu=0.025, epsilon=0.025 * 37)
@example(mu=0.1, epsilon=0.0)
def test_log_delta_is_a_tight_upper_bound(mu, epsilon):
    """Log delta exceeds its exact value by at most 1e-9 (1 - delta) + 1e-14 |log delta|, apart from underflow."""
    delta, rest = exact(epsilon, mu)
    truth = mpmath.log(delta) if delta < 0.5 else mpmath.log1p(-rest)
    excess = mpmath.mpf(conversion.gdp_log_delta(epsilon=epsilon, mu=mu)) - truth
    assert -1e-300 <= excess <= 1e-9 * rest + 1e-14 * abs(truth) + 1e-300
    assert conversion.gdp_delta(epsilon=epsilon, mu=mu) >= delta


@given(mu=mus, delta=deltas)
@example(mu=1e-6, delta=1e-300)
@example(mu=1e-6, delta=3.98e-7)
@example(mu=1e3, delta=1e-300)
@example(mu=1e3, delta=1 - 2**-53)
@example(mu=1e-100, delta=1e-300)
def test_epsilon_is_a_tight_upper_bound(mu, delta):
    """The returned epsilon is exact for some delta that is at most 2e-9 smaller than the requested one, relative to
    delta and to 1 - delta."""
    epsilon = conversion.gdp_epsilon(mu=mu, delta=delta)
    away = given_away(epsilon, mu, delta)
    assert away >= 0
    assert away <= 2e-9 or epsilon == 0


@given(epsilon=epsilons, delta=deltas)
@example(epsilon=1e6, delta=1e-300)
@example(epsilon=0.0, delta=0.5)
@example(epsilon=1e-12, delta=1e-300)
@example(epsilon=1e6, delta=1 - 2**-53)
def test_mu_is_a_tight_lower_bound(epsilon, delta):
    """The returned mu is exact for some delta that is at most 2e-9 smaller than the requested one, relative to delta
    and to 1 - delta."""
    assert 0 <= given_away(epsilon, conversion.gdp_mu(epsilon=epsilon, delta=delta), delta) <= 2e-9


@each("delta", [1e-300, 1e-5, 0.9])
@each("size", [1e4, 1e8, 1e13, 1e30, 1e100])
def test_rounding_is_outward_beyond_the_range(size, delta):
    """Even outside the practical range of distances and epsilons, results are rounded to the safe side."""
    with mpmath.workdps(250):
        assert exact(conversion.gdp_epsilon(mu=size, delta=delta), size)[0] <= delta
        assert exact(size, conversion.gdp_mu(epsilon=size, delta=delta))[0] <= delta
        assert conversion.gdp_delta(epsilon=size, mu=math.sqrt(size)) >= exact(size, math.sqrt(size))[0]


def test_extreme_floats_are_converted():
    """At the extremes of the float range, results are infinite or the smallest positive float, but never zero."""
    assert conversion.gdp_delta(epsilon=1e6, mu=1e-6) == conversion.gdp_delta(epsilon=1e300, mu=5e-324) == 5e-324
    assert conversion.gdp_delta(epsilon=1.0, mu=1.7e308) == 1.0
    assert conversion.gdp_epsilon(mu=1e155, delta=0.5) == conversion.gdp_epsilon(mu=1.7e308, delta=0.5) == math.inf
    assert 0 < conversion.gdp_mu(epsilon=0.0, delta=5e-324) <= 5e-324 * math.sqrt(2 * math.pi)
    assert conversion.gdp_mu(epsilon=1.7e308, delta=1e-5) == pytest.approx(math.sqrt(2) * math.sqrt(1.7e308), rel=1e-9)


# --- the Gaussian curve: laws ----------------------------------------------------------------------------------------


@given(mu=mus, delta=deltas)
def test_epsilon_certifies_delta(mu, delta):
    """In floating point, gdp_log_delta confirms the given delta at the epsilon that gdp_epsilon returns."""
    epsilon = conversion.gdp_epsilon(mu=mu, delta=delta)
    assert delta >= conversion.gdp_delta(epsilon=0.0, mu=mu) or epsilon > 0
    assert conversion.gdp_log_delta(epsilon=epsilon, mu=mu) <= math.log(delta)


@given(mu=powers_of_ten(-6, 2), delta=powers_of_ten(-300, -0.31) | powers_of_ten(-6, -0.31).map(lambda rest: 1 - rest))
def test_epsilon_is_bounded_from_below(mu, delta):
    """At the epsilon that gdp_epsilon_below returns, the exact delta is at least the requested one. gdp_epsilon returns
    an epsilon that is at least as large."""
    below = conversion.gdp_epsilon_below(mu=mu, delta=delta)
    above = conversion.gdp_epsilon(mu=mu, delta=delta)
    assert below == 0 or exact(below, mu)[0] >= delta
    assert below <= above
    assert below == pytest.approx(above, rel=1e-6, abs=1e-7 * mu)


@given(epsilon=epsilons, delta=deltas)
def test_mu_certifies_delta(epsilon, delta):
    """gdp_log_delta and gdp_epsilon confirm the mu that gdp_mu returns."""
    mu = conversion.gdp_mu(epsilon=epsilon, delta=delta)
    assert conversion.gdp_log_delta(epsilon=epsilon, mu=mu) <= math.log(delta)
    assert conversion.gdp_epsilon(mu=mu, delta=delta) <= epsilon + 2e-9 * (mu + epsilon)


@given(mu=mus, epsilon=epsilons)
def test_round_trip_from_epsilon(mu, epsilon):
    """Converting epsilon to delta and back returns the same epsilon."""
    delta = conversion.gdp_delta(epsilon=epsilon, mu=mu)
    assume(1e-300 < delta < 0.99)
    back = conversion.gdp_epsilon(mu=mu, delta=delta)
    assert back == pytest.approx(epsilon, rel=1e-8, abs=1e-8 * mu)
    if epsilon == 0:
        assert back == 0


@given(mu=mus, delta=deltas, factor=st.floats(1.000001, 10))
def test_epsilon_is_monotone(mu, delta, factor):
    """Epsilon increases with mu and decreases with delta."""
    epsilon = conversion.gdp_epsilon(mu=mu, delta=delta)
    assert conversion.gdp_epsilon(mu=mu * factor, delta=delta) >= epsilon
    assert conversion.gdp_epsilon(mu=mu, delta=delta / factor) >= epsilon


@given(epsilon=epsilons, delta=deltas, factor=st.floats(1.000001, 10))
def test_mu_is_monotone(epsilon, delta, factor):
    """The permitted mu increases with epsilon and with delta."""
    mu = conversion.gdp_mu(epsilon=epsilon, delta=delta)
    assert conversion.gdp_mu(epsilon=epsilon * factor, delta=delta) >= mu
    assert conversion.gdp_mu(epsilon=epsilon, delta=delta / factor) <= mu


@given(mu=mus, epsilon=epsilons, factor=st.floats(1.000001, 10))
def test_delta_is_monotone(mu, epsilon, factor):
    """Log delta increases with mu and decreases with epsilon, up to rounding, and is never positive."""
    log_delta = conversion.gdp_log_delta(epsilon=epsilon, mu=mu)
    rounding = 1e-12 * (1 - log_delta)
    assert log_delta <= 0
    assert conversion.gdp_log_delta(epsilon=epsilon, mu=mu * factor) >= log_delta - rounding
    assert conversion.gdp_log_delta(epsilon=epsilon * factor, mu=mu) <= log_delta + rounding


# --- refusals --------------------------------------------------------------------------------------------------------

VALID = {"epsilon": 1.0, "mu": 0.3, "delta": 1e-5}
OUTSIDE = {
    "epsilon": NAN_INF_NEGATIVE,
    "mu": NAN_INF_NEGATIVE,
    "delta": [*NAN_INF_NEGATIVE, 0.0, 1.0, 1.5],
}
PARAMETERS = [
    (conversion.gdp_delta, ("epsilon", "mu")),
    (conversion.gdp_log_delta, ("epsilon", "mu")),
    (conversion.gdp_epsilon, ("mu", "delta")),
    (conversion.gdp_mu, ("epsilon", "delta")),
]


@each(
    ("convert", "parameters", "wrong", "value"),
    [(convert, names, wrong, value) for convert, names in PARAMETERS for wrong in names for value in OUTSIDE[wrong]],
)
def test_numbers_out_of_range_are_refused(convert, parameters, wrong, value):
    """NaN, infinity and numbers outside the theorem's range raise a DomainError that names the argument and its
    value."""
    arguments = {name: VALID[name] for name in parameters}
    convert(**arguments)
    with pytest.raises(DomainError, match=f"{wrong}={value}"):
        convert(**arguments | {wrong: value})
