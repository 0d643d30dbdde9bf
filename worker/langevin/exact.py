"""Normal numbers rounded to integers without rounding error, for the noise of a run's last step.

Floating-point normals fill their range unevenly, so the low bits of a sum reveal its summands (Mironov, "On
significance of the least significant bits for differential privacy", CCS 2012). Here a uniform number has as many
digits as a comparison needs, and only integers are compared (Karney, "Sampling exactly from the normal distribution",
ACM TOMS 42, 2016, Algorithm N). The result is the integer nearest to an exact normal number.
"""

from collections.abc import Callable, Iterator
from fractions import Fraction
from itertools import count

Words = Callable[[], int]
"""Source of independent uniform integers, with 0 <= word < 2^64."""

_BITS = 64
_ONE = 1 << _BITS


def rounded_normals(words: Words, spread: float, size: int) -> Iterator[int]:
    """Yield `size` independent draws from N(0, spread^2), each rounded to the nearest integer, for 0 < spread < inf.

    The time that a draw takes depends on its value (`docs/sharp-edges.md`).
    """
    exact = Fraction(spread)
    for _ in range(size):
        k, x = _half_normal(words)
        magnitude = _nearest(exact, k, x)
        yield magnitude if words() < _ONE // 2 else -magnitude


class _Uniform:
    """Uniform number in (0, 1) whose base-2^64 digits are drawn when they are first needed."""

    __slots__ = ("_digits", "_words")

    def __init__(self, words: Words, *first: int) -> None:
        self._words = words
        self._digits = list(first)

    def digit(self, place: int) -> int:
        while len(self._digits) <= place:
            self._digits.append(self._words())
        return self._digits[place]

    def __lt__(self, other: "_Uniform") -> bool:
        mine, theirs, place = self.digit(0), other.digit(0), 0
        while mine == theirs:
            place += 1
            mine, theirs = self.digit(place), other.digit(place)
        return mine < theirs


def _half_normal(words: Words) -> tuple[int, _Uniform]:
    """Return (k, x), k = 0, 1, ... and 0 < x < 1, with k + x distributed as |N(0, 1)|.

    Its density exp(-(k + x)^2 / 2) is the product of exp(-k/2), exp(-k(k-1)/2) and exp(-x(2k+x)/2).
    """
    while True:
        k = next(k for k in count() if not _true_at_root_of_e(words))
        if all(_true_at_root_of_e(words) for _ in range(k * (k - 1))):
            x = _Uniform(words)
            if all(_true_at_fraction(words, k, x) for _ in range(k + 1)):
                return k, x


def _true_at_root_of_e(words: Words) -> bool:
    """Return True with probability exp(-1/2).

    True if uniforms, from 1/2 on, fall an even number n of times before a rise: P(n >= m) = (1/2)^m / m! (von Neumann).
    """
    first = words()
    if first >= _ONE // 2:
        return True
    last, even = _Uniform(words, first), False
    while (following := _Uniform(words)) < last:
        last, even = following, not even
    return even


def _true_at_fraction(words: Words, k: int, x: _Uniform) -> bool:
    """Return True with probability exp(-p), p = x (2k + x) / (2k + 2).

    Like `_true_at_root_of_e`, but starting from x and accepting a fall with probability p / x: P(n >= m) = p^m / m!.
    """
    last, even = x, True
    while (following := _Uniform(words)) < last:
        share = _below(words, 2 * k + 2)
        if share == 2 * k + 1 or (share == 2 * k and not _Uniform(words) < x):
            break
        last, even = following, not even
    return even


def _below(words: Words, bound: int) -> int:
    """Return a uniformly distributed integer in [0, bound)."""
    usable = _ONE - _ONE % bound
    return next(word for _ in count() if (word := words()) < usable) % bound


def _nearest(spread: Fraction, k: int, x: _Uniform) -> int:
    """Return the integer nearest to spread * (k + x), drawing as many digits of x as needed."""
    digits, scale, place = k, 1, 0
    while True:
        digits, scale, place = digits * _ONE + x.digit(place), scale * _ONE, place + 1
        unit = 2 * spread.denominator * scale
        low = (2 * spread.numerator * digits + unit // 2) // unit
        # x is smaller than its known digits plus one unit in the last place.
        high = (2 * spread.numerator * (digits + 1) + unit // 2 - 1) // unit
        if low == high:
            return low
