"""Guarantees that guesses refute; runs of the product are judged by right guesses (`lethe/proof/canary_test.py`)."""

import math

import scipy

from lethe.proof import canary_test
from lethe.proof.canary_test import Guesses
from lethe.proof.errors import require_fraction, require_nonnegative


def mu_at_least(guesses: Guesses, *, error: float) -> float:
    """Return the largest mu >= 0 below which the guesses refute every guarantee, wrong with probability <= `error`."""
    true, false = _corner(guesses, error)
    return max(0.0, float(scipy.special.ndtri(true) - scipy.special.ndtri(false))) if true > 0 and false < 1 else 0.0


def epsilon_at_least(guesses: Guesses, *, delta: float, error: float) -> float:
    """Return the largest epsilon >= 0 such that the guesses refute every (smaller, delta) guarantee in some direction,
    wrong with probability <= `error`."""
    require_nonnegative(delta=delta)
    true, false = _corner(guesses, error)
    directions = ((true, false), (1 - false, 1 - true))
    proved = (math.log((hit - delta) / miss) for hit, miss in directions if hit > delta and miss > 0)
    return max(0.0, max(proved, default=0.0))


def _corner(guesses: Guesses, error: float) -> tuple[float, float]:
    """Return a lower bound on the TPR and an upper bound on the FPR, jointly wrong with probability <= `error`."""
    require_fraction(error=error)
    true = canary_test.at_least(guesses.true_positives, guesses.members, error=error / 2)
    return true, canary_test.at_most(guesses.false_positives, guesses.nonmembers, error=error / 2)
