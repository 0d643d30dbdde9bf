"""Chains computed step by step: the string under their path, and quadratics that try to exceed it."""

import itertools
import math
import sys
from collections.abc import Callable, Sequence

import mpmath
import numpy as np
from scipy.optimize import nnls

from lethe.proof import lookback

Step = tuple[float, float, float]
"""A step: contraction c, variance nu^2 of the noise, push s."""


def path(steps: Sequence[Step], *, apart: float = 0.0) -> list[tuple[mpmath.mpf, mpmath.mpf]]:
    """Return the noise and the influence accumulated before each step and after the last one, scaled to their size at
    the end."""
    arrives = [mpmath.mpf(1)]
    for c, _, _ in reversed(steps):
        arrives.append(arrives[-1] * mpmath.mpf(c))
    arrives.reverse()
    at = [(mpmath.mpf(0), arrives[0] * mpmath.mpf(apart))]
    for (_, variance, push), after in zip(steps, arrives[1:], strict=True):
        noise, reach = at[-1]
        at.append((noise + variance * after**2, reach + push * after))
    return at


def pulled_mu(steps: Sequence[Step], *, apart: float = 0.0) -> float:
    """Return mu of the string from the origin to the end of the path, found by following the smallest slope, with 50
    digits."""
    with mpmath.workdps(50):
        corners, square = path(steps, apart=apart), mpmath.mpf(0)
        here, noise, reach = 0, mpmath.mpf(0), mpmath.mpf(0)
        while here < len(steps):
            later = [k for k in range(here + 1, len(corners)) if corners[k][0] > noise]
            if not later:
                return math.inf
            here = min(later, key=lambda k: ((corners[k][1] - reach) / (corners[k][0] - noise), -k))
            square += (corners[here][1] - reach) ** 2 / (corners[here][0] - noise)
            noise, reach = corners[here]
        return float(mpmath.sqrt(square))


def quadratic_mu(
    steps: Sequence[Step], *, slopes: Sequence[float], signs: Sequence[float], apart: float = 0.0
) -> float:
    """Return the exact mu of x <- slope x + sign s + N(0, nu^2), whose two Gaussians start from points `apart`."""
    distance, variance = apart, 0.0
    for (_, noise, push), slope, sign in zip(steps, slopes, signs, strict=True):
        distance = slope * distance + sign * push
        variance = slope**2 * variance + noise
    return abs(distance) / math.sqrt(variance) if variance else math.inf


def worst_slopes(steps: Sequence[Step], *, apart: float = 0.0) -> list[float]:
    """Return the slopes in [0, c_t] of the quadratic that is easiest to distinguish, found by nonnegative least squares
    over all slopes.

    With slopes theta_(t-1)/theta_t c_t, theta never falling, mu = sum(theta d)/sqrt(sum(theta^2 u)) for the increments
    d and u of the path. It is greatest where theta is closest to d/u in the norm of u."""
    corners = path(steps, apart=apart)
    noise = np.array([float(b[0] - a[0]) for a, b in itertools.pairwise(corners)])
    reach = np.array([float(b[1] - a[1]) for a, b in itertools.pairwise(corners)])
    reach[0] += float(corners[0][1])
    root = np.sqrt(noise)
    rises, _ = nnls(root[:, None] * np.tri(len(steps)), reach / root, maxiter=10_000)
    theta = np.cumsum(rises)
    slopes = [steps[0][0]]
    for t in range(1, len(steps)):
        slopes.append(steps[t][0] * (theta[t - 1] / theta[t] if theta[t] else 1.0))
    return slopes


def calls(work: Callable[[], object]) -> int:
    """Return the number of Python function calls, which does not depend on the machine. Caches are cleared first."""
    for known in (
        lookback._present,
        lookback.alike,
        lookback._farthest,
        lookback._short,
        lookback._steady,
        lookback._cooling,
    ):
        known.cache_clear()
    entered = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal entered
        entered += event == "call"

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return entered
