"""How an attacker reads published weights: rules fixed by theory, or learned on samples that are then set aside."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from benchmarks.attacks.measured import guesses
from lethe.proof.canary_test import Guesses
from lethe.proof.mechanism import Mechanism

Array = NDArray[np.float64]

Group = tuple[Array, Array | float, Array | float]
"""Rows that are alike: the row (d,), its label -1 or 1, how many; the last two may differ between samples  # (N,)"""

SET_ASIDE = 4
"""A rule that is learned is learned on the first of so many parts, and counted on the others."""


def without_noise(start: Array, mechanism: Mechanism, groups: Sequence[Group], *, steps: int) -> Array:
    """Where `steps` lead from each of `start` (N, d) if nothing is random."""
    here = start.copy()
    for _ in range(steps):
        downhill = mechanism.l2 * here
        for row, sign, count in groups:
            pull = np.asarray(sign * count / (1 + np.exp(sign * (here @ row)))) / mechanism.num_slots
            downhill -= np.broadcast_to(pull, len(here))[:, None] * row
        here = here - mechanism.step_size * downhill
    return here


def variance(mechanism: Mechanism, *, steps: int) -> float:
    """Of the noise of a run, in a direction in which nothing but the regulariser contracts."""
    c = mechanism.contraction
    return mechanism.step_variance * (1 - c ** (2 * steps)) / (1 - c**2)


def by_discriminant(members: Array, nonmembers: Array) -> Guesses:
    """Fisher's linear rule on all coordinates of all versions in view (N, ...), learned on the samples set aside."""
    seen = [view.reshape(len(view), -1) for view in (members, nonmembers)]
    aside = [view[: len(view) // SET_ASIDE] for view in seen]
    means = [view.mean(axis=0) for view in aside]
    spread = sum(np.cov(view, rowvar=False) for view in aside)
    direction = np.linalg.lstsq(np.atleast_2d(spread), means[0] - means[1], rcond=None)[0]
    middle = (means[0] + means[1]) / 2
    said = [(view[len(view) // SET_ASIDE :] - middle) @ direction > 0 for view in seen]
    return guesses(*said)
