"""The pulled string: the mu of a chain of noisy contractions whose constants change from step to step.

In step t two chains contract by c_t, are then moved at most s_t >= 0 apart, and get noise of variance nu_t^2 > 0. What
a later part of the noise hides, an earlier part cannot hide as well, so the noise is spent where it hides most: plot
what has been let in against the noise that has been added, both as they arrive at the end, and pull a string tight
under that path. Its straight pieces each cost influence / sqrt(variance), and the costs compose. Statement and proof:
`docs/mathematics/shift.md`.

A straight piece is a `Span` of steps taken together. Neighbours are pooled while the first is the steeper one, so a
query takes as many operations as there are spans, however many steps they stand for.
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
"""Floats, and decimals of 60 digits with exponents as large as they need to be where a step expands."""

_WIDE = decimal.Context(prec=60, Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN)


@dataclass(frozen=True, slots=True)
class Span(Generic[Number]):
    """Steps in a row taken together: from one point, `influence` W apart under noise of `variance` V at their end.

    `decay`: the product of their contractions, which is what they leave of a distance there was before.
    """

    influence: Number
    variance: Number
    decay: Number

    def then(self, later: "Span[Number]") -> "Span[Number]":
        """Both, one after the other."""
        return Span(
            faded(later.decay, self.influence) + later.influence,
            later.decay * later.decay * self.variance + later.variance,
            self.decay * later.decay,
        )

    def steeper(self, later: "Span[Number]") -> bool:
        """Return True if the path turns down between the two: then no string under it can have a bend there.

        Where rounding decides, it makes no difference: both answers give the same mu up to the square of the rounding.
        """
        if not self.variance:
            return self.influence > 0
        return self.influence * (later.variance / self.variance) > later.influence * later.decay

    def times(self, count: int) -> "Span[Number]":
        """`count` >= 1 of it, one after the other."""
        if count == 1:
            return self
        return Span(
            self.influence * _powers(self.decay, count),
            self.variance * _powers(self.decay * self.decay, count),
            self.decay**count,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """`steps` >= 1 alike: each contracts by `contraction` c >= 0 and adds noise of `variance` nu^2 > 0.

    `push` s >= 0: how far the first of them moves the chains apart, and every `every`-th after it; the others do not.
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
    """The least mu that the theorem gives for these steps, taken one stretch after the other.

    Symbols: `apart` >= 0: the largest distance of the two starts.

    Assumptions: those of `docs/mathematics/shift.md`; nothing is required of how s, c and nu vary.

    Formal Guarantee: the last iterates are mu-GDP in both directions, and no smaller number follows from shifts.

    Edge cases: infinite if the starts differ and there is no step; 0 if nothing differs. Rounded up, by less than the
    share 1e-14 per stretch.

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
    """The stretch, with c <= 1, in two spans at most: all its full periods, since each is steeper than the next."""
    c, push, variance = stretch.contraction, stretch.push, stretch.variance
    every = stretch.every if push else stretch.steps
    periods, rest = divmod(stretch.steps, every)
    if periods:
        yield periodic(periods, every=every, contraction=c, variance=variance, push=push)
    if rest:
        yield periodic(1, every=rest, contraction=c, variance=variance, push=push)


def periodic(count: int, *, every: int = 1, contraction: float, variance: float, push: float) -> Span[float]:
    """`count` >= 1 times `every` >= 1 steps with c <= 1, the first of each moving the chains apart, as one span.

    W = s c^(k - 1) (1 - c^(kn))/(1 - c^k), V = nu^2 (1 - c^(2kn))/(1 - c^2), without cancellation.
    """
    rate, steps = math.log(contraction) if contraction else -math.inf, count * every
    return Span(
        push * contraction ** (every - 1) * _sum(every * rate, count),
        variance * _sum(2 * rate, steps),
        contraction**steps,
    )


def mu_of(spans: Iterable[Span[float]]) -> float:
    """The mu of spans none of which the string bends within: no step of theirs is less steep than a later one.

    Rounded up past the rounding of what is done here and in `spans_of`.
    """
    spans, string = list(spans), _Pulled[float]()
    for span in spans:
        string.extend(span)
    return _past_rounding(math.hypot(*(_cost(piece) for piece, _ in string.pieces)), len(spans))


def restarts(spans: Iterable[Span[float]], *, apart: float) -> Iterator[float]:
    """The mu of a comparison that begins `apart` > 0 before each of `spans`, which come last first, as in `mu_of`."""
    later: list[tuple[Span[float], float]] = []  # the pulled string, last first, and what it costs from each piece on
    for count, span in enumerate(spans, start=1):
        while later and span.steeper(later[-1][0]):
            span = span.then(later.pop()[0])
        later.append((span, math.hypot(_cost(span), later[-1][1] if later else 0.0)))
        first, rest = Span(apart, 0.0, 1.0), len(later)
        while rest and first.steeper(later[rest - 1][0]):
            rest -= 1
            first = first.then(later[rest][0])
        yield _past_rounding(math.hypot(_cost(first), later[rest - 1][1] if rest else 0.0), count)


def _past_rounding(mu: float, spans: int) -> float:
    """Each of W and V carries 8 roundings of its span's closed form, and 4 more per span joined to it."""
    return mu * (1 + (16 + 6 * spans) * 2.0**-53)


def _cost(piece: Span[float]) -> float:
    """W / sqrt(V): the mu of one straight piece; infinite where something differs and there is no noise."""
    if not piece.influence:
        return 0.0
    return max(piece.influence / math.sqrt(piece.variance), math.ulp(0.0)) if piece.variance else math.inf


class _Pulled(Generic[Number]):
    """The string under the path so far, as straight pieces that get steeper.

    (span, n) stands for n such pieces in a row, each as much steeper than the last as its steps expand.
    """

    def __init__(self) -> None:
        self.pieces: list[tuple[Span[Number], int]] = []

    def extend(self, span: Span[Number], count: int = 1) -> None:
        """Pull the string tight under `count` >= 1 more spans; if there is more than one, they expand."""
        piece, left = self._pooled(span), count - 1
        while left and piece.steeper(span):
            joined = partial(self._flattened, piece, span)
            taken = bisect_left(range(1, left), True, key=joined) + 1
            piece, left = self._pooled(piece.then(span.times(taken))), left - taken
        self.pieces.append((piece, 1))
        if left:
            self.pieces.append((span, left))

    def _pooled(self, piece: Span[Number]) -> Span[Number]:
        """`piece` with all before it that it cannot be bent away from."""
        while self.pieces and self.pieces[-1][0].steeper(piece):
            last, count = self.pieces.pop()
            freed = partial(self._raised, last, piece)
            taken = bisect_left(range(1, count), True, key=freed) + 1
            piece = last.times(taken).then(piece)
            if taken < count:
                self.pieces.append((last, count - taken))
        return piece

    @staticmethod
    def _flattened(piece: Span[Number], span: Span[Number], taken: int) -> bool:
        """Return True if, with so many of what follows, `piece` is no longer steeper than the next of them."""
        return not piece.then(span.times(taken)).steeper(span)

    @staticmethod
    def _raised(last: Span[Number], piece: Span[Number], taken: int) -> bool:
        """Return True if, with so many of what was before, `piece` is at least as steep as the one before them."""
        return not last.steeper(last.times(taken).then(piece))


def faded(decay: Number, value: Number) -> Number:
    """decay * value, and never 0 where something is left."""
    left = decay * value
    return left if left or not value else type(value)(math.ulp(0.0))


def _mu_in_decimals(stretches: Iterable[Stretch], *, apart: Decimal) -> Decimal:
    """mu where steps may expand: a string need not be straight along them, but follows the path from step to step."""
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
    """Its periods and how many, then what is left of one more."""
    c, push, variance = Decimal(stretch.contraction), Decimal(stretch.push), Decimal(stretch.variance)
    every = stretch.every if push else stretch.steps
    periods, rest = divmod(stretch.steps, every)
    for count, steps in ((periods, every), (1, rest)):
        if count and steps:
            pushed = push * c ** (steps - 1) if steps > 1 else push  # decimals have no 0^0
            yield Span(pushed, variance * _powers(c * c, steps), c**steps), count


def _powers(ratio: Number, terms: int) -> Number:
    """1 + ratio + ... + ratio^(terms - 1)."""
    one = type(ratio)(1)
    return type(ratio)(terms) if ratio == one else (ratio**terms - one) / (ratio - one)


def _sum(rate: float, terms: int) -> float:
    """1 + e^rate + ... + e^(rate (terms - 1)), for rates <= 0, without cancellation."""
    return math.expm1(terms * rate) / math.expm1(rate) if rate else float(terms)
