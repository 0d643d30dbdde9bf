"""The accountant: two scalars per chain, and every guarantee read off them.

Learning and unlearning are one chain of projected noisy gradient steps on a dataset in which deleted records become
null records. Compare it with the chain that runs the same steps on other data from the same initial law, and keep

    influence   W <- c W + s_t        s_t: how far the differing records move one noiseless step
    variance    V <- c^2 V + nu^2     nu^2 = 2 eta sigma^2

Then the last iterates are mu-indistinguishable (mu-GDP, in both directions) with mu = W / sqrt(V). Proof and
precondition (s_t never increases, which holds because a deleted record never comes back): `docs/mathematics/shift.md`;
the inequality is the shifted interpolation of Bok, Su and Altschuler (2024), optimised over its shifts.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from app.privacy.errors import DomainError, require_count
from app.privacy.mechanism import Adjacency, Mechanism

THEOREM = "shifted-interpolation/1"
"""The id under which certificates cite the bound above."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """`steps` K >= 1 steps, before which `records` more of the dataset's records became null."""

    steps: int
    records: int = 0

    def __post_init__(self) -> None:
        require_count(1, steps=self.steps)
        require_count(0, records=self.records)


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """Where one model's chain stands, in the `zero_out` adjacency.

    `steps`: all steps since the initial law. `variance`: V. `presence`: W of one record that was there from the first
    step and still is. `influence`: sum of W over all records deleted since the first step.
    """

    mechanism: Mechanism
    steps: int
    variance: float
    presence: float
    influence: float


def started(mechanism: Mechanism) -> Chain:
    """The chain before its first step: a draw from the initial law, which is the same whatever the data."""
    return Chain(mechanism=mechanism, steps=0, variance=0.0, presence=0.0, influence=0.0)


def advance(chain: Chain, run: Run) -> Chain:
    """The chain after `run`. Splitting a run in two changes nothing: this is the recursion, summed."""
    mechanism = chain.mechanism
    decay = mechanism.contraction**run.steps
    return replace(
        chain,
        steps=chain.steps + run.steps,
        variance=decay**2 * chain.variance + _noise(mechanism, run.steps),
        presence=decay * chain.presence + _push(mechanism, run.steps),
        influence=decay * (chain.influence + run.records * chain.presence),
    )


def replay(mechanism: Mechanism, runs: Iterable[Run]) -> Chain:
    """The chain after all of `runs`, the first of which is learning."""
    chain = started(mechanism)
    for run in runs:
        chain = advance(chain, run)
    return chain


def unlearning_mu(chain: Chain, *, records: int = 0) -> float:
    """Against learning from scratch: same number of steps, same initial law, on the data as they are now.

    Covers all deletions so far together (influences add), and `records` >= 0 more that have just become null. For
    requests that do not depend on published models.
    """
    require_count(0, records=records)
    return _mu(chain.influence + records * chain.presence, chain.variance)


def deletion_mu(chain: Chain, *, records: int, steps_present: int) -> float:
    """Against the same history in which one person's `records` had been null from the start.

    `steps_present`: steps of this chain that ran before they were deleted, 0 <= steps_present <= chain.steps.
    For requests that do not depend on published models.
    """
    require_count(0, records=records, steps_present=steps_present)
    if steps_present > chain.steps:
        raise DomainError(f"Expected steps_present={steps_present} <= steps={chain.steps}")
    decay = chain.mechanism.contraction ** (chain.steps - steps_present)
    return _mu(records * _push(chain.mechanism, steps_present) * decay, chain.variance)


def release_mu(mechanism: Mechanism, *, steps: int, adjacency: Adjacency) -> float:
    """One record present throughout a run of `steps`: what its published result adds, given the version before it.

    For a first version, `steps` counts from the initial law.
    """
    require_count(1, steps=steps)
    scale = mechanism.sensitivity(adjacency) / mechanism.sensitivity(Adjacency.ZERO_OUT)
    return _mu(scale * _push(mechanism, steps), _noise(mechanism, steps))


@dataclass(frozen=True, slots=True, kw_only=True)
class Exposure:
    """Versions of one model that were published while a person's `records` were in its data.

    `releases`: pairs (steps of the run that made the version, number of such versions), steps ascending.
    """

    mechanism: Mechanism
    records: int
    releases: tuple[tuple[int, int], ...]

    def __post_init__(self) -> None:
        require_count(1, records=self.records)
        for steps, count in self.releases:
            require_count(1, steps=steps, count=count)


def adaptive_mu(exposures: Sequence[Exposure]) -> float:
    """Against people who read every version and chose by what they saw whom to delete (`zero_out` adjacency).

    Given the versions published while the records were present, everything after the deletion has the same law with
    and without them (the run that forgets starts from a published version), so only those versions count; they
    compose: mu^2 = sum over versions, of every model the records fed, of (records mu_release)^2.

    Assumptions: how many versions there are and how many steps each takes was not chosen by what was read, or only so
    that this sum stays below a bound set in advance; then the bound is what holds (Smith and Thakurta 2022).
    """
    return math.sqrt(
        math.fsum(
            count * (exposure.records * release_mu(exposure.mechanism, steps=steps, adjacency=Adjacency.ZERO_OUT)) ** 2
            for exposure in exposures
            for steps, count in exposure.releases
        )
    )


def tally(steps: Iterable[int]) -> tuple[tuple[int, int], ...]:
    """Steps of runs as the (steps, count) pairs of an `Exposure`."""
    counts: dict[int, int] = {}
    for k in steps:
        counts[k] = counts.get(k, 0) + 1
    return tuple(sorted(counts.items()))


def compact(mechanism: Mechanism, runs: Sequence[Run]) -> list[Run]:
    """The same history, its old part merged so that its length no longer grows with the age of the model.

    Runs so old that what they deleted has decayed by 1e-18 are merged as if everything in them had been deleted
    just before the youngest of them: an upper bound of every influence, and the same steps in all.

    >>> from app.privacy.mechanism import Objective
    >>> m = Mechanism(objective=Objective.LOGISTIC_REGRESSION, num_slots=100, num_classes=2, l2=1.0, step_size=0.5,
    ...               noise_scale=1.0, radius=1.0, learn_steps=9)
    >>> [(r.steps, r.records) for r in compact(m, [Run(steps=9), Run(steps=70, records=1), Run(steps=80, records=2)])]
    [(79, 0), (80, 3)]
    """
    horizon = math.log(1e-18) / math.log(mechanism.contraction)
    age = 0
    for index in range(len(runs) - 1, 1, -1):
        age += runs[index].steps
        if age >= horizon:
            older = Run(steps=sum(run.steps for run in runs[:index]))
            youngest = Run(steps=runs[index].steps, records=sum(run.records for run in runs[1 : index + 1]))
            return [older, youngest, *runs[index + 1 :]]
    return list(runs)


def _push(mechanism: Mechanism, steps: int) -> float:
    """W of one record after `steps` with it: s (1 - c^K) / (1 - c), `zero_out`."""
    c = mechanism.contraction
    return -mechanism.sensitivity(Adjacency.ZERO_OUT) * math.expm1(steps * math.log(c)) / (1 - c)


def _noise(mechanism: Mechanism, steps: int) -> float:
    """V after `steps` from a fixed point: nu^2 (1 - c^(2K)) / (1 - c^2)."""
    c = mechanism.contraction
    return -mechanism.step_variance * math.expm1(2 * steps * math.log(c)) / ((1 - c) * (1 + c))


def _mu(influence: float, variance: float) -> float:
    """W / sqrt(V); nothing is certified of a chain that has no noise."""
    if not (math.isfinite(influence) and math.isfinite(variance) and influence >= 0 and variance >= 0):
        raise DomainError("Expected finite influence >= 0 and variance >= 0")
    if influence == 0:
        return 0.0
    return influence / math.sqrt(variance) if variance > 0 else math.inf
