"""Conversions of Renyi divergence to epsilon, compared with the exact conversion for Gaussians."""

import math

import pytest
from hypothesis import given

from lethe.features.analysis import renyi
from lethe.proof import conversion
from lethe.proof.errors import DomainError
from tests.lethe.proof.ranges import MNIST_DELTA, deltas, mus
from tests.tables import each

NAN_INF_NEGATIVE = [math.nan, math.inf, -math.inf, -0.1]


def test_identical_distributions_cost_nothing():
    """Epsilon is 0 for mu = 0."""
    assert renyi.gaussian_epsilon_cks(mu=0.0, delta=1e-5) == renyi.AtOrder(epsilon=0.0, order=math.inf)
    assert renyi.gaussian_epsilon_mironov(mu=0.0, delta=1e-5) == renyi.AtOrder(epsilon=0.0, order=math.inf)


@pytest.mark.parametrize(("mu", "mironov", "cks", "gdp"), [(0.3, 1.345, 1.073, 0.965), (0.05, 0.218, 0.147, 0.129)])
def test_three_conversions_match_published_numbers(mu, mironov, cks, gdp):
    """The three conversions reproduce the published numbers at delta = 1/11982."""
    assert round(renyi.gaussian_epsilon_mironov(mu=mu, delta=MNIST_DELTA).epsilon, 3) == mironov
    assert round(renyi.gaussian_epsilon_cks(mu=mu, delta=MNIST_DELTA).epsilon, 3) == cks
    assert round(conversion.gdp_epsilon(mu=mu, delta=MNIST_DELTA), 3) == gdp


def test_extreme_floats_are_converted():
    """Epsilon is below 1e-90 for the smallest positive mu and delta, and mu^2/2 for a mu of 1e150."""
    assert renyi.gaussian_epsilon_cks(mu=5e-324, delta=5e-324).epsilon < 1e-90
    assert renyi.gaussian_epsilon_cks(mu=1e150, delta=0.1).epsilon == pytest.approx(5e299)


@given(mu=mus, delta=deltas)
def test_exact_beats_renyi_and_cks_beats_mironov(mu, delta):
    """The exact epsilon is at most the epsilon of the CKS conversion, which is at most the epsilon of the Mironov
    conversion."""
    cks = renyi.gaussian_epsilon_cks(mu=mu, delta=delta).epsilon
    assert conversion.gdp_epsilon(mu=mu, delta=delta) <= cks
    assert cks <= renyi.gaussian_epsilon_mironov(mu=mu, delta=delta).epsilon


VALID = {"mu": 0.3, "epsilon": 1.0, "delta": 1e-5, "order": 2.0, "divergence": 0.1}
OUTSIDE = {
    "mu": NAN_INF_NEGATIVE,
    "epsilon": NAN_INF_NEGATIVE,
    "delta": [*NAN_INF_NEGATIVE, 0.0, 1.0, 1.5],
    "order": [*NAN_INF_NEGATIVE, 0.0, 0.5, 1.0],
    "divergence": [math.nan, -math.inf, -0.1],
}
PARAMETERS = [
    (renyi.renyi_to_epsilon_mironov, ("order", "divergence", "delta")),
    (renyi.renyi_to_epsilon_cks, ("order", "divergence", "delta")),
    (renyi.renyi_to_delta_cks, ("order", "divergence", "epsilon")),
    (renyi.gaussian_epsilon_mironov, ("mu", "delta")),
    (renyi.gaussian_epsilon_cks, ("mu", "delta")),
]


@each(
    ("convert", "parameters", "wrong", "value"),
    [(convert, names, wrong, value) for convert, names in PARAMETERS for wrong in names for value in OUTSIDE[wrong]],
)
def test_numbers_out_of_range_are_refused(convert, parameters, wrong, value):
    """NaN, infinities and numbers outside the theorem's range raise a DomainError that names the argument and its
    value."""
    arguments = {name: VALID[name] for name in parameters}
    convert(**arguments)
    with pytest.raises(DomainError, match=f"{wrong}={value}"):
        convert(**arguments | {wrong: value})
