import math

import numpy as np
import pytest
from hypothesis import given, strategies as st

from lethe.proof import accountant, conversion, methods
from lethe.proof.accountant import Exposure, Run
from lethe.proof.mechanism import Adjacency, Mechanism
from tests.lethe.proof.mnist import CONVERGED, MNIST, mechanism, mnist

# --- exact on quadratics: two Gaussian chains, simulated by their means and variances --------------------------------


def exact_mu(made: Mechanism, *, curvatures: list[float], shifts: list[float]) -> float:
    """Return mu of the last iterates of x <- (1 - eta h) x + shift + N(0, nu^2) with the shifts compared with none."""
    distance, variance = 0.0, 0.0
    for h, shift in zip(curvatures, shifts, strict=True):
        slope = 1 - made.step_size * h
        distance = slope * distance + shift
        variance = slope**2 * variance + 2 * made.step_size * made.noise_scale**2
    return abs(distance) / math.sqrt(variance)


@pytest.mark.parametrize("l2", [1e-4, 0.05, 1.0])
def test_the_bound_is_exact_for_the_worst_quadratic(l2):
    """For a quadratic of curvature m with shifts of s per differing record, the bound equals the exact mu."""
    made = mechanism(l2=l2, step_size=1 / (0.25 + l2))
    history = [Run(steps=60), Run(steps=9, records=4), Run(steps=30, records=1), Run(steps=5)]
    s = made.sensitivity(Adjacency.ZERO_OUT)
    shifts = [5 * s] * 60 + [s] * 9 + [0.0] * 35
    exact = exact_mu(made, curvatures=[l2] * 104, shifts=shifts)
    assert accountant.unlearning_mu(accountant.replay(made, history)) / exact == pytest.approx(1, rel=1e-11)
    exact = exact_mu(made, curvatures=[l2] * 60, shifts=[2 * s] * 60)
    released = accountant.release_mu(made, steps=60, adjacency=Adjacency.REPLACE)
    assert released / exact == pytest.approx(1, rel=1e-11)


def test_the_bound_is_exact_at_the_longest_step():
    """If curvature L determines the contraction, the worst shifts alternate in sign, and the bound is again exact."""
    made = mechanism(l2=0.05, step_size=6.3)
    assert made.contraction == pytest.approx(made.step_size * made.smoothness - 1)
    s = made.sensitivity(Adjacency.ZERO_OUT)
    exact = exact_mu(made, curvatures=[0.3] * 40, shifts=[s * (-1) ** t for t in range(30)] + [0.0] * 10)
    chain = accountant.replay(made, [Run(steps=30), Run(steps=10, records=1)])
    assert accountant.unlearning_mu(chain) / exact == pytest.approx(1, rel=1e-11)


@given(seed=st.integers(0, 2**32), share=st.floats(0.1, 1.9), l2=st.floats(1e-3, 1.0))
def test_no_quadratic_exceeds_the_bound(seed, share, l2):
    """For curvatures in [m, L] that change from step to step and for any admissible shifts, the exact mu stays below
    the bound."""
    made = mechanism(l2=l2, step_size=share / (0.25 + l2))
    generator = np.random.default_rng(seed)
    history = [Run(steps=int(generator.integers(1, 60)))]
    history += [Run(steps=int(generator.integers(1, 20)), records=int(generator.integers(0, 4))) for _ in range(3)]
    present, shifts = sum(run.records for run in history), []
    for run in history:
        present -= run.records
        shifts += list(made.sensitivity(Adjacency.ZERO_OUT) * present * generator.uniform(-1, 1, size=run.steps))
    curvatures = list(generator.uniform(l2, 0.25 + l2, size=len(shifts)))
    bound = accountant.unlearning_mu(accountant.replay(made, history))
    assert exact_mu(made, curvatures=curvatures, shifts=shifts) <= bound * (1 + 1e-12)


# --- published numbers -----------------------------------------------------------------------------------------------
#
# The tables and figures of Chien, Wang, Chen, Li (2024) compare a record with another record (`replace`): one deletion
# counts there as two records of the `zero_out` kind.


def test_mu_matches_example_vectors():
    """The shift bound equals example values computed by independent code."""
    made = mechanism(num_slots=5000, l2=0.05, step_size=1.0, noise_scale=0.03)
    chain = accountant.replay(made, [Run(steps=100), Run(steps=10, records=1)])
    mu = accountant.deletion_mu(chain, records=1, steps_present=100)
    assert mu == pytest.approx(0.0175220910708, rel=1e-11)
    assert chain.influence == pytest.approx(0.00238076839878, rel=1e-11)
    assert chain.variance == pytest.approx(0.0184613064759, rel=1e-11)
    made = mechanism(l2=0.5, step_size=1.0, noise_scale=1.0)
    mu = accountant.release_mu(made, steps=5, adjacency=Adjacency.ZERO_OUT)
    assert mu == pytest.approx(0.0118705135065, rel=1e-11)


def test_one_version_on_mnist_has_the_known_mu():
    """A version has the known mu after convergence and 4 or 64 steps after the last deletion."""
    for steps, expected in ((CONVERGED, 0.0504215001477), (4, 0.0153546872621), (64, 0.047912813963)):
        mu = accountant.release_mu(mnist(), steps=steps, adjacency=Adjacency.REPLACE)
        assert mu == pytest.approx(expected, rel=5e-9)


@pytest.mark.parametrize(
    ("forgetting", "expected"),
    [
        ([Run(steps=3, records=2)], 0.0438560277973),
        ([Run(steps=10, records=20)] * 4, 0.719082919236),
        ([Run(steps=4, records=2)] * 500, 0.246643008504),
        ([Run(steps=21, records=20)] * 500, 0.304615767169),
    ],
)
def test_sequences_of_deletions_have_the_known_mu(forgetting, expected):
    """Sequences of deletions from a converged model, up to the steady state, have the known values of mu."""
    mu = accountant.unlearning_mu(accountant.replay(mnist(), [Run(steps=CONVERGED), *forgetting]))
    assert mu == pytest.approx(expected, rel=1e-11)


@pytest.mark.parametrize(
    ("epsilon", "replaced", "removed"),
    [
        (0.05, 0.06598, 0.03299),
        (0.1, 0.03600, 0.01800),
        (0.5, 0.00861, 0.00431),
        (1, 0.00465, 0.00232),
        (2, 0.00253, 0.00126),
        (5, 0.00116, 0.00058),
    ],
)
def test_minimum_noise_for_one_step_is_the_known_value(epsilon, replaced, removed):
    """The minimum noise for one step after one deletion has the known value, which is a third to a half of the value in
    Chien et al. (Table 3)."""
    target = conversion.gdp_mu(epsilon=epsilon, delta=1 / MNIST)
    for records, expected in ((2, replaced), (1, removed)):
        made = mnist(l2=1e-6 * MNIST, noise_scale=1.0)
        chain = accountant.replay(made, [Run(steps=CONVERGED), Run(steps=1, records=records)])
        assert accountant.unlearning_mu(chain) / target == pytest.approx(expected, abs=6e-6)


@pytest.mark.parametrize(("versions", "expected"), [(1, 0.130), (10, 0.183), (100, 0.480)])
def test_readers_of_every_version_have_the_known_epsilon(versions, expected):
    """If readers see all versions, a record in a converged version and in one further version every 4 steps has the
    known epsilon."""
    releases = ((4, versions - 1), (CONVERGED, 1))[versions == 1 :]
    mu = methods.adaptive_mu([Exposure(mechanism=mnist(), records=2, releases=releases)])
    assert conversion.gdp_epsilon(mu=mu, delta=1 / MNIST) == pytest.approx(expected, abs=6e-4)
