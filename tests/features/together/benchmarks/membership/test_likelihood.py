from functools import partial

import numpy as np
import pytest
from scipy import stats

from benchmarks import refuting
from benchmarks.membership import likelihood
from benchmarks.membership.likelihood import Normal, Rule, fixed_on

PROVES_MU = partial(refuting.mu_at_least, error=0.05)


def scores(seed: int, mean: float = 0.0, std: float = 1.0, models: int = 4000) -> np.ndarray:
    return np.random.default_rng(seed).normal(mean, std, size=models)


def test_the_ratio_matches_normal_densities() -> None:
    """The log likelihood ratio equals the difference of two normal log densities."""
    rule = Rule(members=Normal(mean=1.0, std=0.5), nonmembers=Normal(mean=-0.5, std=2.0))
    at = np.linspace(-3, 3, 7)
    expected = stats.norm.logpdf(at, 1.0, 0.5) - stats.norm.logpdf(at, -0.5, 2.0)
    assert rule.log_ratio(at) == pytest.approx(expected)


def test_the_rule_is_fitted_to_the_shadow_models() -> None:
    """The fitted rule has the means and standard deviations of the shadow models."""
    rule = fixed_on(members=scores(1, 2.0, 0.3), nonmembers=scores(2), proves=PROVES_MU)
    assert (rule.members.mean, rule.members.std) == pytest.approx((2.0, 0.3), abs=0.02)
    assert (rule.nonmembers.mean, rule.nonmembers.std) == pytest.approx((0.0, 1.0), abs=0.05)


def test_the_proved_mu_is_close_to_the_truth() -> None:
    """Thousands of models that were not used to fit the rule prove at least 0.8 of the true mu between two normal
    distributions, and never more than the true mu."""
    rule = fixed_on(members=scores(1, 1.0), nonmembers=scores(2), proves=PROVES_MU)
    proved = PROVES_MU(rule.guess(members=scores(3, 1.0), nonmembers=scores(4)))
    assert 0.8 < proved <= 1.0


def test_distributions_with_equal_means_are_distinguished_by_variance() -> None:
    """Distributions that differ only in variance, as after fine-tuning without noise, are distinguished."""
    rule = fixed_on(members=scores(1, 0.0, 0.2), nonmembers=scores(2), proves=PROVES_MU)
    assert PROVES_MU(rule.guess(members=scores(3, 0.0, 0.2), nonmembers=scores(4))) > 1


def test_indistinguishable_distributions_have_a_threshold_of_zero() -> None:
    """If members and nonmembers have the same distribution, the rule's threshold is 0."""
    rule = fixed_on(members=scores(1, models=20), nonmembers=scores(2, models=20), proves=lambda guesses: 0.0)
    assert rule.threshold == 0


def test_guesses_lie_on_the_curve() -> None:
    """The rule's error rates are a point on its receiver operating characteristic, which rises from near 0 to 1."""
    members, nonmembers = scores(1, 0.7, models=300), scores(2, models=300)
    rule = fixed_on(members=members, nonmembers=nonmembers, proves=PROVES_MU)
    guesses = rule.guess(members=members, nonmembers=nonmembers)
    false, true = likelihood.roc(rule, members=members, nonmembers=nonmembers)
    assert (false[0], true[0]) == (1, 1)
    assert (np.diff(false) <= 0).all()
    assert (np.diff(true) <= 0).all()
    at = np.isclose(false, guesses.false_positives / 300)
    assert np.isclose(true[at], guesses.true_positives / 300).any()


def test_separation_is_the_distance_in_standard_deviations() -> None:
    """For distributions one and a half standard deviations apart, the estimated separation is 1.5."""
    assert likelihood.separation(members=scores(1, 3.0, 2.0), nonmembers=scores(2, 0.0, 2.0)) == pytest.approx(
        1.5, abs=0.1
    )
