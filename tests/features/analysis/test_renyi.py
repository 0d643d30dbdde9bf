import math

import mpmath
import pytest
from hypothesis import given

from lethe.features.analysis import renyi
from lethe.proof.errors import DomainError
from tests.lethe.proof.ranges import MNIST_DELTA, deltas, divergences, orders, powers_of_ten

pytestmark = pytest.mark.usefixtures("digits")


@pytest.mark.parametrize(
    ("order", "divergence", "delta", "mironov", "cks"),
    [
        (2.0, 0.1, 1e-5, 11.612925465, 10.2266311039),
        (16.5, 0.02, MNIST_DELTA, 0.625881342106, 0.382499025066),
        (1.25, 0.3, 1e-5, 46.3517018599, 43.8496897422),
    ],
)
def test_epsilon_of_one_order_matches_known_values(order, divergence, delta, mironov, cks):
    """Both conversions to epsilon at a single Renyi order agree with independently computed values to ten digits."""
    at = {"order": order, "divergence": divergence, "delta": delta}
    assert renyi.renyi_to_epsilon_mironov(**at) == pytest.approx(mironov, rel=1e-10)
    assert renyi.renyi_to_epsilon_cks(**at) == pytest.approx(cks, rel=1e-10)


@pytest.mark.parametrize(
    ("order", "divergence", "epsilon", "delta"),
    [(8.0, 1.0, 2.0, 4.47615390753e-05), (4.0, 0.2, 0.5, 0.0428803938008), (2.0, 0.05, 0.3, 0.194700195768)],
)
def test_delta_of_one_order_matches_known_values(order, divergence, epsilon, delta):
    """The delta computed at a single Renyi order agrees with independently computed values to ten digits."""
    found = renyi.renyi_to_delta_cks(order=order, divergence=divergence, epsilon=epsilon)
    assert found == pytest.approx(delta, rel=1e-10)


@pytest.mark.parametrize(
    ("tau", "delta", "mironov", "cks"),
    [
        (0.001, 1e-5, (0.215596602629, 108.298301314), (0.157335393161, 85.0793723337)),
        (0.125, 1e-6, (2.75326088488, 11.5130435395), (2.41909317687, 10.5737700604)),
        (2.0, 1e-9, (14.8757961577, 4.21894903943), (14.1501475539, 4.10729000829)),
    ],
)
def test_the_best_order_of_a_gaussian_curve_is_found(tau, delta, mironov, cks):
    """Both conversions find the smallest epsilon on the curve tau * alpha and the order that attains it."""
    mu = math.sqrt(2 * tau)
    for found, expected in [
        (renyi.gaussian_epsilon_mironov(mu=mu, delta=delta), mironov),
        (renyi.gaussian_epsilon_cks(mu=mu, delta=delta), cks),
    ]:
        assert (found.epsilon, found.order) == pytest.approx(expected, rel=1e-9)


@given(order=orders, divergence=divergences, delta=deltas)
def test_one_order_is_rounded_up(order, divergence, delta):
    """A conversion at a single order is never below its formula and exceeds it by at most the rounding error."""
    a, rho, d = mpmath.mpf(order), mpmath.mpf(divergence), mpmath.mpf(delta)
    mironov = rho - mpmath.log(d) / (a - 1)
    cks = max(rho + mpmath.log((a - 1) / a) - mpmath.log(d * a) / (a - 1), mpmath.mpf(0))
    at = {"order": order, "divergence": divergence, "delta": delta}
    scale = 1e-14 * (mironov + mpmath.log(a) / (a - 1) + mpmath.log(a / (a - 1)))
    assert 0 <= renyi.renyi_to_epsilon_mironov(**at) - mironov <= scale
    assert 0 <= renyi.renyi_to_epsilon_cks(**at) - cks <= scale
    assert renyi.renyi_to_epsilon_cks(**at) <= renyi.renyi_to_epsilon_mironov(**at)


@given(order=orders, divergence=divergences, delta=powers_of_ten(-100, -1))
def test_delta_and_epsilon_of_one_order_are_inverse(order, divergence, delta):
    """Converting delta to epsilon and back at the same order returns the original delta, or a smaller delta if epsilon
    is 0."""
    epsilon = renyi.renyi_to_epsilon_cks(order=order, divergence=divergence, delta=delta)
    back = renyi.renyi_to_delta_cks(order=order, divergence=divergence, epsilon=epsilon)
    assert back <= delta * (1 + 1e-5)
    assert epsilon == 0 or back >= delta * (1 - 1e-5)


@pytest.mark.parametrize("order", [1 + 2**-52, 2.0, 1e12])
def test_zero_divergence_is_free_and_infinite_divergence_is_unbounded(order):
    """A divergence of zero costs nothing at any order. An infinite divergence, which stands for an unknown one, gives
    no guarantee."""
    for convert in (renyi.renyi_to_epsilon_cks, renyi.renyi_to_epsilon_mironov):
        assert convert(order=order, divergence=0.0, delta=1e-5) == 0.0
        assert convert(order=order, divergence=math.inf, delta=1e-5) == math.inf
    assert renyi.renyi_to_delta_cks(order=order, divergence=0.0, epsilon=0.0) == 0.0
    assert renyi.renyi_to_delta_cks(order=order, divergence=math.inf, epsilon=1.0) == 1.0


@pytest.mark.parametrize(
    ("check", "accepted", "refused"),
    [
        (renyi.require_order, [1 + 2**-52, 1e300], [1.0, 0.0, -2.0, math.inf]),
        (renyi.require_divergence, [0.0, math.inf], [-5e-324, -math.inf]),
    ],
)
def test_orders_and_divergences_are_validated(check, accepted, refused):
    """The checks accept every order and divergence that the theorem allows. For any other number, they raise a
    DomainError that names the argument and its value."""
    for value in accepted:
        check(some_name=value)
    for value in [*refused, math.nan]:
        with pytest.raises(DomainError, match=f"some_name={value}"):
            check(some_name=value)
