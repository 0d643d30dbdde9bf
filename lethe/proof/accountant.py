"""Privacy accountant: one curve per chain, from which every guarantee is computed.

Training and unlearning are one chain of projected noisy gradient steps on a dataset whose slots are edited between
runs: a deleted record becomes null. The accountant compares this chain with a second chain that runs the same steps on
other data from the same initial law. A `Lookback` weighs the differing records' influence against the noise added
since, both as measured at the end of the chain. Its mu is the guarantee (mu-GDP, in both directions) and holds for
every position of the records in the order of the batches. If every step reads all rows, mu = W / sqrt(V), with two
scalars per stretch:

    influence   W <- c W + s_t        s_t: how far the differing records move one noiseless step
    variance    V <- c^2 V + nu^2     nu^2 = 2 eta sigma^2

Proof: `docs/mathematics/shift.md`. The inequality is the shifted interpolation of Bok, Su and Altschuler (2024),
optimised over its shifts. A chain may begin at an imported model (`reset.md`). Rounding each step to a grid increases
mu slightly (`grid.md`).
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

from lethe.proof import errors, lookback
from lethe.proof.mechanism import Adjacency, Mechanism

THEOREM = "shifted-interpolation/1"
"""Identifier of the above bound in certificates."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run of a chain: edits to the dataset, followed by `steps` K >= 1 steps.

    Attributes:
        steps: Number of steps K.
        records: Number of records that became null before the first step.
        inserted: Number of null slots that received a record before the first step.
        corrected: Number of slots whose record was replaced by another before the first step.
        mechanism: Mechanism of the run, or None if it is the preceding run's. Without a grid, its step size, noise
            scale and cool-down may differ from the preceding run's; with a grid, nothing may differ.
    """

    steps: int
    records: int = 0
    inserted: int = 0
    corrected: int = 0
    mechanism: Mechanism | None = None

    def __post_init__(self) -> None:
        errors.require_count(1, steps=self.steps)
        errors.require_count(0, records=self.records, inserted=self.inserted, corrected=self.corrected)

    @property
    def edits(self) -> int:
        """Size of the change: each record removed or inserted counts once, each replaced record twice."""
        return self.records + self.inserted + 2 * self.corrected


# Chain has no slots because its cached properties need an instance dictionary.
@dataclass(frozen=True, kw_only=True)
class Chain:
    """State of one model's chain in the `zero_out` adjacency.

    Attributes:
        mechanism: Mechanism of the most recent run.
        steps: Number of steps since the initial law.
        edits: Number of edits since the first step, counted as in `Run.edits`.
        edited: Joint lookback of all edits and of the initial distance.
        runs: Pairs (mechanism, steps), oldest first, since the chain's first step, or since the step after which the
            comparison starts at an arbitrary point of the ball (`imported`).
        distance: Largest distance between the two chains before the first of `runs`; 0 if it starts at the initial law.
    """

    mechanism: Mechanism
    steps: int = 0
    edits: int = 0
    edited: lookback.Lookback = lookback.NOTHING
    runs: tuple[tuple[Mechanism, int], ...] = ()
    distance: float = 0.0

    @cached_property
    def present(self) -> lookback.Lookback:
        """Lookback of one slot that has differed between the two chains since the first step and still differs.

        Such a slot holds a record that is not yet deleted, or is null and not yet filled.
        """
        return lookback.present(self.runs)

    @property
    def presence(self) -> float:
        """Influence W of a slot that still differs and is assumed to be at the worst position."""
        return self.present.total

    @property
    def influence(self) -> float:
        """Total influence W of all edits, assumed to be at the worst positions, and of the chains' initial distance."""
        return self.edited.total

    @cached_property
    def variance(self) -> float:
        """Variance V of the noise that remains in the last iterate."""
        noise = 0.0
        for mechanism, steps in self.runs:
            decay, variance = lookback.alike(mechanism, steps)
            noise = decay * decay * noise + variance
        return noise


def started(mechanism: Mechanism) -> Chain:
    """Return a chain before its first step: a draw from the initial law, which does not depend on the data."""
    return Chain(mechanism=mechanism)


def imported(mechanism: Mechanism, *, steps: int = 0) -> Chain:
    """Return the chain of a model without a recorded history, such as an imported one, that has taken `steps` steps.

    The two chains that are compared start anywhere in the ball of radius R, so up to 2R apart
    (`docs/mathematics/reset.md`).
    """
    errors.require_count(0, steps=steps)
    distance = 2 * mechanism.radius
    return Chain(mechanism=mechanism, steps=steps, edited=lookback.apart(distance), distance=distance)


def advance(chain: Chain, run: Run) -> Chain:
    """Return the chain after `run`.

    Raises:
        DomainError: if `run` is not a `Run`.
        PreconditionError: if the run's mechanism cannot follow the chain's.
    """
    if not isinstance(run, Run):
        raise errors.DomainError(f"Expected a Run, not {type(run).__name__}")
    mechanism = _next_mechanism(chain.mechanism, run)
    decay, variance = lookback.alike(mechanism, run.steps)
    return replace(
        chain,
        mechanism=mechanism,
        steps=chain.steps + run.steps,
        edits=chain.edits + run.edits,
        edited=_with_edits(chain, run.edits).followed(decay=decay, variance=variance),
        runs=(*chain.runs, (mechanism, run.steps)),
    )


def resume(chain: Chain, runs: Iterable[Run]) -> Chain:
    """Return the chain after all of `runs`, in order."""
    for run in runs:
        chain = advance(chain, run)
    return chain


def replay(mechanism: Mechanism, runs: Iterable[Run], *, steps_before: int = 0) -> Chain:
    """Return the chain after all of `runs`.

    The first run is the learning run, or follows `steps_before` > 0 steps whose runs `compact` dropped.
    """
    return resume(imported(mechanism, steps=steps_before) if steps_before else started(mechanism), runs)


def erased(chain: Chain, *, records: int) -> Chain:
    """Return the chain after `records` >= 0 more records have become null, before any further step."""
    errors.require_count(0, records=records)
    return replace(chain, edits=chain.edits + records, edited=_with_edits(chain, records))


def unlearning_mu(chain: Chain, *, records: int = 0) -> float:
    """Return the chain's mu against training from scratch on the current data.

    The reference process takes the same schedule of steps from the same initial law; for an `imported` chain it takes
    the same steps from any start in the ball. The bound covers all edits so far jointly (influences add) and `records`
    >= 0 further records that became null since the last step.

    Assumptions: neither the requests nor the runs (which, when, how many steps) depend on published models.
    """
    errors.require_count(0, records=records)
    return _mu(chain.mechanism, _with_edits(chain, records))


def deletion_mu(chain: Chain, *, records: int, steps_present: int, steps_absent: int = 0) -> float:
    """Return the chain's mu against the same history with one person's `records` null throughout.

    Args:
        chain: State after the run that forgot the records.
        records: Number of the person's records, >= 0.
        steps_present: Number of steps >= 0 between insertion and deletion. A run must begin right after them.
        steps_absent: Number of steps >= 0 before the insertion. A run must begin right after them. Both histories have
            the same law until then, so the comparison starts there.

    Assumptions: neither the requests nor the runs (which, when, how many steps) depend on published models.

    Raises:
        DomainError: if the two counts together exceed `chain.steps`, or no run begins after one of them.
    """
    errors.require_count(0, records=records, steps_present=steps_present, steps_absent=steps_absent)
    if steps_absent + steps_present > chain.steps:
        raise errors.DomainError(f"Expected steps_present={steps_present} <= steps={chain.steps - steps_absent}")
    step = first_step = chain.steps - sum(steps for _, steps in chain.runs)
    inserted, deleted = max(steps_absent, first_step), max(steps_absent + steps_present, first_step)
    run_starts, runs_present, runs_after = {first_step}, list[_MechanismSteps](), list[_MechanismSteps]()
    for run in chain.runs:
        if inserted <= step < deleted:
            runs_present.append(run)
        elif step >= deleted:
            runs_after.append(run)
        step += run[1]
        run_starts.add(step)
    if not {inserted, deleted} <= run_starts:
        raise errors.DomainError(
            f"Expected runs to begin after steps_absent={steps_absent} and steps_present={steps_present}"
        )
    influence = lookback.present(tuple(runs_present)).times(records)
    if steps_absent <= first_step:
        influence = influence.plus(_propagate(lookback.apart(chain.distance), runs_present))
    return _mu(chain.mechanism, _propagate(influence, runs_after))


def reset_mu(mechanism: Mechanism, *, steps: int) -> float:
    """Return the mu between two runs of `steps` >= 1 steps on the current data, from any two points in the ball.

    The bound holds conditionally on the entire past. It therefore covers imported models, repair, and an adversary who
    chose the requests.
    """
    errors.require_count(1, steps=steps)
    return unlearning_mu(advance(imported(mechanism), Run(steps=steps)))


# Cached because most runs of a model repeat the number of steps of an earlier run.
@lru_cache(maxsize=4096, typed=True)
def release_mu(mechanism: Mechanism, *, steps: int, adjacency: Adjacency) -> float:
    """Return the mu that publishing a run's result costs a record present throughout, given the previous version.

    `steps` K >= 1 is the length of the run, counted from the initial law for a first version. A run shorter than a full
    pass costs most records nothing. The result is the cost to a record whose batch is read, at the worst position.
    """
    errors.require_count(1, steps=steps)
    scale = mechanism.sensitivity(adjacency) / mechanism.sensitivity(Adjacency.ZERO_OUT)
    return scale * lookback.worst_mu(mechanism, steps) + mechanism.rounding_mu


@dataclass(frozen=True, slots=True, kw_only=True)
class Exposure:
    """Versions of one model published while a person's `records` >= 1 were in the model's data.

    Attributes:
        mechanism: Mechanism of the runs.
        records: Number of the person's records.
        releases: Pairs (steps of the run that produced the version, number of such versions), steps ascending.
        stretches: Number of contiguous parts of one chain into which the runs fall. Within a part, batches are read
            cyclically.
    """

    mechanism: Mechanism
    records: int
    releases: tuple[tuple[int, int], ...]
    stretches: int = 1

    def __post_init__(self) -> None:
        errors.require_count(1, records=self.records, stretches=self.stretches)
        for steps, count in self.releases:
            errors.require_count(1, steps=steps, count=count)

    def moving(self) -> Iterator[tuple[int, int]]:
        """Yield the releases (steps, count) that a single record can have influenced.

        These are all runs of at least one full pass and those shorter runs with the largest mu, up to the number of
        times that short runs can have read the record's batch.

        T steps in total read a batch at most T // batches + stretches times, and each full pass of a long run uses one
        of these reads. The steps of the short runs alone give no bound because long runs lie between them.
        """
        batches = self.mechanism.num_batches
        short_releases = [(steps, count) for steps, count in self.releases if steps < batches]
        long_releases = [(steps, count) for steps, count in self.releases if steps >= batches]
        yield from long_releases
        reads = sum(steps * count for steps, count in self.releases) // batches + self.stretches
        reads -= sum(steps // batches * count for steps, count in long_releases)
        by_mu = sorted(short_releases, key=lambda release: self._mu(release[0]), reverse=True)
        for steps, count in by_mu:
            if reads:
                yield steps, min(count, reads)
                reads -= min(count, reads)

    def _mu(self, steps: int) -> float:
        return release_mu(self.mechanism, steps=steps, adjacency=Adjacency.ZERO_OUT)


def squares(exposure: Exposure) -> Iterator[float]:
    """For each number of steps, yield the sum of the versions' squared mu, for `methods.adaptive_mu`."""
    for steps, count in exposure.moving():
        mu = release_mu(exposure.mechanism, steps=steps, adjacency=Adjacency.ZERO_OUT)
        yield count * (exposure.records * mu) ** 2


def exposed(mechanism: Mechanism, runs: Counter[int], *, records: int, lost: int = 0) -> Exposure:
    """Return the exposure of `records` to the published results of `runs`, given as counts of runs by number of steps.

    Every run of `mechanism.learn_steps` steps starts a new stretch, and so does each of `lost` >= 0 runs whose
    predecessor is unknown.
    """
    stretches = 1 + runs[mechanism.learn_steps] + lost
    return Exposure(mechanism=mechanism, records=records, releases=tuple(sorted(runs.items())), stretches=stretches)


def compact(mechanism: Mechanism, runs: Sequence[Run]) -> tuple[int, list[Run]]:
    """Drop a history's oldest runs so that its length does not grow with the model's age.

    Returns the number of steps dropped and the remaining runs, oldest first. Runs are dropped once the steps after them
    contract by 1e-18, `CUT` runs at a time, so that adding one run rarely changes where a replay starts. `imported`
    covers the dropped steps, whatever they were, because its comparison starts at any two points of the ball. A history
    with several mechanisms is returned unchanged.

    >>> from lethe.proof.losses import Objective
    >>> m = Mechanism(objective=Objective.LOGISTIC_REGRESSION, num_slots=100, num_classes=2, l2=1.0, step_size=0.5,
    ...               noise_scale=1.0, radius=1.0, learn_steps=9)
    >>> left_out, rest = compact(m, [Run(steps=9)] * CUT + [Run(steps=70, records=1), Run(steps=80, records=2)])
    >>> left_out, [(run.steps, run.records) for run in rest]
    (288, [(70, 1), (80, 2)])
    """
    if any(run.mechanism not in (None, mechanism) for run in runs):
        return 0, list(runs)
    rest = recent(mechanism, zip(reversed(range(len(runs))), reversed(runs), strict=True))
    return sum(run.steps for run in runs[: len(runs) - len(rest)]), rest


def recent(mechanism: Mechanism, newest_first: Iterable[tuple[int, Run]]) -> list[Run]:
    """Return the runs that `compact` retains, oldest first, given (index, run) pairs in reverse order.

    Consumes the retained runs and at most one run before them. All runs must have used `mechanism`.
    """
    retained: list[Run] = []
    decay = 1.0
    for number, run in newest_first:
        if decay <= _FORGOTTEN and (number + 1) % CUT == 0:
            break
        retained.append(run)
        decay *= lookback.alike(mechanism, run.steps)[0]
    return retained[::-1]


_FORGOTTEN = 1e-18
"""Contraction of all later steps at which `compact` drops a run and the runs before it."""
CUT = 32
"""Number of runs that `compact` drops at once."""


def _next_mechanism(mechanism: Mechanism, run: Run) -> Mechanism:
    """Return the mechanism of `run`, which follows a run with `mechanism`.

    Raises:
        PreconditionError: if the two mechanisms solve different problems, or differ even though one of them has a grid.
    """
    following = run.mechanism
    if following is None:
        return mechanism
    for name in (
        "objective",
        "num_slots",
        "num_classes",
        "num_parameters",
        "batch_size",
        "l2",
        "radius",
        "second_moment",
        "class_weights",
        "weight_bound",
    ):
        expected, actual = getattr(mechanism, name), getattr(following, name)
        if expected != actual:
            raise errors.PreconditionError(
                "same_problem", f"Expected {name}={actual} to be {expected}, as in the run before"
            )
    if following != mechanism and (following.grid or mechanism.grid):
        raise errors.PreconditionError("mechanism_constant", "Expected one mechanism in all runs of a chain on a grid")
    return following


_MechanismSteps = tuple[Mechanism, int]


def _with_edits(chain: Chain, edits: int) -> lookback.Lookback:
    """Return the lookback of the chain's edits and of `edits` more at its end, each at the worst position."""
    return chain.edited.plus(chain.present.times(edits)) if edits else chain.edited


def _propagate(influence: lookback.Lookback, runs: Iterable[_MechanismSteps]) -> lookback.Lookback:
    """Return what remains of `influence` after `runs`."""
    for mechanism, steps in runs:
        decay, variance = lookback.alike(mechanism, steps)
        influence = influence.followed(decay=decay, variance=variance)
    return influence


def _mu(mechanism: Mechanism, influence: lookback.Lookback) -> float:
    """Return the mu of `influence` plus the cost of rounding to a grid, or 0 if there is no influence."""
    if not all(0 <= number < math.inf for number in (*influence.noise, *influence.influence)):
        raise errors.DomainError("Expected finite influence >= 0 and variance >= 0")
    return influence.mu + mechanism.rounding_mu if influence.total else 0.0
