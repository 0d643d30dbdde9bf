"""Taut string: the mu of a chain of noisy contractions whose constants change from step to step.

In step t, two chains contract by c_t, are pushed apart by at most s_t >= 0, and receive noise of variance nu_t^2 > 0.
Early noise cannot hide what arrives later, so the noise is spent where it hides most: plot the influence admitted so
far against the noise added so far, both as measured at the end, and pull a string taut under this path. Each straight
piece costs influence / sqrt(variance), and the costs compose as a root sum of squares. Statement and proof:
`docs/mathematics/shift.md`.

A straight piece is a `Span` of merged steps. Neighbours are merged while the first is steeper, so the number of
operations grows with the number of spans, not with the number of steps in them.
"""

import decimal
import math
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import Generic, TypeVar

from lethe.proof.errors import require_count, require_nonnegative, require_positive

Number = TypeVar("Number", float, Decimal)
"""Floats, or 60-digit decimals with the wide exponent range needed for expanding steps."""

_WIDE = decimal.Context(prec=60, Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN)


@dataclass(frozen=True, slots=True)
class Span(Generic[Number]):
    """Merged steps that move chains from a common start `influence` W apart, under noise of `variance` V.

    `decay` is the product of the contractions: the factor by which the steps shrink an existing distance.
    """

    influence: Number
    variance: Number
    decay: Number

    def then(self, later: "Span[Number]") -> "Span[Number]":
        """Return the merger of this span and the span `later` that follows it."""
        return Span(
            faded(later.decay, self.influence) + later.influence,
            later.decay * later.decay * self.variance + later.variance,
            self.decay * later.decay,
        )

    def steeper(self, later: "Span[Number]") -> bool:
        """Return True if the path bends down between the two spans, so that no taut string under it can bend there.

        If rounding decides the result, either result gives the same mu up to the square of the rounding error.
        """
        if not self.variance:
            return self.influence > 0
        return self.influence * (later.variance / self.variance) > later.influence * later.decay

    def times(self, count: int) -> "Span[Number]":
        """Return `count` >= 1 repetitions of this span, merged."""
        if count == 1:
            return self
        return Span(
            self.influence * _powers(self.decay, count),
            self.variance * _powers(self.decay * self.decay, count),
            self.decay**count,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """`steps` >= 1 equal steps, each with `contraction` c >= 0 and noise of `variance` nu^2 > 0.

    The first step and every `every`-th step after it push the chains apart by `push` s >= 0; the other steps do not.
    """

    steps: int
    contraction: float
    variance: float
    push: float = 0.0
    every: int = 1

    def __post_init__(self) -> None:
        require_count(1, steps=self.steps, every=self.every)
        require_nonnegative(contraction=self.contraction, push=self.push)
        require_positive(variance=self.variance)


def mu(stretches: Iterable[Stretch], *, apart: float = 0.0) -> float:
    """Return the theorem's minimum mu for these stretches, in order, if the chains start at most `apart` apart.

    The last iterates are mu-GDP in both directions, and no choice of shifts gives a smaller mu. The result is infinite
    if the starts differ and there is no step, and 0 if nothing differs. It is rounded up, by a relative error of less
    than 1e-14 per stretch.

    Assumptions: those of `docs/mathematics/shift.md`; s, c and nu may vary arbitrarily.

    >>> learned, without = Stretch(steps=100, contraction=0.95, variance=0.0018, push=0.0002), Stretch(
    ...     steps=10, contraction=0.95, variance=0.0018)
    >>> round(mu([learned, without]), 13)
    0.0175220910708
    >>> round(mu([Stretch(steps=10**7, contraction=0.95, variance=0.0018), learned, without]), 13)
    0.0175220910708
    """
    require_nonnegative(apart=apart)
    stretches = list(stretches)
    if all(stretch.contraction <= 1 for stretch in stretches):
        start = [Span(apart, 0.0, 1.0)] if apart else []
        return mu_of([*start, *(span for stretch in stretches for span in spans_of(stretch))])
    with decimal.localcontext(_WIDE):
        exact = _mu_in_decimals(stretches, apart=Decimal(apart))
        rounded = float(exact)
        return rounded if rounded >= exact else math.nextafter(rounded, math.inf)


def spans_of(stretch: Stretch) -> Iterator[Span[float]]:
    """Yield at most two spans for a stretch with c <= 1: its full periods (of decreasing slope), then the rest."""
    c, push, variance = stretch.contraction, stretch.push, stretch.variance
    every = stretch.every if push else stretch.steps
    periods, rest = divmod(stretch.steps, every)
    if periods:
        yield periodic(periods, every=every, contraction=c, variance=variance, push=push)
    if rest:
        yield periodic(1, every=rest, contraction=c, variance=variance, push=push)


def periodic(count: int, *, every: int = 1, contraction: float, variance: float, push: float) -> Span[float]:
    """Return `count` n >= 1 periods as one span: `every` k >= 1 steps each, with c <= 1 and the push in the first step.

    W = s c^(k - 1) (1 - c^(kn))/(1 - c^k), V = nu^2 (1 - c^(2kn))/(1 - c^2), without cancellation.
    """
    rate, steps = math.log(contraction) if contraction else -math.inf, count * every
    return Span(
        push * contraction ** (every - 1) * _sum(every * rate, count),
        variance * _sum(2 * rate, steps),
        contraction**steps,
    )


def mu_of(spans: Iterable[Span[float]]) -> float:
    """Return the mu of spans inside which the string does not bend: no step is less steep than a later step.

    The result is rounded up by more than the rounding error of this computation and of `spans_of`.
    """
    spans, string = list(spans), _Pulled[float]()
    for span in spans:
        string.extend(span)
    return _past_rounding(math.hypot(*(_cost(piece) for piece, _ in string.pieces)), len(spans))


def _past_rounding(mu: float, spans: int) -> float:
    """Round `mu` up. W and V each have 8 rounding errors from their span's closed form, and 4 more per merged span."""
    return mu * (1 + (16 + 6 * spans) * 2.0**-53)


def _cost(piece: Span[float]) -> float:
    """Return the mu of one straight piece, W / sqrt(V); infinite if there is influence but no noise."""
    if not piece.influence:
        return 0.0
    return max(piece.influence / math.sqrt(piece.variance), math.ulp(0.0)) if piece.variance else math.inf


class _Pulled(Generic[Number]):
    """Taut string under the path seen so far, as straight pieces of increasing slope.

    A pair (span, n) stands for n consecutive pieces, each steeper than the one before because the steps expand.
    """

    def __init__(self) -> None:
        self.pieces: list[tuple[Span[Number], int]] = []

    def extend(self, span: Span[Number], count: int = 1) -> None:
        """Pull the string taut under `count` >= 1 further spans. If `count` > 1, the steps must be expanding."""
        piece, remaining = self._pooled(span), count - 1
        while remaining and piece.steeper(span):
            joined = partial(self._flattened, piece, span)
            joins = bisect_left(range(1, remaining), True, key=joined) + 1
            piece, remaining = self._pooled(piece.then(span.times(joins))), remaining - joins
        self.pieces.append((piece, 1))
        if remaining:
            self.pieces.append((span, remaining))

    def _pooled(self, piece: Span[Number]) -> Span[Number]:
        """Merge `piece` with all preceding pieces at whose ends the string cannot bend, and return the merged piece."""
        while self.pieces and self.pieces[-1][0].steeper(piece):
            last, count = self.pieces.pop()
            freed = partial(self._raised, last, piece)
            joins = bisect_left(range(1, count), True, key=freed) + 1
            piece = last.times(joins).then(piece)
            if joins < count:
                self.pieces.append((last, count - joins))
        return piece

    @staticmethod
    def _flattened(piece: Span[Number], span: Span[Number], repeats: int) -> bool:
        """Return True if `piece`, merged with `repeats` copies of `span` after it, is no longer steeper than `span`."""
        return not piece.then(span.times(repeats)).steeper(span)

    @staticmethod
    def _raised(last: Span[Number], piece: Span[Number], repeats: int) -> bool:
        """Return True if `piece`, merged with `repeats` copies of `last` before it, is at least as steep as `last`."""
        return not last.steeper(last.times(repeats).then(piece))


def faded(decay: Number, value: Number) -> Number:
    """Return decay * value, rounded up to the smallest positive float if `value` is not 0."""
    product = decay * value
    return product if product or not value else type(value)(math.ulp(0.0))


def _mu_in_decimals(stretches: Iterable[Stretch], *, apart: Decimal) -> Decimal:
    """Return mu for steps that may expand, in which case the string can bend at every step of the path."""
    string = _Pulled[Decimal]()
    if apart:
        string.extend(Span(apart, Decimal(0), Decimal(1)))
    for stretch in stretches:
        for period, count in _in_decimals(stretch):
            if stretch.contraction > 1:
                string.extend(period, count)
            else:
                string.extend(period.times(count))
    if any(piece.influence and not piece.variance for piece, _ in string.pieces):
        return Decimal("inf")
    squares = (count * piece.influence**2 / piece.variance for piece, count in string.pieces)
    return sum(squares, Decimal(0)).sqrt()


def _in_decimals(stretch: Stretch) -> Iterator[tuple[Span[Decimal], int]]:
    """Yield a stretch's period with its number of repetitions, then the remaining steps with a count of 1."""
    c, push, variance = Decimal(stretch.contraction), Decimal(stretch.push), Decimal(stretch.variance)
    every = stretch.every if push else stretch.steps
    periods, rest = divmod(stretch.steps, every)
    for count, steps in ((periods, every), (1, rest)):
        if count and steps:
            # Decimal does not define 0^0.
            pushed = push * c ** (steps - 1) if steps > 1 else push
            yield Span(pushed, variance * _powers(c * c, steps), c**steps), count


def _powers(ratio: Number, terms: int) -> Number:
    """Return 1 + ratio + ... + ratio^(terms - 1)."""
    unity = type(ratio)(1)
    return type(ratio)(terms) if ratio == unity else (ratio**terms - unity) / (ratio - unity)


def _sum(rate: float, terms: int) -> float:
    """Return 1 + e^rate + ... + e^(rate (terms - 1)) without cancellation, for rate <= 0."""
    return math.expm1(terms * rate) / math.expm1(rate) if rate else float(terms)
