"""Lookback from the end of a chain: any record's maximum influence since a step, against the noise added since then.

In step t two chains contract by c_t, are moved at most s_t apart by a record whose slot is read in that step, and
receive noise of variance nu_t^2. Influence and noise are measured at the end of the chain, after all later
contractions. Let G(v) be the maximum influence that one record, at any position, had during the steps that added the
last v of the noise. Then the last iterates are mu-GDP with

    mu^2 = integral of H'(v)^2 dv,        H the least concave function >= G with H(0) = 0

This is the taut string of `taut_string.py` read from its end, at the worst position in the order of the batches. The
influences of several records add, and so do their G. Statement and proof: `docs/mathematics/shift.md`.
"""

import math
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from lethe.proof.mechanism import Adjacency, Mechanism

Array = npt.NDArray[np.floating]

_NEGLIGIBLE = 2.0**-56
"""Contraction below which an upper bound on the earlier influence is good enough."""
_DISTANT = 2.0**-20
"""Contraction below which earlier noise is ignored. Its square bounds the ignored share of all noise."""
_EXPLICIT = 64
"""Maximum number of equal steps processed one by one, which is no slower than a closed form."""
_TOGETHER = 64
"""Number of short runs processed together in array operations."""
_RANGES = 1024
"""Maximum number of ranges of positions, each with its own lookback; with fewer batches, the bound is exact."""
_ROUNDED = 2.0**-40
"""Relative margin, larger than the rounding error: a few roundings per run and per step of a cool-down."""


@dataclass(frozen=True, slots=True)
class Lookback:
    """The module's concave function H, given by its corners, nearest the end first; empty if nothing differs.

    `noise` holds v >= 0, increasing, and `influence` holds H(v) > 0, increasing with decreasing slope. H starts at the
    origin and is constant after its last corner."""

    noise: tuple[float, ...] = ()
    influence: tuple[float, ...] = ()

    @property
    def total(self) -> float:
        """Total influence, regardless of the noise."""
        return self.influence[-1] if self.influence else 0.0

    @property
    def mu(self) -> float:
        """The mu of the GDP guarantee, rounded up; infinite if no noise was added after some difference."""
        mu = previous = noise = 0.0
        for v, g in zip(self.noise, self.influence, strict=True):
            if v <= noise:
                return math.inf
            mu = math.hypot(mu, max((g - previous) / math.sqrt(v - noise), math.ulp(0.0)))
            previous, noise = g, v
        return mu * (1 + _ROUNDED)

    def followed(self, *, decay: float, variance: float) -> "Lookback":
        """Return the lookback after steps that add no difference, contract by `decay` and add noise of `variance`."""
        corners: list[tuple[float, float]] = []
        for v, g in zip(self.noise, self.influence, strict=True):
            _extend(corners, decay * decay * v + variance, _faded(decay, g))
        return _of(corners)

    def times(self, records: int) -> "Lookback":
        """Return the lookback of `records` records, each at the worst position."""
        return Lookback(self.noise, tuple(records * g for g in self.influence)) if records else NOTHING

    def plus(self, other: "Lookback") -> "Lookback":
        """Return the lookback of these edits and those of `other` together."""
        if not self.noise or not other.noise:
            return self if self.noise else other
        corners: list[tuple[float, float]] = []
        for v in sorted({*self.noise, *other.noise}):
            _extend(corners, v, self._at(v) + other._at(v))
        return _of(corners)

    def _at(self, v: float) -> float:
        index = bisect_left(self.noise, v)
        if index == len(self.noise):
            return self.influence[-1]
        right, above = self.noise[index], self.influence[index]
        left, below = (self.noise[index - 1], self.influence[index - 1]) if index else (0.0, 0.0)
        if v == right:
            return above
        return min(above, (below + (above - below) * ((v - left) / (right - left))) * (1 + 2.0**-50))


NOTHING = Lookback()


def apart(distance: float) -> Lookback:
    """Return the lookback of two starting points at most `distance` >= 0 apart, before any step."""
    return Lookback((0.0,), (distance,)) if distance else NOTHING


Runs = tuple[tuple[Mechanism, int], ...]
"""Pairs (mechanism, steps >= 1) in chronological order. All runs read the same batches cyclically."""


def present(runs: Runs) -> Lookback:
    """Return the lookback of one record (`zero_out`) present in all of `runs`, regardless of any other runs."""
    if not runs:
        return NOTHING
    last = runs[-1][0]
    if all(mechanism is last for mechanism, _ in runs):
        return _present(last, tuple([steps for _, steps in runs]))
    return _walked(runs, ranges=1).lookbacks()[0]


# Cached because replaying a history repeats the query after each run.
@lru_cache(maxsize=4096)
def _present(mechanism: Mechanism, steps: tuple[int, ...]) -> Lookback:
    return _walked(tuple([(mechanism, count) for count in steps]), ranges=1).lookbacks()[0]


def worst_mu(mechanism: Mechanism, steps: int) -> float:
    """Return the mu of one record (`zero_out`) present in one run of `steps` >= 1, considering that run alone.

    Each range of neighbouring positions has its own lookback, which is tighter than one joint lookback.
    """
    return max(worst.mu for worst in _walked(((mechanism, steps),), ranges=_RANGES).lookbacks())


def _walked(runs: Runs, *, ranges: int) -> "_Walk":
    walk = _Walk(runs[-1][0].num_batches, ranges)
    for index, (mechanism, steps) in zip(range(len(runs) - 1, -1, -1), reversed(runs), strict=True):
        walk.go_on(mechanism, steps)
        if walk.decay <= _NEGLIGIBLE and index:
            walk.end_with(max(map(_farthest, _different(runs[:index]))))
            break
    return walk


def _different(runs: Runs) -> list[Mechanism]:
    """Return the mechanism of each maximal sequence of runs with the same mechanism."""
    mechanisms: list[Mechanism] = []
    for mechanism, _ in runs:
        if not mechanisms or mechanism is not mechanisms[-1]:
            mechanisms.append(mechanism)
    return mechanisms


@lru_cache(maxsize=256)
def _farthest(mechanism: Mechanism) -> float:
    """Return the maximum distance by which a present record can have moved an iterate after any number of steps.

    This is s / (1 - c), doubled to allow for rounding of the smallest c, and at most the diameter of the ball. A step
    with a fraction of the step size moves by that fraction of s and contracts by at least that fraction of 1 - c,
    because c is convex in the step size. A distance of at most s / (1 - c) therefore stays within this bound.
    """
    gap = 1 - mechanism.contraction
    wide = 2 * mechanism.radius
    return min(wide, 2 * _sensitivity(mechanism) / gap) if gap >= 2.0**-39 else wide


@lru_cache(maxsize=4096)
def alike(mechanism: Mechanism, steps: int) -> tuple[float, float]:
    """Return the decay and the noise variance of a run of `steps` >= 0."""
    decay, variance = 1.0, 0.0
    for equal, fraction in _from_the_end(mechanism, steps):
        c, rate, nu2 = _constants(mechanism, fraction)
        variance += decay * decay * nu2 * _geometric(2 * rate, equal)
        decay *= c**equal
    return decay, variance


class _Walk:
    """Walk backwards through all runs, from the end of the last one."""

    def __init__(self, num_batches: int, ranges: int) -> None:
        self._batches = num_batches
        # Range of each position, counted from the end.
        self._ranges = np.arange(num_batches) * min(ranges, num_batches) // num_batches
        # Influence of each position from its next read on, ordered by the step of that read.
        self._later: Array = np.zeros(num_batches)
        self.decay, self._decay, self._variance, self._steps = 1.0, 1.0, 0.0, 0
        # Short runs not yet processed: `decay` includes them, the other fields do not.
        self._waiting: list[_Steps] = []
        self._most = np.zeros(int(self._ranges[-1]) + 1)  # (ranges,)
        self._corners: list[list[tuple[float, float]]] = [[] for _ in self._most]
        # Noise up to which corners are recorded.
        self._horizon: float | None = None

    def go_on(self, mechanism: Mechanism, steps: int) -> None:
        """Process the run that precedes those already processed."""
        if self._horizon is None and self.decay <= _DISTANT:
            self._follow()
            self._horizon = self._variance
        if (short := _short(mechanism, steps)) is not None:
            self._waiting.append(short)
            self.decay *= short.decay
            if len(self._waiting) == _TOGETHER:
                self._follow()
            return
        self._follow()
        steady, passes = mechanism.steady(steps), _whole_passes(mechanism, steps)
        if cooling := mechanism.cooling(steps):
            self._one_by_one(_cooling(mechanism, cooling))
        self._one_by_one(_steady(mechanism, self._batches))
        self._passes(mechanism, passes)
        if rest := steady - (1 + passes) * self._batches:
            self._one_by_one(_steady(mechanism, rest))
        self.decay = self._decay

    def end_with(self, distance: float) -> None:
        """End the walk by adding `distance`, an upper bound on every earlier difference."""
        self._follow()
        self._most += _faded(self.decay, distance)

    def lookbacks(self) -> list[Lookback]:
        """Return the lookback of the worst position in each range."""
        self._follow()
        edge = self._variance if self._horizon is None else self._horizon
        for corners, most in zip(self._corners, self._most, strict=True):
            _extend(corners, edge, float(most))
        return [_of(corners) for corners in self._corners]

    def _follow(self) -> None:
        """Process the pending short runs."""
        if self._waiting:
            self._one_by_one(_joined(self._waiting))
            self._waiting, self.decay = [], self._decay

    def _one_by_one(self, steps: "_Steps") -> None:
        batches, num_steps = self._batches, len(steps.moved)
        padded = np.zeros(-(-num_steps // batches) * batches)
        padded[:num_steps] = self._decay * steps.moved
        since = (np.cumsum(padded.reshape(-1, batches), axis=0) + self._later).reshape(-1)[:num_steps]
        self._later = np.concatenate((self._later, since))[-batches:]
        noise = self._variance + self._decay**2 * steps.noise
        within = self._ranges[(self._steps + np.arange(num_steps)) % batches]
        by_range = np.argsort(within, kind="stable")
        starts = np.searchsorted(within[by_range], np.arange(1, len(self._corners)))
        for number, (corners, indices) in enumerate(zip(self._corners, np.split(by_range, starts), strict=True)):
            rising = np.maximum.accumulate(np.concatenate((self._most[number : number + 1], since[indices])))
            self._most[number] = rising[-1]
            if self._horizon is None:
                for index in indices[rising[1:] > rising[:-1]]:
                    _extend(corners, float(noise[index]), float(since[index]))
        self._variance = float(noise[-1])
        self._decay *= steps.decay
        self._steps += num_steps

    def _passes(self, mechanism: Mechanism, count: int) -> None:
        """Process whole passes at the full step size. Each position has corners only at the first and last of these
        passes: going backwards, each read adds more influence relative to its noise than the read after it."""
        batches, (c, rate, nu2) = self._batches, _constants(mechanism, 1.0)
        moved = self._decay * _sensitivity(mechanism) * c ** np.arange(batches)
        self._later = self._later + moved * _geometric(batches * rate, count)
        places = self._ranges[(self._steps + np.arange(batches)) % batches]
        np.maximum.at(self._most, places, self._later)
        self._variance += self._decay**2 * nu2 * _geometric(2 * rate, count * batches)
        self._decay *= c ** (count * batches)


@dataclass(frozen=True, slots=True)
class _Steps:
    """Steps in reverse order, measured at the last step: how far a record read in each step has `moved` the iterate,
    the `noise` added since that step began, and the steps' total contraction `decay`."""

    moved: Array
    noise: Array
    decay: float


def _joined(runs: Sequence[_Steps]) -> _Steps:
    """Concatenate the steps of several runs, given in reverse order."""
    if len(runs) == 1:
        return runs[0]
    decays = np.concatenate(([1.0], np.cumprod([run.decay for run in runs])))
    variances = np.concatenate(([0.0], np.cumsum(decays[:-1] ** 2 * [run.noise[-1] for run in runs])))
    lengths = [len(run.moved) for run in runs]
    decay, variance = np.repeat(decays[:-1], lengths), np.repeat(variances[:-1], lengths)
    moved, noise = (np.concatenate([getattr(run, part) for run in runs]) for part in ("moved", "noise"))
    return _Steps(moved=decay * moved, noise=variance + decay**2 * noise, decay=float(decays[-1]))


def _whole_passes(mechanism: Mechanism, steps: int) -> int:
    """Return the number of whole passes to process in closed form; <= 0 if single steps are cheaper."""
    return (mechanism.steady(steps) - max(_EXPLICIT, 3 * mechanism.num_batches)) // mechanism.num_batches


@lru_cache(maxsize=1024)
def _short(mechanism: Mechanism, steps: int) -> _Steps | None:
    """Return the steps of a run, or None if it has whole passes to process in closed form."""
    if _whole_passes(mechanism, steps) > 0:
        return None
    cooling, steady = mechanism.cooling(steps), mechanism.steady(steps)
    parts = [_cooling(mechanism, cooling)] if cooling else []
    return _joined([*parts, _steady(mechanism, steady)] if steady else parts)


@lru_cache(maxsize=256)
def _cooling(mechanism: Mechanism, steps: int) -> _Steps:
    """Return a run's last steps, which form its cool-down."""
    fractions = np.arange(1.0, steps + 1) / mechanism.cool_down
    decays = np.concatenate(([1.0], np.cumprod(_contractions(mechanism, fractions))))
    return _Steps(
        moved=_sensitivity(mechanism) * fractions * decays[:-1],
        noise=np.cumsum(mechanism.step_variance * fractions * decays[:-1] ** 2),
        decay=float(decays[-1]),
    )


@lru_cache(maxsize=256)
def _steady(mechanism: Mechanism, steps: int) -> _Steps:
    """Return a run's first steps, which use the full step size."""
    (c, rate, nu2), ages = _constants(mechanism, 1.0), np.arange(steps)
    return _Steps(
        moved=_sensitivity(mechanism) * c**ages,
        noise=nu2 * np.expm1(2 * rate * (ages + 1)) / math.expm1(2 * rate),
        decay=c**steps,
    )


def _sensitivity(mechanism: Mechanism) -> float:
    return mechanism.sensitivity(Adjacency.ZERO_OUT)


def _from_the_end(mechanism: Mechanism, steps: int) -> Iterator[tuple[int, float]]:
    for remaining in range(1, mechanism.cooling(steps) + 1):
        yield 1, remaining / mechanism.cool_down
    if mechanism.steady(steps):
        yield mechanism.steady(steps), 1.0


def _constants(mechanism: Mechanism, fraction: float) -> tuple[float, float, float]:
    """Return c, log c and nu^2 of a step that uses this fraction of the step size."""
    c = float(_contractions(mechanism, np.array([fraction]))[0])
    return c, math.log(c) if c else -math.inf, mechanism.step_variance * fraction


def _contractions(mechanism: Mechanism, fractions: Array) -> Array:
    sizes = mechanism.step_size * fractions
    slow, fast = np.abs(1 - sizes * mechanism.strong_convexity), np.abs(1 - sizes * mechanism.smoothness)
    return np.asarray(np.maximum(slow, fast) + 2.0**-50)


def _geometric(rate: float, terms: int) -> float:
    """Return 1 + e^rate + ... + e^(rate (terms - 1)) without cancellation, for rate < 0."""
    return math.expm1(terms * rate) / math.expm1(rate)


def _faded(decay: float, value: float) -> float:
    """Return decay * value, rounded up to the smallest positive float if `value` is not 0."""
    return decay * value or (math.ulp(0.0) if value else 0.0)


def _extend(corners: list[tuple[float, float]], v: float, g: float) -> None:
    """Append a corner that is no nearer than the existing corners, and remove corners below the line to it."""
    if corners and g <= corners[-1][1]:
        return
    while corners:
        (w, h), (u, k) = corners[-1], corners[-2] if len(corners) > 1 else (0.0, 0.0)
        # Slopes are compared by cross-multiplication, because the first corner may lie at v = 0.
        if (h - k) * (v - w) > (g - h) * (w - u):
            break
        corners.pop()
    corners.append((v, g))


def _of(corners: Iterable[tuple[float, float]]) -> Lookback:
    corners = tuple(corners)
    return Lookback(tuple(v for v, _ in corners), tuple(g for _, g in corners))
