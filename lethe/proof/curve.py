"""The curve people look at: how much of anybody is in a model while it learns, and how it dies away once they are gone.

A point is what a certificate would say had its run been planned with that many steps, and published: see
`docs/mathematics/curve.md`. The functions are those that sign certificates, so the last point of a run is what its
ledger entry says, to the last digit.
"""

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from lethe.proof import accountant, conversion
from lethe.proof.accountant import Chain, Exposure, Run
from lethe.proof.errors import DomainError
from lethe.proof.mechanism import Adjacency


@dataclass(frozen=True, slots=True, kw_only=True)
class Epsilons:
    """One epsilon, rounded up, per notion; they are never added.

    `unlearning`: everybody deleted since the chain began. `deletion`: the person with most records among those whom
    this run forgets; None if it forgets nobody. `adaptive`: one record still there, which fed every version. `release`:
    one record still there, given the version before.
    """

    unlearning: float
    deletion: float | None
    adaptive: float
    release: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """The state of a chain `step` steps into a run; at 0 what it forgets is null and nothing has been done about it.

    `influence` is that of everybody deleted so far, `presence` that of one record still there. `epsilon_of_one` is what
    deleting that record here would leave of it if no step followed: privacy erosion.
    """

    step: int
    influence: float
    presence: float
    noise_variance: float
    epsilon: Epsilons
    epsilon_of_one: float


@lru_cache(maxsize=256, typed=True)  # what is in the ledger never changes, and neither do its curves
def points(
    before: Chain, run: Run, *, largest: int | None, exposures: tuple[Exposure, ...], delta: float, at_most: int
) -> tuple[Point, ...]:
    """At most `at_most` >= 2 points of `run`, which follows `before`: its ends, and closest where they change most.

    `largest`: most records of one person among those whom the run forgets, None if it forgets nobody. `exposures`: what
    had been published before, to one record that fed all of it. Raises `DomainError`.
    """
    return tuple(
        _point(before, run, step=step, largest=largest, exposures=exposures, delta=delta)
        for step in thinned(run.steps, at_most=at_most)
    )


def thinned(steps: int, *, at_most: int) -> list[int]:
    """At most `at_most` >= 2 of the steps 0, 1, ..., `steps`: both ends, the others evenly spaced in their logarithm.

    A run changes most at its beginning; later its epsilon falls by the same factor at every step.

    >>> thinned(3, at_most=9), thinned(1000, at_most=5), thinned(1000, at_most=2)
    ([0, 1, 2, 3], [0, 1, 10, 100, 1000], [0, 1000])
    """
    if at_most < 2:
        raise DomainError(f"Expected at_most={at_most} >= 2")
    if steps < at_most:
        return list(range(steps + 1))
    return [0, *np.unique(np.geomspace(steps, 1, at_most - 1).round().astype(int)).tolist()]


def _point(
    before: Chain, run: Run, *, step: int, largest: int | None, exposures: tuple[Exposure, ...], delta: float
) -> Point:
    here = (
        accountant.advance(before, replace(run, steps=step)) if step else accountant.erased(before, records=run.records)
    )
    mechanism = before.mechanism
    now = Exposure(mechanism=mechanism, records=1, releases=((step, 1),)) if step else None
    released = accountant.release_mu(mechanism, steps=step, adjacency=Adjacency.REPLACE) if step else 0.0

    def epsilon(mu: float) -> float:
        return conversion.gdp_epsilon(mu=mu, delta=delta)

    def left_of(records: int, *, steps_present: int) -> float:
        return epsilon(accountant.deletion_mu(here, records=records, steps_present=steps_present))

    return Point(
        step=step,
        influence=here.influence,
        presence=here.presence,
        noise_variance=here.variance,
        epsilon=Epsilons(
            unlearning=epsilon(accountant.unlearning_mu(here)),
            deletion=None if largest is None else left_of(largest, steps_present=before.steps),
            adaptive=epsilon(accountant.adaptive_mu([*exposures, now] if now else exposures)),
            release=epsilon(released),
        ),
        epsilon_of_one=left_of(1, steps_present=here.steps),
    )
