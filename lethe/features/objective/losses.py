"""Laws of privacy losses on a grid: a mechanism's dominating pairs, built from a bound on its curve and convolved.

A pair (P, Q) is determined, for every composition, by H(alpha) = sup_O P(O) - alpha Q(O), a convex function of alpha >=
0 with H(0) = 1 (Zhu, Dong, Wang, AISTATS 2022, Theorem 10, adaptive composition included). A bound h on a grid of
alphas bounds H by the largest convex function through or below its points, which is piecewise linear. That function is
the curve of a pair whose losses lie on the grid: the loss log alpha_i has under P the probability alpha_i times the
change of slope at alpha_i (Doroshenko et al., PoPETs 2022).

Convolution adds products of nonnegative numbers, so rounding errors are relative. Differences of slopes have absolute
errors, which `SLACK` covers for each version.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from lethe.proof import conversion, errors, rounding

SLACK = 1e-13
"""Absolute amount added to delta for each convolved version."""
_RELATIVE = 1e-8
"""Relative margin added to every bound and mass, larger than all their relative rounding errors together."""
_CELLS = 1500
"""Grid points on each side of 0."""
_MAX_CELLS = 6144
_TAIL = 1e-19
"""Mass beyond the grid, which is treated as an infinite loss."""

Floats: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class PrivacyLoss:
    """Law of the privacy loss under P: `masses[i]` at the loss (first + i) * width, and `infinite` at infinity.

    Masses and losses are all rounded up, so that `delta` bounds E(1 - e^(epsilon - loss))_+ from above.
    """

    width: float
    first: int
    masses: Floats  # (k,)
    infinite: float

    def delta(self, epsilon: float) -> float:
        """Return an upper bound on delta at `epsilon`, in [0, 1]."""
        losses = self.width * (self.first + np.arange(len(self.masses)))
        gains = -np.expm1(np.minimum(epsilon - losses, 0.0))
        return min(1.0, self.infinite + float(self.masses @ gains) * (1 + _RELATIVE))

    def plus(self, other: "PrivacyLoss") -> "PrivacyLoss":
        """Return the law of the sum of two independent losses."""
        fine, coarse = (self, other) if self.width <= other.width else (other, self)
        fine = fine.on(coarse.width)
        masses = np.convolve(fine.masses, coarse.masses) * (1 + 1e-12)
        infinite = rounding.up(self.infinite + other.infinite)
        return PrivacyLoss(coarse.width, fine.first + coarse.first, masses, infinite).trimmed()

    def times(self, versions: int) -> "PrivacyLoss":
        """Return the law of the sum of `versions` >= 0 independent losses."""
        power, total = self, None
        while versions:
            if versions & 1:
                total = total.plus(power) if total else power
            versions >>= 1
            if versions:
                power = power.plus(power)
        return total or PrivacyLoss(self.width, 0, np.ones(1), 0.0)

    def on(self, width: float) -> "PrivacyLoss":
        """Return a law that dominates this one, on multiples of `width`, which is at least the current width.

        The mass of a loss between two points is divided between them such that its mass under Q stays the same. This
        undoes a merger of two outcomes and can therefore only raise the curve.
        """
        if width == self.width:
            return self
        losses = self.width * (self.first + np.arange(len(self.masses)))
        below = np.floor(losses / width).astype(np.int64)
        share = np.clip(
            np.expm1(losses - below * width) * np.exp(width - losses + below * width) / math.expm1(width), 0.0, 1.0
        )
        share = np.minimum(share * (1 + _RELATIVE) + 1e-13, 1.0)
        first = int(below[0])
        masses = np.zeros(int(below[-1]) - first + 2)
        np.add.at(masses, below - first, self.masses * (1 - share))
        np.add.at(masses, below - first + 1, self.masses * share)
        return PrivacyLoss(width, first, masses * (1 + 1e-12), self.infinite)

    def trimmed(self) -> "PrivacyLoss":
        """Return a dominating law with its negligible tails moved up, on a coarser grid if it exceeds `_MAX_CELLS`."""
        low = int(np.searchsorted(np.cumsum(self.masses), _TAIL))
        high = len(self.masses) - int(np.searchsorted(np.cumsum(self.masses[::-1]), _TAIL))
        masses = self.masses[low:high].copy()
        masses[0] += self.masses[:low].sum()
        infinite = rounding.up(self.infinite + float(self.masses[high:].sum()) * (1 + _RELATIVE))
        law = PrivacyLoss(self.width, self.first + low, masses, infinite)
        return law.on(2 * self.width) if len(masses) > _MAX_CELLS else law


@dataclass(frozen=True, slots=True)
class Tail:
    """Bound on the module's H by Gaussians: the sum over (log count, mu) in `vertices` of count times delta_Gauss(mu;
    epsilon - shift) for epsilon >= shift; likewise with `shift_back` for P and Q exchanged."""

    vertices: tuple[tuple[float, float], ...]
    shift: float
    shift_back: float

    def reversed(self) -> "Tail":
        """Return this bound for Q against P."""
        return Tail(self.vertices, self.shift_back, self.shift)

    def delta(self, epsilon: float) -> float:
        """Return an upper bound on delta, in [0, 1]: the larger of the bounds for P against Q and for Q against P."""
        return max(self.at(epsilon, self.shift), self.at(epsilon, self.shift_back))

    def at(self, epsilon: float, shift: float) -> float:
        """Return an upper bound in [0, 1] on E(1 - e^(epsilon - shift - max(0, losses)))_+, for any real `epsilon`."""
        inner = epsilon - 2.0**-50 * abs(epsilon) - shift
        sums = math.fsum(
            math.exp(min(log_count + conversion.gdp_log_delta(epsilon=max(inner, 0.0), mu=mu), 1.0))
            for log_count, mu in self.vertices
        )
        bound = min(1.0, sums * (1 + _RELATIVE))
        return bound if inner >= 0 else min(1.0, -math.expm1(inner) + math.exp(inner) * bound)

    def loss(self) -> PrivacyLoss:
        """Return the loss law of a pair that dominates every pair satisfying this bound."""
        return _loss(self)

    def gaussian(self) -> float:
        """Return the smallest mu found whose Gaussian curve lies above the bound for every epsilon >= 0.

        On the grid, the curve must still reach each of the bound's values one point further right. Beyond the grid, the
        log of every summand falls faster than the Gaussian's.

        Raises:
            InfeasibleError: if the grid does not reach that far.
        """
        width, losses, bounds = _points(self)
        corners = dict(_hull(np.exp(losses), bounds))
        alphas = np.exp(losses)
        curve = np.interp(alphas, list(corners), list(corners.values())) * (1 + _RELATIVE)
        deepest = max(
            conversion.gdp_mu(epsilon=float(loss) + width, delta=min(float(value), 1 - 1e-12)) if value > 0 else 0.0
            for loss, value in zip(losses[_CELLS:], curve[_CELLS:], strict=True)
        ) * (1 + _RELATIVE)
        largest = max(mu for _, mu in self.vertices)
        if not float(losses[-1]) * (deepest - largest) > self.shift * deepest:
            raise errors.InfeasibleError("Expected a curve that a Gaussian's dominates: choose a larger noise_scale")
        return rounding.up(deepest)


def of_gaussian(mu: float) -> PrivacyLoss:
    """Return the loss law of N(mu, 1) against N(0, 1), for mu > 0."""
    return Tail(((0.0, mu),), 0.0, 0.0).loss()


def _points(bound: Tail) -> tuple[float, Floats, Floats]:
    """Return the grid's width, its losses, and the bound on H at these losses  # (2 k + 1,)"""
    most, far = max(mu for _, mu in bound.vertices), max(count for count, _ in bound.vertices)
    end = max(bound.shift, bound.shift_back) + most * (most / 2 + math.sqrt(2 * (far - math.log(_TAIL))))
    width = end / _CELLS
    losses = width * np.arange(-_CELLS, _CELLS + 1, dtype=np.float64)
    forward = [bound.at(loss, bound.shift) for loss in losses.tolist()]
    # H(alpha) = 1 - alpha + alpha H'(1 / alpha), with P and Q exchanged in H'.
    backward = [-math.expm1(loss) + math.exp(loss) * bound.at(-loss, bound.shift_back) for loss in losses.tolist()]
    bounds: Floats = np.minimum(np.minimum(forward, backward), 1.0)
    return width, losses, bounds


def _hull(alphas: Floats, bounds: Floats) -> list[tuple[float, float]]:
    """Return the corners of the lower convex hull of the points and (0, 1)."""
    corners = [(0.0, 1.0)]
    for alpha, bound in zip(alphas.tolist(), bounds.tolist(), strict=True):
        while len(corners) > 1 and _slope(corners[-2], corners[-1]) >= _slope(corners[-1], (alpha, bound)):
            corners.pop()
        corners.append((alpha, bound))
    return corners


def _slope(left: tuple[float, float], right: tuple[float, float]) -> float:
    return (right[1] - left[1]) / (right[0] - left[0])


@lru_cache(maxsize=256)
def _loss(bound: Tail) -> PrivacyLoss:
    width, losses, bounds = _points(bound)
    corners = _hull(np.exp(losses), bounds)
    slopes = [_slope(*pair) for pair in pairwise(corners)] + [0.0]
    masses, places = np.zeros(len(losses)), {alpha: place for place, alpha in enumerate(np.exp(losses).tolist())}
    for (alpha, _), (before, after) in zip(corners[1:], pairwise(slopes), strict=True):
        masses[places[alpha]] = max(alpha * (after - before), 0.0) * (1 + _RELATIVE)
    return PrivacyLoss(width, -_CELLS, masses, rounding.up(corners[-1][1]) + SLACK).trimmed()
