"""Curves: people's influence on a model during training, and how it decays once they are deleted.

A point is what a certificate would state if the run had been planned with that number of steps and its result
published; see `docs/mathematics/curve.md`. The same functions compute certificates, so that a run's last point equals
its ledger entry to the last digit.
"""

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from lethe.proof import accountant, conversion, errors, methods
from lethe.proof.accountant import Chain, Exposure, Run
from lethe.proof.mechanism import Adjacency


@dataclass(frozen=True, slots=True, kw_only=True)
class Epsilons:
    """Epsilons of the four privacy notions, rounded up. They must not be added together.

    `unlearning` covers all people deleted since the chain began, and `deletion` the person with the most records in
    this run (None if the run forgets no one). `adaptive` covers one record that is still present and was used for every
    version; `release` covers one record that is still present, given the previous version.
    """

    unlearning: float
    deletion: float | None
    adaptive: float
    release: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A chain's state `step` steps into a run; at step 0 the records to forget are null and no step has run.

    `influence` is the influence of all people deleted so far, and `presence` that of one record still present.
    `epsilon_of_one` is that record's epsilon if it were deleted at this step and no further step were taken.
    """

    step: int
    influence: float
    presence: float
    noise_variance: float
    epsilon: Epsilons
    epsilon_of_one: float


# Cached, as ledger entries never change.
@lru_cache(maxsize=256, typed=True)
def points(
    before: Chain, run: Run, *, largest: int | None, exposures: tuple[Exposure, ...], delta: float, at_most: int
) -> tuple[Point, ...]:
    """Return up to `at_most` (>= 2) points of `run` after `before`: both ends, and more where changes are largest.

    `largest` is the maximum number of one person's records that the run forgets, None if it forgets no one. `exposures`
    are the earlier releases, as they apply to a record that was used for all of them. Raises `DomainError`.
    """
    return tuple(
        _point(before, run, step=step, largest=largest, exposures=exposures, delta=delta)
        for step in thinned(run.steps, at_most=at_most)
    )


def thinned(steps: int, *, at_most: int) -> list[int]:
    """Return up to `at_most` (>= 2) of the steps 0, 1, ..., `steps`: both ends, and others spaced logarithmically.

    Most changes happen at the beginning of a run; later its epsilon falls by the same factor at each step.

    >>> thinned(3, at_most=9), thinned(1000, at_most=5), thinned(1000, at_most=2)
    ([0, 1, 2, 3], [0, 1, 10, 100, 1000], [0, 1000])
    """
    if at_most < 2:
        raise errors.DomainError(f"Expected at_most={at_most} >= 2")
    if steps < at_most:
        return list(range(steps + 1))
    return [0, *np.unique(np.geomspace(steps, 1, at_most - 1).round().astype(int)).tolist()]


def _point(
    before: Chain, run: Run, *, step: int, largest: int | None, exposures: tuple[Exposure, ...], delta: float
) -> Point:
    chain = (
        accountant.advance(before, replace(run, steps=step)) if step else accountant.erased(before, records=run.records)
    )
    mechanism = before.mechanism
    exposure = Exposure(mechanism=mechanism, records=1, releases=((step, 1),)) if step else None
    released = accountant.release_mu(mechanism, steps=step, adjacency=Adjacency.REPLACE) if step else 0.0

    def epsilon(mu: float) -> float:
        return conversion.gdp_epsilon(mu=mu, delta=delta)

    def deletion_epsilon(records: int, *, steps_present: int) -> float:
        return epsilon(accountant.deletion_mu(chain, records=records, steps_present=steps_present))

    return Point(
        step=step,
        influence=chain.influence,
        presence=chain.presence,
        noise_variance=chain.variance,
        epsilon=Epsilons(
            unlearning=epsilon(accountant.unlearning_mu(chain)),
            deletion=None if largest is None else deletion_epsilon(largest, steps_present=before.steps),
            adaptive=epsilon(methods.adaptive_mu([*exposures, exposure] if exposure else exposures)),
            release=epsilon(released),
        ),
        epsilon_of_one=deletion_epsilon(1, steps_present=chain.steps),
    )
