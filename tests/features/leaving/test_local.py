"""Randomised response and the mean under local privacy: closed forms, exact coverage, and comparisons."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy import stats

from benchmarks.local import gaussian_error, one_bit_error
from lethe.features.leaving.local import RandomisedResponse
from lethe.features.theorems import evaluate
from lethe.proof import conversion
from lethe.proof.errors import DomainError
from tests.tables import each

responses = st.builds(RandomisedResponse, odds=st.integers(2, 100), num_answers=st.integers(2, 8))
shares = st.floats(0, 1)


@given(responses)
def test_epsilon_is_exact(response: RandomisedResponse) -> None:
    """The maximum ratio between an answer's probabilities for two different true reasons is exactly odds =
    e^epsilon."""
    k = response.num_answers
    assert response.truth + (k - 1) * response.other == 1
    sent_if = [[response.truth if sent == true else response.other for true in range(k)] for sent in range(k)]
    assert {max(row) / min(row) for row in sent_if} == {Fraction(response.odds)}
    assert response.epsilon == math.log(response.odds)


@given(responses, st.integers(1, 40), shares)
def test_the_estimate_is_unbiased_and_has_the_stated_variance(
    response: RandomisedResponse, n: int, share: float
) -> None:
    """Over all answers that n people can send, the estimate's mean is the true share, and its variance equals the value
    that `variance` returns."""
    rate = response.rate(share)
    rest = [0] * (response.num_answers - 2)
    sent = [response.estimates([hits, n - hits, *rest], confidence=0.9)[0].share for hits in range(n + 1)]
    chance = stats.binom.pmf(range(n + 1), n, rate)
    assert np.sum(chance * sent) == pytest.approx(share, abs=1e-9)
    assert np.sum(chance * (np.array(sent) - share) ** 2) == pytest.approx(
        response.variance(n=n, share=share), rel=1e-7
    )


@given(responses, st.integers(1, 60), st.data())
def test_intervals_cover_the_share_of_fixed_people(response: RandomisedResponse, n: int, data: st.DataObject) -> None:
    """Whatever the n people's true answers are, each interval misses the true share with a probability of at most the
    error probability allotted to it."""
    true = data.draw(st.integers(0, n))
    honest = stats.binom.pmf(range(true + 1), true, float(response.truth))
    others = stats.binom.pmf(range(n - true + 1), n - true, float(response.other))
    chance = np.convolve(honest, others)
    rest = [0] * (response.num_answers - 2)
    missed = 0.0
    for hits in range(n + 1):
        found = response.estimates([hits, n - hits, *rest], confidence=0.9)[0]
        if not found.low - 1e-12 <= true / n <= found.high + 1e-12:
            missed += chance[hits]
    assert missed <= 0.1 / response.num_answers + 1e-12


@given(responses, st.integers(1, 60), shares)
def test_intervals_cover_the_share_of_a_population(response: RandomisedResponse, n: int, share: float) -> None:
    """If the people are drawn at random from a population, each interval misses the population's share with a
    probability of at most the error probability allotted to the interval."""
    chance = stats.binom.pmf(range(n + 1), n, response.rate(share))
    rest = [0] * (response.num_answers - 2)
    found = [response.estimates([hits, n - hits, *rest], confidence=0.9)[0] for hits in range(n + 1)]
    holds = [one.low - 1e-9 <= share <= one.high + 1e-9 for one in found]
    assert np.sum(chance[~np.array(holds)]) <= 0.1 / response.num_answers + 1e-12


@given(st.lists(st.integers(0, 10**6), min_size=2, max_size=6).filter(any), st.integers(2, 100))
def test_estimates_and_intervals_are_consistent(sent: list[int], odds: int) -> None:
    """Shares sum to one. Each interval lies in [0, 1], contains its share clipped to [0, 1], and widens as the
    confidence increases."""
    response = RandomisedResponse(odds=odds, num_answers=len(sent))
    narrow, wide = (response.estimates(sent, confidence=confidence) for confidence in (0.5, 0.99))
    assert sum(one.share for one in narrow) == pytest.approx(1)
    for some, more in zip(narrow, wide, strict=True):
        assert 0 <= more.low <= some.low <= some.high <= more.high <= 1
        assert some.low - 1e-12 <= min(1, max(0, some.share)) <= some.high + 1e-12


def test_estimates_match_a_hand_computed_survey() -> None:
    """With odds 3 and five reasons, chance alone makes 100 of 700 answers name any given reason, so the estimated share
    of such a reason is 0."""
    response = RandomisedResponse(odds=3, num_answers=5)
    found = response.estimates([300, 100, 100, 100, 100], confidence=0.95)
    assert [round(one.share, 12) for one in found] == [1, 0, 0, 0, 0]
    assert found[0].standard_error == pytest.approx(math.sqrt(3 / 7 * 4 / 7 / 700) * 7 / 2)
    assert found[1].low == 0
    error = 0.05 / 10
    assert found[1].high == pytest.approx((stats.beta.ppf(1 - error, 101, 600) - 1 / 7) * 7 / 2)


@each(
    ("odds", "sent", "confidence"),
    [(1, [1, 1], 0.9), (3.0, [1, 1], 0.9), (3, [0, 0], 0.9), (3, [1, -1], 0.9), (3, [1, 1, 1], 0.9), (3, [1, 1], 1.0)],
)
def test_a_malformed_survey_is_refused(odds: int, sent: list[int], confidence: float) -> None:
    """A survey is refused if its odds would hide every true answer, if it has no answers or the wrong number of
    answers, or if the confidence is 1."""
    with pytest.raises(DomainError):
        RandomisedResponse(odds=odds, num_answers=2).estimates(sent, confidence=confidence)


@given(st.integers(1, 10**6), st.integers(2, 1000), shares)
def test_one_bit_error_matches_duchis_estimator(n: int, odds: int, mean: float) -> None:
    """The one-bit estimator's error follows from the variance of a bit with the value +-(e^eps + 1)/(e^eps - 1): the
    squared value minus the squared mean."""
    sent, centred = (odds + 1) / (odds - 1), 2 * mean - 1
    assert one_bit_error(n=n, odds=odds, mean=mean) == pytest.approx((sent**2 - centred**2) / (4 * n))
    with pytest.raises(DomainError):
        one_bit_error(n=n, odds=odds, mean=1.5)


@given(st.floats(0.01, 20), st.floats(1e-9, 0.1))
def test_gaussian_noise_is_minimal(epsilon: float, delta: float) -> None:
    """The noise makes each value exactly (epsilon, delta)-private, and reducing it by a thousandth breaks the
    guarantee."""
    mu = gaussian_error(n=1, epsilon=epsilon, delta=delta, variance=0.0) ** -0.5
    assert conversion.gdp_delta(epsilon=epsilon, mu=mu) <= delta * (1 + 1e-9)
    assert conversion.gdp_delta(epsilon=epsilon, mu=1.001 * mu) > delta


def test_errors_fall_at_the_known_rates() -> None:
    """Errors fall with n at the known rates. At small epsilon, one bit is more accurate than Laplace noise, which is
    more accurate than Gaussian noise; the central model is the most accurate."""
    asked = {"n": 10_000, "eps": math.log(2)}
    central, laplace = (evaluate(f"{model}_mean_mse", asked)["mse"] for model in ("central", "local"))
    bit = one_bit_error(n=10_000, odds=2, mean=0.5)
    gaussian = gaussian_error(n=10_000, epsilon=math.log(2), delta=1e-6, variance=0.25)
    assert central < bit < laplace < gaussian
    assert one_bit_error(n=1_000_000, odds=2, mean=0.5) == pytest.approx(bit / 100)
    assert bit == pytest.approx(9 / 40_000)
