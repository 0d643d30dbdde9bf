"""The curve people look at: how the influence of people grows while they are there and dies away once they are gone."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from app.privacy import accountant, conversion
from app.privacy.accountant import Chain, Run
from app.privacy.errors import DomainError
from app.privacy.mechanism import Mechanism


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """Where a chain stands after `step` steps, in run number `run` (0 is learning), both notions at one delta.

    `epsilon` is `unlearning` of all deletions so far; `epsilon_of_one` is what deleting one record at this step would
    leave of it if no step followed: privacy erosion while learning, constant once the chain has settled.
    """

    step: int
    run: int
    influence: float
    noise_variance: float
    epsilon: float
    epsilon_of_one: float


def trajectory(mechanism: Mechanism, runs: Sequence[Run], *, delta: float, points: int) -> Iterator[Point]:
    """At most `points` >= 2 points per run, evenly spaced, its last step among them.

    The first point of a run is before its first step, when what it deleted is null and nothing has been done about it.
    Raises `DomainError`.
    """
    if points < 2:
        raise DomainError(f"Expected points={points} >= 2")
    chain = accountant.started(mechanism)
    for index, run in enumerate(runs):
        deleted = chain.influence + run.edits * chain.presence
        for steps in np.unique(np.linspace(0, run.steps, points).round().astype(int)).tolist():
            here = accountant.advance(chain, replace(run, steps=steps)) if steps else chain
            influence = here.influence if steps else deleted
            yield _point(here, influence=influence, run=index, delta=delta)
        chain = accountant.advance(chain, run)


def _point(chain: Chain, *, influence: float, run: int, delta: float) -> Point:
    return Point(
        step=chain.steps,
        run=run,
        influence=influence,
        noise_variance=chain.variance,
        epsilon=_epsilon(chain, influence, delta),
        epsilon_of_one=_epsilon(chain, chain.presence, delta),
    )


def _epsilon(chain: Chain, influence: float, delta: float) -> float:
    return conversion.gdp_epsilon(mu=accountant.mu_of(chain, influence), delta=delta) if influence > 0 else 0.0
