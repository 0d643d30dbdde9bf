"""Verdict on a retraining: whether its artefact still knows the canaries that it should have forgotten.

Null hypothesis, for an honest pipeline: the artefact does not depend on which of the canaries drawn together were
planted earlier. Given the artefact, forgotten canaries and canaries that were never planted are then exchangeable for
any kind of model, and the rank test is exact. `docs/mathematics/canary-people.md` has the proof.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from lethe.features.canary_people.drawing import MAX_PLANTED, MIN_PLANTED, NUM_NEVER
from lethe.proof.errors import DomainError, require_count

Losses = npt.NDArray[np.float64]  # (n,)

LEVEL = 1e-6
"""Significance level of each of a pipeline's first `FULL_TESTS` tests."""
FULL_TESTS = 50
TOTAL_LEVEL = 2 * FULL_TESTS * LEVEL
"""Maximum probability that an honest pipeline ever raises an alarm, however often it is tested."""
MIN_POWER = 0.95


class CanaryOutcome(StrEnum):
    """Outcome of a canary test."""

    CLEAN = "clean"
    """No trace of the forgotten canaries, and the test would have found one."""
    ALARM = "alarm"
    """The artefact knows the forgotten canaries."""
    NO_POWER = "no_power"
    """No trace of the forgotten canaries, but the test would have missed one, or none had to be forgotten yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Verdict on one artefact.

    `p_value` bounds the probability that an honest pipeline shows this much knowledge of the forgotten canaries; None
    if no canaries had to be forgotten. A p-value below `level` is an alarm. `power` estimates the probability of an
    alarm if the artefact knew the forgotten canaries as well as the present ones, whose own p-value is
    `present_p_value`. `planted` and `never` are the numbers of canaries in each group."""

    outcome: CanaryOutcome
    p_value: float | None
    level: float
    power: float
    present_p_value: float
    planted: int
    never: int

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"outcome": self.outcome.value}


def level(test: int) -> float:
    """Return the significance level of a pipeline's `test`-th test, counted from 1.

    The first m = `FULL_TESTS` tests have level `LEVEL`, later tests LEVEL m (m + 1)/(t (t + 1)). The levels of all
    tests sum to 2 m LEVEL = `TOTAL_LEVEL`, which by the union bound holds for any dependence between tests.

    >>> level(50), f"{level(51):.3g}", f"{level(1000):.3g}", round(TOTAL_LEVEL, 12)
    (1e-06, '9.62e-07', '2.55e-09', 0.0001)
    """
    require_count(1, test=test)
    return LEVEL * min(1.0, FULL_TESTS * (FULL_TESTS + 1) / (test * (test + 1)))


def mann_whitney_cdf(statistic: int, m: int, n: int) -> float:
    """Return P[U <= `statistic`] for the number U of wrongly ordered pairs of m and n exchangeable values without ties.

    U has the generating function prod_{i=1}^m (1 - z^(n+i))/(1 - z^i) / C(m+n, m). Its coefficients are computed by a
    Fourier transform on the circle |z| = r on which the mean is `statistic`, so that the relative error is about 1e-12
    even far in the tail. There, scipy's exact method would take hours with this many canaries.

    Reference: Di Bucchianico, "Combinatorics, computer algebra and the Wilcoxon-Mann-Whitney test", J. Statist. Plann.
    Inference 79 (1999).

    >>> [round(mann_whitney_cdf(statistic, 2, 3), 12) for statistic in (0, 5, 6)]
    [0.1, 0.9, 1.0]
    """
    from scipy import optimize

    top = m * n
    if statistic >= top:
        return 1.0
    if 2 * statistic >= top:
        return 1.0 - mann_whitney_cdf(top - statistic - 1, m, n)
    if statistic < 0:
        return 0.0
    sizes = np.arange(1, m + 1)

    def mean(decay: float) -> float:
        with np.errstate(over="ignore"):
            return float(np.sum(sizes / np.expm1(decay * sizes) - (n + sizes) / np.expm1(decay * (n + sizes))))

    # In the middle the circle would be the unit circle, on which factors have zeros.
    decay, target = 1e-3 / (m + n), max(statistic, 0.5)
    if mean(decay) > target:
        decay = optimize.brentq(lambda decay: mean(decay) - target, decay, 50.0)
    points = np.exp(-decay + 2j * np.pi * np.arange((top + 1) // 2 + 1) / (top + 1))
    values = np.ones(len(points), dtype=np.complex128)
    low, high = np.ones_like(points), points**n
    for size in sizes:
        low, high = low * points, high * points
        values *= size / (n + size) * (1 - high) / (1 - low)
    coefficients = np.fft.irfft(np.conj(values), n=top + 1)[: statistic + 1]
    return float(np.sum(coefficients * np.exp(decay * np.arange(statistic + 1))))


def rank_test(suspects: Losses, never: Losses, rng: np.random.Generator) -> float:
    """Return the one-sided p-value for suspects having smaller losses than canaries that were never planted.

    The null distribution of the Mann-Whitney statistic is exact: if the groups are exchangeable, the p-value is at most
    u with probability at most u, for every u. This holds for any number of ties, because `rng` breaks ties at random,
    independently of the groups.

    Raises:
        DomainError: for NaN, or a group size that no canary group has.
    """
    _check(suspects, never)
    joined = np.concatenate([suspects, never])
    # `lexsort` sorts by its last key first: by loss, and among equal losses at random.
    order = np.lexsort((rng.permutation(len(joined)), joined))
    ranks = np.empty(len(joined), dtype=np.int64)
    ranks[order] = np.arange(len(joined))
    m = len(suspects)
    above = int(ranks[:m].sum()) - m * (m - 1) // 2
    return mann_whitney_cdf(above, m, len(never))


def _check(suspects: Losses, never: Losses) -> None:
    if not MIN_PLANTED <= len(suspects) <= MAX_PLANTED or not MIN_PLANTED <= len(never) <= NUM_NEVER:
        raise DomainError(f"Expected groups of canaries, not of {len(suspects)} and {len(never)} losses")
    if np.isnan(suspects).any() or np.isnan(never).any():
        raise DomainError("Expected losses that are not NaN")


def power(present: Losses, never: Losses, *, alarm_level: float) -> float:
    """Estimate the probability of an alarm at `alarm_level` for a group that the model knows as well as `present`.

    This is a normal approximation, with DeLong's standard error, of P[a > critical value of the test], where a is the
    share of pairs in which the present canary has the smaller loss. Ties count as half.

    Reference: DeLong, DeLong and Clarke-Pearson, Biometrics 44 (1988).
    """
    from scipy import stats

    _check(present, never)
    m, n = len(present), len(never)
    ordered, others = np.sort(never), np.sort(present)
    above = 1 - (np.searchsorted(ordered, present, "left") + np.searchsorted(ordered, present, "right")) / (2 * n)
    below = (np.searchsorted(others, never, "left") + np.searchsorted(others, never, "right")) / (2 * m)
    critical = 0.5 + stats.norm.isf(alarm_level) * math.sqrt((m + n + 1) / (12 * m * n))
    error = math.sqrt(above.var(ddof=1) / m + below.var(ddof=1) / n)
    excess = float(above.mean()) - critical
    return float(stats.norm.cdf(excess / error)) if error else float(excess > 0)


def judge(
    *, forgotten: Sequence[tuple[Losses, Losses]], present: tuple[Losses, Losses], test: int, seed: int
) -> Verdict:
    """Judge one artefact by its losses on canaries.

    Args:
        forgotten: for each group planted in an earlier training run but not in this one, its losses and those of the
            never planted canaries drawn with it. With r groups, the overall p-value is r times the smallest.
        present: the losses of the group planted in this training run, and of the never planted canaries drawn with it.
        test: number of this test among all tests of this pipeline, counted from 1; see `level`.
        seed: seed that breaks ties, drawn before the losses were known.

    Raises:
        DomainError: for NaN, or a group size that no canary group has.
    """
    rng = np.random.default_rng(seed)
    alarm_level = level(test)
    p_values = [rank_test(*pair, rng) for pair in forgotten]
    p_value = min(1.0, len(p_values) * min(p_values)) if p_values else None
    estimated = power(*present, alarm_level=alarm_level / max(1, len(p_values)))
    if p_value is not None and p_value < alarm_level:
        outcome = CanaryOutcome.ALARM
    elif p_value is None or estimated < MIN_POWER:
        outcome = CanaryOutcome.NO_POWER
    else:
        outcome = CanaryOutcome.CLEAN
    return Verdict(
        outcome=outcome,
        p_value=p_value,
        level=alarm_level,
        power=estimated,
        present_p_value=rank_test(*present, rng),
        planted=len(present[0]),
        never=len(present[1]),
    )
