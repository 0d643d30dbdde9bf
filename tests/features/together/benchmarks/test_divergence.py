"""The Renyi divergence that attacks are compared with."""

import math

import pytest
from hypothesis import given, strategies as st

from benchmarks.attacks.measured import renyi_divergence
from lethe.proof.errors import DomainError


@given(mu=st.floats(0, 100), order=st.floats(1.001, 1e6))
def test_renyi_divergence_matches_two_gaussians(mu, order):
    """The Renyi divergence between N(0, 1) and N(mu, 1) is alpha mu^2 / 2."""
    assert renyi_divergence(mu=mu, order=order) == pytest.approx(order * mu**2 / 2, rel=1e-14, abs=1e-300)


@pytest.mark.parametrize(("mu", "order"), [(math.nan, 2.0), (-1.0, 2.0), (math.inf, 2.0), (1.0, 1.0), (1.0, math.nan)])
def test_invalid_divergences_are_refused(mu, order):
    """A mu of NaN is refused, and so is an order of at most 1."""
    with pytest.raises(DomainError):
        renyi_divergence(mu=mu, order=order)
