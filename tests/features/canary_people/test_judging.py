"""The exact rank test: its levels, its power, and the three outcomes."""

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from lethe.features.canary_people import judging
from lethe.features.canary_people.judging import CanaryOutcome
from lethe.proof.errors import DomainError


@pytest.mark.parametrize(("m", "n"), [(1, 1), (1, 6), (3, 4), (4, 3), (5, 2)])
def test_the_null_distribution_matches_enumeration(m: int, n: int) -> None:
    """The null distribution equals the counts of inversions over every arrangement of two small groups."""
    counts = [
        sum(place - rank for rank, place in enumerate(places)) for places in itertools.combinations(range(m + n), m)
    ]
    for statistic in range(-1, m * n + 2):
        share = sum(count <= statistic for count in counts) / math.comb(m + n, m)
        assert judging.mann_whitney_cdf(statistic, m, n) == pytest.approx(share, rel=1e-12, abs=1e-15)


def test_far_tail_has_full_precision() -> None:
    """For the group sizes in use, even the smallest possible probability (that of a single arrangement) is exact to ten
    digits."""
    for m in (20, 100):
        arrangements = math.comb(m + 1000, m)
        # Numbers of partitions of 0 to 2, summed.
        for statistic, count in enumerate((1, 2, 4)):
            assert judging.mann_whitney_cdf(statistic, m, 1000) * arrangements == pytest.approx(count, rel=1e-10)
    # By scipy's exact method, which takes seconds for this one.
    assert judging.mann_whitney_cdf(31572, 100, 1000) == pytest.approx(2.894997429175434e-10, rel=1e-10)


@pytest.mark.slow
def test_p_values_are_valid_despite_ties() -> None:
    """If the groups are exchangeable, a fraction u of the p-values is at most u, even if most losses are equal. With
    2,000 tests and five levels, a correct implementation fails this check once in ten thousand runs."""
    rng = np.random.default_rng(5)
    p_values = []
    for _ in range(2000):
        losses = rng.integers(3, size=50).astype(float)
        losses[losses == 0] = np.inf
        p_values.append(judging.rank_test(losses[:20], losses[20:], rng))
    for level in (0.01, 0.05, 0.2, 0.5, 0.9):
        low, high = stats.binom.interval(1 - 2e-5, 2000, level)
        assert low <= sum(p_value <= level for p_value in p_values) <= high


def test_levels_sum_to_the_stated_total() -> None:
    """The significance levels of a pipeline's tests sum to at most 1e-4, however many tests there are. Each of the
    first fifty levels is 1e-6."""
    levels = [judging.level(test) for test in range(1, 100_000)]
    assert levels[:50] == [1e-6] * 50
    assert 0.99 * judging.TOTAL_LEVEL < math.fsum(levels) <= judging.TOTAL_LEVEL
    with pytest.raises(DomainError):
        judging.level(0)


def test_estimated_power_matches_the_alarm_rate() -> None:
    """The median estimated power is within 0.15 of the alarm rate observed for new groups from the same
    distribution."""
    rng = np.random.default_rng(6)
    never, shift = rng.normal(size=100), 1.2
    estimates, alarms = [], 0
    for _ in range(150):
        group = rng.normal(size=30) - shift
        estimates.append(judging.power(group, never, alarm_level=1e-6))
        alarms += judging.rank_test(group, never, rng) < 1e-6
    assert 0.2 < alarms / 150 < 0.8
    assert np.median(estimates) == pytest.approx(alarms / 150, abs=0.15)


def test_the_outcome_depends_on_detection_and_power() -> None:
    """The test raises an alarm if the model still remembers a group of forgotten canaries. Otherwise, the outcome is
    "clean" if the test would have detected such a group, and "no power" if not, as in a trainer's first run."""
    rng = np.random.default_rng(7)
    never = rng.normal(size=300)
    known, unknown = rng.normal(size=40) - 3, rng.normal(size=40)

    def outcome(forgotten: list[np.ndarray], present: np.ndarray) -> CanaryOutcome:
        pairs = [(group, never) for group in forgotten]
        return judging.judge(forgotten=pairs, present=(present, never), test=1, seed=1).outcome

    assert outcome([known], known) is CanaryOutcome.ALARM
    assert outcome([known], unknown) is CanaryOutcome.ALARM
    assert outcome([unknown], known) is CanaryOutcome.CLEAN
    assert outcome([unknown], unknown) is CanaryOutcome.NO_POWER
    assert outcome([], known) is CanaryOutcome.NO_POWER
    assert outcome([unknown, unknown, known], known) is CanaryOutcome.ALARM


def test_verdict_is_reproducible_and_counts_groups() -> None:
    """The seed determines how ties are broken, and the smallest p-value is multiplied by the number of groups."""
    rng = np.random.default_rng(8)
    losses = rng.integers(2, size=(2, 60)).astype(float)
    pair = (losses[0, :30], losses[0, 30:])
    given = {"present": pair, "test": 3, "seed": 9}
    one = judging.judge(forgotten=[pair], **given)
    assert one == judging.judge(forgotten=[pair], **given)
    assert one.p_value is not None
    never = np.zeros(50)
    far = (never[:20] - np.arange(20) - 1, never)
    alone, both = (judging.judge(forgotten=groups, **given) for groups in ([far], [far, far]))
    assert both.p_value == pytest.approx(2 * alone.p_value)
    assert both.power <= alone.power


@pytest.mark.parametrize("fault", ["nan", "few", "many"])
def test_invalid_losses_are_refused(fault: str) -> None:
    """The test refuses NaN losses, and groups with too few or too many losses, instead of judging them."""
    group, never = np.arange(30.0), np.arange(100.0)
    if fault == "nan":
        group[3] = np.nan
    with pytest.raises(DomainError):
        judging.rank_test(
            {"few": group[:19], "many": np.arange(201.0)}.get(fault, group), never, np.random.default_rng(1)
        )
