"""Privacy loss distributions: the hull of a bound, its convolution, and outward rounding."""

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from lethe.features.objective.losses import Tail, of_gaussian
from lethe.proof.conversion import gdp_delta, gdp_epsilon

MUS = (0.02, 0.25, 1.5)


def exact(mu: float, kappa: float, epsilon: float, *, back: bool) -> float:
    """Return the closed-form delta of the pair that dominates a single score. The loss is L below 0, 0 up to t, and L +
    kappa above t, where t is chosen so that the masses sum to 1."""
    with mpmath.workdps(40):
        m, k, e = mpmath.mpf(mu), mpmath.mpf(kappa), mpmath.mpf(epsilon)

        def upper(z, shift):
            return mpmath.ncdf(-(z / m + shift))

        t = mpmath.findroot(
            lambda t: upper(t, -m / 2) - mpmath.exp(-k) * upper(t, m / 2) - mpmath.erf(m / mpmath.sqrt(8)),
            (mpmath.sqrt(k * m), 2 * mpmath.sqrt(k * m) + mpmath.mpf("1e-9")),
            solver="anderson",
        )
        if back:
            return float(upper(e, -m / 2) - mpmath.exp(e) * upper(e, m / 2))
        cut = max(t, e - k)
        return float(upper(cut, -m / 2) - mpmath.exp(e - k) * upper(cut, m / 2))


@pytest.mark.parametrize("mu", MUS)
@pytest.mark.parametrize("kappa", [1e-3, 0.03, 0.3])
def test_hull_matches_the_closed_form(mu, kappa):
    """The delta computed on the grid is never below the dominating pair's closed form and exceeds it only slightly."""
    bound = Tail(((0.0, mu),), kappa, 0.0)
    for back, law in ((False, bound.loss()), (True, bound.reversed().loss())):
        for deviations in (0.2, 1.0, 3.0, 5.0):
            epsilon = kappa + mu * (deviations + mu / 2)
            true = exact(mu, kappa, epsilon, back=back)
            assert true <= law.delta(epsilon) <= true * (1 + 2e-3) + 1e-11


@pytest.mark.parametrize("mu", MUS)
@pytest.mark.parametrize("versions", [1, 2, 3, 10, 100])
def test_convolution_of_gaussians_is_a_gaussian(mu, versions):
    """Without a shift, versions compose like a Gaussian whose mu is sqrt(versions) times larger. The computed delta is
    never below that Gaussian's and at most 0.5 % above it."""
    law, total = of_gaussian(mu).times(versions), math.sqrt(versions) * mu
    for delta in (0.1, 1e-3, 1e-6, 1e-9):
        epsilon = gdp_epsilon(mu=total, delta=delta)
        assert gdp_delta(epsilon=epsilon, mu=total) * (1 - 1e-9) <= law.delta(epsilon)
        assert law.delta(epsilon) <= delta * 1.005 + 1e-10


def test_different_grids_compose():
    """Composing Gaussian distributions on different grids gives, up to 1 %, the same delta as composing the Gaussians
    exactly."""
    law = of_gaussian(0.3).times(4).plus(of_gaussian(0.8))
    total = math.hypot(2 * 0.3, 0.8)
    epsilon = gdp_epsilon(mu=total, delta=1e-6)
    assert 1e-6 * (1 - 1e-8) <= law.delta(epsilon) <= 1.01e-6


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(mu=st.floats(0.01, 3), kappa=st.floats(0, 0.5), factor=st.floats(1.0, 3.7))
def test_coarser_grids_only_raise_delta(mu, kappa, factor):
    """Moving a distribution to a coarser grid never lowers delta, whatever the ratio of the grid widths."""
    law = Tail(((0.0, mu), (1.0, 0.7 * mu)), kappa, 0.0).loss()
    coarse = law.on(law.width * factor)
    for epsilon in (0.0, 0.1, 0.5, 2.0, 5.0):
        assert coarse.delta(epsilon) >= law.delta(epsilon) * (1 - 1e-12)
    assert coarse.masses.sum() + coarse.infinite == pytest.approx(law.masses.sum() + law.infinite, rel=1e-9)


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(mu=st.floats(0.01, 3), count=st.integers(1, 50), kappa=st.floats(0, 0.5), back=st.floats(0, 0.5))
def test_hull_stays_below_its_bound(mu, count, kappa, back):
    """The curve of the distribution stays below its bound, and its masses form a probability distribution."""
    bound = Tail(((math.log(count), mu),), kappa, back)
    law = bound.loss()
    assert law.masses.min() >= 0
    assert law.masses.sum() + law.infinite == pytest.approx(1, abs=1e-7)
    for epsilon in np.linspace(0, kappa + 6 * mu, 7):
        assert law.delta(float(epsilon)) <= bound.at(float(epsilon), kappa) * (1 + 3e-2) + 1e-10


@pytest.mark.parametrize(("count", "kappa"), [(1, 0.0), (1, 0.05), (9, 0.05)])
def test_gaussian_envelope_lies_above_the_bound(count, kappa):
    """The Gaussian envelope lies above the hull of the bound at every epsilon."""
    bound = Tail(((math.log(count), 0.3),), kappa, 0.0)
    mu, law = bound.gaussian(), bound.loss()
    for epsilon in np.linspace(0, 5, 200):
        assert gdp_delta(epsilon=float(epsilon), mu=mu) >= law.delta(float(epsilon)) * (1 - 1e-5) - 1e-11
    if count == 1 and not kappa:
        assert mu <= 0.3 * 1.02
