import math
import random
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from scipy import stats

from worker.langevin.exact import (
    _below,
    _half_normal,
    _nearest,
    _true_at_fraction,
    _true_at_root_of_e,
    _Uniform,
    rounded_normals as sampled,
)
from worker.langevin.noise import SystemNoise

FALSE_ALARM = 1e-9  # probability that a statistical test below fails for a correct sampler


class Words:
    """Random words: first the given ones, then fresh ones."""

    def __init__(self, *known: int) -> None:
        self._known = list(known)
        self._rest = random.Random(1)
        self.drawn = 0

    def __call__(self) -> int:
        self.drawn += 1
        return self._known.pop(0) if self._known else self._rest.getrandbits(64)


def share_is(hits: int, trials: int, probability: float) -> bool:
    return stats.binomtest(hits, trials, probability).pvalue > FALSE_ALARM


@pytest.mark.slow
@pytest.mark.parametrize("spread", [0.3, 1.0, 7.7])
def test_integers_have_normal_weights(spread: float) -> None:
    """Each integer is drawn with the normal probability of the interval around it, according to a chi-squared test."""
    draws = np.array(list(sampled(Words(), spread, 50_000)))
    last = int(3 * spread) + 1
    edges = (np.arange(-last, last + 2) - 0.5) / spread
    weights = np.diff(np.concatenate([[0], stats.norm.cdf(edges), [1]]))
    counts = np.bincount(np.clip(draws, -last - 1, last + 1) + last + 1, minlength=2 * last + 3)
    assert stats.chisquare(counts, weights * len(draws)).pvalue > FALSE_ALARM


@pytest.mark.slow
def test_a_fine_grid_approaches_the_normal_law() -> None:
    """With 2^33 grid steps per standard deviation, 50,000 draws pass a Kolmogorov-Smirnov test against N(0,
    spread^2)."""
    spread = 2.0**33 / 1.234
    draws = np.array(list(SystemNoise().rounded_normal(50_000, spread)))
    assert stats.kstest(draws, "norm", args=(0, spread)).pvalue > FALSE_ALARM
    assert (draws == np.rint(draws)).all()


@pytest.mark.slow
def test_building_blocks_have_their_probabilities() -> None:
    """In 50,000 trials each, the sampler's building blocks return True with the probabilities exp(-1/2) and
    exp(-x(2k+x)/(2k+2)), and the integers that it draws below a limit are uniform."""
    words, trials = Words(), 50_000
    assert share_is(sum(_true_at_root_of_e(words) for _ in range(trials)), trials, math.exp(-0.5))
    for k, x in ((0, 0.8), (1, 0.25), (3, 0.9)):
        fixed = [_true_at_fraction(words, k, _Uniform(words, int(x * 2**64))) for _ in range(trials)]
        assert share_is(sum(fixed), trials, math.exp(-x * (2 * k + x) / (2 * k + 2)))
    assert stats.chisquare(np.bincount([_below(words, 6) for _ in range(trials)], minlength=6)).pvalue > FALSE_ALARM


@pytest.mark.slow
def test_whole_part_has_its_probability() -> None:
    """The whole part of a draw equals k with the probability that |N(0, 1)| lies between k and k + 1."""
    trials = 50_000
    wholes = np.bincount([min(_half_normal(words)[0], 4) for words in [Words()] for _ in range(trials)], minlength=5)
    weights = [2 * (stats.norm.sf(k) - (stats.norm.sf(k + 1) if k < 4 else 0)) for k in range(5)]
    assert stats.chisquare(wholes, np.array(weights) * trials).pvalue > FALSE_ALARM


def test_rounding_is_exact_at_any_size() -> None:
    """The result is the integer nearest to spread * (k + x) in exact arithmetic, including ties and near ties."""
    generator = random.Random(2)
    with mpmath.workdps(80):
        for spread in (0.3, 1.0, 3.0, 2.0**33 / 1.7, 2.0**49 / 3):
            for _ in range(200):
                digits = [generator.getrandbits(64) for _ in range(4)]
                k = generator.randrange(5)
                x = sum(mpmath.mpf(digit) / mpmath.mpf(2) ** (64 * (place + 1)) for place, digit in enumerate(digits))
                expected = int(mpmath.floor(mpmath.mpf(spread) * (k + x) + mpmath.mpf(1) / 2))
                assert _nearest(Fraction(spread), k, _Uniform(Words(), *digits)) == expected


def test_digits_are_drawn_only_as_needed() -> None:
    """More random bits are drawn only if the first 64 do not decide between two integers."""
    words = Words()
    assert _nearest(Fraction(1), 0, _Uniform(words, 2**63 - 1)) == 0
    assert words.drawn == 0
    assert _nearest(Fraction(3), 0, _Uniform(words, (2**64 - 1) // 2, 0)) == 1
    assert _nearest(Fraction(2**66, 3), 0, _Uniform(words, 5)) in (7, 8)  # anything from 6.67 to 8
    assert words.drawn == 1
    low, high = _Uniform(words, 7, 1), _Uniform(words, 7, 2)
    assert low < high
    assert not high < low


def test_the_keystream_determines_the_integers() -> None:
    """The sampler's integers depend only on the keystream."""

    def words() -> "tuple[int, ...]":
        stream = Cipher(algorithms.AES(bytes(32)), modes.CTR(bytes(16))).encryptor().update(bytes(8 * 4096))
        return tuple(int.from_bytes(stream[i : i + 8], "little") for i in range(0, len(stream), 8))

    source = SystemNoise()
    source._keystream = Cipher(algorithms.AES(bytes(32)), modes.CTR(bytes(16))).encryptor()
    expected = list(sampled(iter(words()).__next__, 1000.5, 20))
    assert source.rounded_normal(20, 1000.5).tolist() == expected


@pytest.mark.parametrize(("size", "spread"), [(0, 1.0), (1, 0.0), (1, -1.0), (1, math.nan), (1, 2.0**50)])
def test_unusable_requests_are_refused(size: int, spread: float) -> None:
    """Requests for zero numbers, or for a spread whose results would not fit in float64, are refused."""
    with pytest.raises(ValueError, match="Expected"):
        SystemNoise().rounded_normal(size, spread)
