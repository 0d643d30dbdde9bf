import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy import special, stats

from benchmarks import refuting
from lethe.proof import canary_test
from lethe.proof.canary_test import Guesses
from tests.lethe.proof.canary_statements import guesses

# --- bounds from counts ----------------------------------------------------------------------------------------------


@given(st.integers(1, 3000), st.floats(0, 1), st.floats(1e-6, 0.5))
def test_rate_bounds_match_scipy(trials: int, share: float, error: float) -> None:
    """The one-sided Clopper-Pearson bounds equal those of scipy's exact test."""
    hits = round(share * trials)
    below = stats.binomtest(hits, trials, alternative="greater").proportion_ci(1 - error, "exact").low
    above = stats.binomtest(hits, trials, alternative="less").proportion_ci(1 - error, "exact").high
    assert canary_test.at_least(hits, trials, error=error) == pytest.approx(below, rel=1e-6, abs=1e-9)
    assert canary_test.at_most(hits, trials, error=error) == pytest.approx(above, rel=1e-6, abs=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("hits", "trials", "error"), [(1, 1, 0.05), (250, 256, 3e-7), (3, 4096, 1e-9), (128, 128, 1e-6)]
)
def test_rate_bounds_match_the_binomial(hits: int, trials: int, error: float) -> None:
    """At the lower bound, the probability of at least `hits` hits is exactly `error`, summed with 50 digits."""
    with mpmath.workdps(50):
        p = mpmath.mpf(canary_test.at_least(hits, trials, error=error))
        tail = mpmath.fsum(mpmath.binomial(trials, k) * p**k * (1 - p) ** (trials - k) for k in range(hits, trials + 1))
    assert float(tail) == pytest.approx(error, rel=1e-8)


def test_many_samples_prove_almost_all_of_mu() -> None:
    """With the counts expected from N(1, 1) and N(0, 1), the proved bounds come close to mu = 1 and to the epsilon of
    the best single threshold, but never exceed them."""
    samples = 10**7
    expected = guesses(round(samples * special.ndtr(0.5)), samples, round(samples * special.ndtr(-0.5)), samples)
    assert 0.997 < refuting.mu_at_least(expected, error=0.05) < 1
    assert 0.997 < canary_test.mu_of_right_guesses(expected.true_positives * 2, 2 * samples, error=0.05) < 1
    there = math.log((special.ndtr(0.5) - 1e-5) / special.ndtr(-0.5))
    assert 0.997 * there < refuting.epsilon_at_least(expected, delta=1e-5, error=0.05) < there


def test_bounds_match_published_values() -> None:
    """With 2,048 samples each from N(1, 1) and N(0, 1), the thresholds 0.5 and 2.5 give the published epsilon >= 0.684
    and 1.59."""
    seen = guesses(round(2048 * special.ndtr(0.5)), 2048, round(2048 * special.ndtr(-0.5)), 2048)
    assert refuting.epsilon_at_least(seen, delta=1e-5, error=0.05) == pytest.approx(0.684, abs=0.1)
    rare = guesses(round(2048 * special.ndtr(-1.5)), 2048, round(2048 * special.ndtr(-2.5)), 2048)
    assert refuting.epsilon_at_least(rare, delta=1e-5, error=0.05) == pytest.approx(1.59, abs=0.4)


@pytest.mark.parametrize("seen", [guesses(5, 10, 5, 10), guesses(0, 7, 9, 9), guesses(0, 1, 0, 1), guesses(1, 1, 1, 1)])
def test_random_guesses_prove_nothing(seen: Guesses) -> None:
    """Guesses that are no better than a coin toss prove nothing about mu."""
    assert refuting.mu_at_least(seen, error=0.05) == 0


def test_epsilon_is_proved_in_both_directions() -> None:
    """A rule that is wrong about almost all records proves as large an epsilon as the opposite rule."""
    right, mirrored = guesses(990, 1000, 400, 1000), guesses(600, 1000, 10, 1000)
    assert refuting.epsilon_at_least(right, delta=1e-6, error=0.05) > 0
    assert refuting.epsilon_at_least(mirrored, delta=1e-6, error=0.05) == pytest.approx(
        refuting.epsilon_at_least(right, delta=1e-6, error=0.05)
    )


@given(st.integers(2, 60), st.floats(0, 4), st.floats(-3, 3), st.sampled_from([0.25, 0.05, 1e-3, 3e-7]))
def test_guesses_rarely_prove_too_much(half: int, mu: float, threshold: float, error: float) -> None:
    """With equal numbers of lanes with and without a canary, the probability of proving more than the true mu is at
    most `error` at any threshold. The test computes this probability by summing over all counts of two binomials with
    different rates."""
    true, false = special.ndtr(mu / 2 - threshold), special.ndtr(-mu / 2 - threshold)
    counts = np.arange(half + 1)
    right = np.convolve(stats.binom.pmf(counts, half, true), stats.binom.pmf(counts, half, 1 - false))
    proved = np.array([canary_test.mu_of_right_guesses(k, 2 * half, error=error) for k in range(2 * half + 1)])
    assert right[proved > mu * (1 + 1e-12) + 1e-12].sum() <= error * (1 + 1e-9)


def test_one_bound_proves_more_than_two() -> None:
    """For 256 lanes that a canary moves by two and a half standard deviations, one bound on the number of correct
    guesses proves more than separate bounds on both rates."""
    seen = guesses(114, 128, 14, 128)
    both = refuting.mu_at_least(seen, error=0.05)
    assert canary_test.mu_of_right_guesses(228, 256, error=0.05) > 1.08 * both > 1
