import numpy as np
import pytest
from hypothesis import given, strategies as st

from benchmarks.membership import competition
from benchmarks.membership.competition import CAP, DELTA, epsilon_bound, epsilon_hat
from lethe.features.theorems import evaluate
from lethe.proof import conversion


def pair(seed: int, *, models: int, mu: float = 0.0, scale: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    return scale * generator.normal(mu, size=models), scale * generator.normal(size=models)


def of_rates(misses: np.ndarray, alarms: np.ndarray) -> float:
    """Return the largest epsilon-hat that the product's calculator gives for the pairs of error rates that the
    competition keeps."""
    kept = {(fn, fp) for fn, fp in zip(misses.tolist(), alarms.tolist(), strict=True) if fn > 0 and fp > 0}
    return max(evaluate("eps_hat", {"fpr": fp, "fnr": fn, "delta": DELTA})["eps"] for fn, fp in kept)


@pytest.mark.parametrize("mu", [0.0, 1.0, -1.0])
def test_one_threshold_matches_a_plain_loop(mu: float) -> None:
    """Epsilon-hat with one threshold equals the maximum that a plain loop finds over a hundred thresholds per unit."""
    unlearned, retrained = pair(1, models=60, mu=mu)
    low, high = sorted((unlearned, retrained), key=np.median)
    least, most = min(low.min(), high.min()), max(low.max(), high.max())
    thresholds = np.linspace(least, most, int(np.ceil(100 * (most - least))))
    misses = np.array([(high < threshold).mean() for threshold in thresholds])
    alarms = np.array([(low >= threshold).mean() for threshold in thresholds])
    assert epsilon_hat(unlearned, retrained, two_thresholds=False) == pytest.approx(of_rates(misses, alarms))


def test_two_thresholds_match_an_interval_search() -> None:
    """Epsilon-hat with two thresholds is the larger of two values: epsilon-hat with one threshold, and the maximum over
    intervals around the distribution with the smaller range."""
    wide, narrow = pair(2, models=30)
    narrow = 0.5 * narrow
    width = np.ptp(narrow)
    first, last = narrow.min() + width - 2, narrow.max() + 2
    right = np.linspace(first, last, int(np.ceil(100 * (last - first))))[:, None, None]
    left = right - width + np.linspace(-2, 2, 400)[None, :, None]
    misses = 1 - ((left <= narrow) & (narrow <= right)).mean(axis=2)
    alarms = ((left <= wide) & (wide <= right)).mean(axis=2)
    expected = max(of_rates(misses.ravel(), alarms.ravel()), epsilon_hat(wide, narrow, two_thresholds=False))
    assert epsilon_hat(wide, narrow) == pytest.approx(expected)


@given(st.integers(0, 10**6), st.floats(0, 2))
def test_the_two_distributions_can_be_swapped(seed: int, mu: float) -> None:
    """Epsilon-hat does not depend on which of the two distributions is called the unlearned one."""
    unlearned, retrained = pair(seed, models=20, mu=mu, scale=0.2)
    assert epsilon_hat(unlearned, retrained) == pytest.approx(epsilon_hat(retrained, unlearned))


def test_separated_distributions_reach_the_cap() -> None:
    """Epsilon-hat reaches its cap if the two distributions are perfectly separated or if one of them is concentrated
    almost at a single point."""
    unlearned, retrained = pair(3, models=50)
    assert epsilon_hat(unlearned + 100, retrained) == CAP
    assert epsilon_hat(0.001 * unlearned, retrained) == CAP


@pytest.mark.slow
def test_identical_distributions_have_a_biased_estimate() -> None:
    """For two samples of 512 models from one distribution, the mean epsilon-hat is about 1.1 if only the rule with one
    threshold is used and 1.5 if both rules are used, although the true epsilon and the proved bound are 0."""
    pairs = [pair(seed, models=512) for seed in range(60)]
    assert np.mean([epsilon_hat(*one, two_thresholds=False) for one in pairs]) == pytest.approx(1.13, abs=0.2)
    assert np.mean([epsilon_hat(*one) for one in pairs]) == pytest.approx(1.5, abs=0.2)
    assert all(epsilon_bound(*one, delta=DELTA, error=1e-6) == 0 for one in pairs)


def test_distant_distributions_are_underestimated() -> None:
    """For distributions far apart, two samples of 512 models yield an epsilon-hat below ln 512, although the true
    epsilon is larger."""
    found = np.mean([epsilon_hat(*pair(seed, models=512, mu=2.0)) for seed in range(10)])
    assert found < np.log(512) < conversion.gdp_epsilon(mu=2.0, delta=DELTA)


@pytest.mark.parametrize("mu", [0.25, 1.0])
def test_the_proved_bound_stays_below_the_truth(mu: float) -> None:
    """The proved lower bound on epsilon exceeds the true epsilon with probability at most 1e-4, and does so in none of
    a hundred trials."""
    true = conversion.gdp_epsilon(mu=mu, delta=DELTA)
    assert all(epsilon_bound(*pair(seed, models=200, mu=mu), delta=DELTA, error=1e-4) <= true for seed in range(50))


def test_the_proved_bound_distinguishes_distant_distributions() -> None:
    """If two distributions are two standard deviations apart, 256 models that were not used to choose the rule prove an
    epsilon above 1.5."""
    assert epsilon_bound(*pair(4, models=512, mu=2.0), delta=DELTA, error=0.05) > 1.5


def test_scores_halve_with_every_bin() -> None:
    """A row scores 2^-k if its epsilon falls into bin k, where each bin is half a unit wide. An epsilon above the
    logarithm of the number of models scores 0."""
    epsilons = np.array([0.0, 0.49, 0.5, 1.0, 6.99, 7.0, CAP])
    scores = [competition.score(epsilons[[row]], num_models=512) for row in range(len(epsilons))]
    assert scores == [1, 1, 0.5, 0.25, 2**-13, 0, 0]
    assert competition.score(epsilons, num_models=512) == pytest.approx(np.mean(scores))
