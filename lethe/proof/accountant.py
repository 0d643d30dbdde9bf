"""The accountant: one curve per chain, and every guarantee read off it.

Learning and unlearning are one chain of projected noisy gradient steps on a dataset whose slots are edited between
runs: a deleted record becomes null. Compare it with the chain that runs the same steps on other data from the same
initial law. How much the differing records have moved it, against the noise that was added since, both seen from its
end, is a `Lookback`; its mu is the guarantee (mu-GDP, in both directions), whatever places the records have in the
order in which batches are read. Where every step reads all rows it is W / sqrt(V), with two scalars per stretch:

    influence   W <- c W + s_t        s_t: how far the differing records move one noiseless step
    variance    V <- c^2 V + nu^2     nu^2 = 2 eta sigma^2

Proof: `docs/mathematics/shift.md`; the inequality is the shifted interpolation of Bok, Su and Altschuler (2024),
optimised over its shifts. A chain may begin at a model that was not learned here (`reset.md`), and its steps may round
to a grid, which adds a little to mu (`grid.md`).
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

from lethe.proof import lookback
from lethe.proof.errors import DomainError, PreconditionError, require_count, require_nonnegative, require_order
from lethe.proof.lookback import NOTHING, Lookback
from lethe.proof.mechanism import Adjacency, Mechanism

THEOREM = "shifted-interpolation/1"
"""The id under which certificates cite the bound above."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """`steps` K >= 1 steps, before which `records` more of the dataset's records became null.

    Other edits before it: `inserted` null slots got a record, `corrected` slots got another record. `mechanism`: what
    it ran with, where that is not what the run before it ran with; without a grid step size, noise scale and cool-down
    may differ.
    """

    steps: int
    records: int = 0
    inserted: int = 0
    corrected: int = 0
    mechanism: Mechanism | None = None

    def __post_init__(self) -> None:
        require_count(1, steps=self.steps)
        require_count(0, records=self.records, inserted=self.inserted, corrected=self.corrected)

    @property
    def edits(self) -> int:
        """The change of the data, in records against null: a record against another record counts twice."""
        return self.records + self.inserted + 2 * self.corrected


@dataclass(frozen=True, kw_only=True)  # no slots: what follows from it is computed once
class Chain:
    """The state of one model's chain, in the `zero_out` adjacency.

    `steps`: all steps since the initial law. `edited`: of all `edits` since the first step, together. `runs`: what ran,
    oldest first, since the chain began or since whatever it began with (`distance` apart) is compared with anything.
    """

    mechanism: Mechanism
    steps: int = 0
    edits: int = 0
    edited: Lookback = NOTHING
    runs: tuple[tuple[Mechanism, int], ...] = ()
    distance: float = 0.0

    @cached_property
    def present(self) -> Lookback:
        """The lookback of one slot that differs since the first step and still does: a record not yet deleted, a slot
        not yet filled."""
        return lookback.present(self.runs)

    @property
    def presence(self) -> float:
        """W of such a slot, at the worst place."""
        return self.present.total

    @property
    def influence(self) -> float:
        """W of all that was edited, each at the worst place, and of what the chain began with."""
        return self.edited.total

    @cached_property
    def variance(self) -> float:
        """V: of all noise that is left in it."""
        noise = 0.0
        for mechanism, steps in self.runs:
            decay, variance = lookback.alike(mechanism, steps)
            noise = decay * decay * noise + variance
        return noise


def started(mechanism: Mechanism) -> Chain:
    """The chain before its first step: a draw from the initial law, which is the same whatever the data."""
    return Chain(mechanism=mechanism)


def imported(mechanism: Mechanism, *, steps: int = 0) -> Chain:
    """The chain at a model that was not learned here, or after `steps` about which nothing is known: any point of the
    ball, compared with any other (`reset.md`)."""
    require_count(0, steps=steps)
    distance = 2 * mechanism.radius
    return Chain(mechanism=mechanism, steps=steps, edited=lookback.apart(distance), distance=distance)


def advance(chain: Chain, run: Run) -> Chain:
    """The chain after `run`.

    Raises `PreconditionError` if `run` has a mechanism that cannot follow the chain's.
    """
    if not isinstance(run, Run):
        raise DomainError(f"Expected a Run, not {type(run).__name__}")
    mechanism = _following(chain.mechanism, run)
    decay, variance = lookback.alike(mechanism, run.steps)
    return replace(
        chain,
        mechanism=mechanism,
        steps=chain.steps + run.steps,
        edits=chain.edits + run.edits,
        edited=_also(chain, run.edits).followed(decay=decay, variance=variance),
        runs=(*chain.runs, (mechanism, run.steps)),
    )


def resume(chain: Chain, runs: Iterable[Run]) -> Chain:
    """The chain after all of `runs`."""
    for run in runs:
        chain = advance(chain, run)
    return chain


def replay(mechanism: Mechanism, runs: Iterable[Run], *, steps_before: int = 0) -> Chain:
    """The chain after all of `runs`, the first of which is learning, or follows `steps_before` (`compact`)."""
    return resume(imported(mechanism, steps=steps_before) if steps_before else started(mechanism), runs)


def replay_recent(mechanism: Mechanism, runs: Sequence[Run]) -> Chain:
    """The chain after all of `runs`, of which the old part is left out (`compact`)."""
    steps_before, recent = compact(mechanism, runs)
    return replay(mechanism, recent, steps_before=steps_before)


def erased(chain: Chain, *, records: int) -> Chain:
    """The chain when `records` >= 0 of it have just become null and no step has been run since."""
    require_count(0, records=records)
    return replace(chain, edits=chain.edits + records, edited=_also(chain, records))


def unlearning_mu(chain: Chain, *, records: int = 0) -> float:
    """Against learning from scratch: same steps, same initial law, on the data as they are now.

    Covers all edits so far together (influences add), and `records` >= 0 more that have just become null. For
    requests that do not depend on published models. Of an `imported` chain: against the same steps from any start.
    """
    require_count(0, records=records)
    return _mu(chain.mechanism, _also(chain, records))


def deletion_mu(chain: Chain, *, records: int, steps_present: int, steps_absent: int = 0) -> float:
    """Against the same history in which one person's `records` had been null from the start.

    `steps_absent`: steps of this chain that ran before they were inserted; until then both histories have the same
    law, so that the comparison begins there. `steps_present`: steps that ran from then until they were deleted. A run
    begins after each. Both >= 0, together <= chain.steps. For requests that do not depend on published models.
    """
    require_count(0, records=records, steps_present=steps_present, steps_absent=steps_absent)
    if steps_absent + steps_present > chain.steps:
        raise DomainError(f"Expected steps_present={steps_present} <= steps={chain.steps - steps_absent}")
    at = began = chain.steps - sum(steps for _, steps in chain.runs)
    came, deleted = max(steps_absent, began), max(steps_absent + steps_present, began)
    starts, own, later = {began}, list[_Ran](), list[_Ran]()
    for ran in chain.runs:
        if came <= at < deleted:
            own.append(ran)
        elif at >= deleted:
            later.append(ran)
        at += ran[1]
        starts.add(at)
    if not {came, deleted} <= starts:
        raise DomainError(f"Expected runs to begin after steps_absent={steps_absent} and steps_present={steps_present}")
    moved = lookback.present(tuple(own)).times(records)
    if steps_absent <= began:
        moved = moved.plus(_followed(lookback.apart(chain.distance), own))
    return _mu(chain.mechanism, _followed(moved, later))


def reset_mu(mechanism: Mechanism, *, steps: int) -> float:
    """`steps` >= 1 on the present data from any point of the ball, against the same steps from any other.

    Holds given the whole past: for imported models, for repair, and against an adversary who chose the requests.
    """
    require_count(1, steps=steps)
    return unlearning_mu(advance(imported(mechanism), Run(steps=steps)))


def restart_mu(mechanism: Mechanism, runs: Sequence[Run]) -> float:
    """Bound `unlearning` by a comparison that begins anew, 2R apart and without noise, before the best of `runs`.

    A second upper bound beside `unlearning_mu(replay(mechanism, runs))`, smaller where very much was edited long ago.
    Infinite if there is no run.
    """
    spelt = list(_spelt_out(mechanism, runs))
    afresh = (
        resume(imported(mechanism), [replace(run, records=0, inserted=0, corrected=0), *rest])
        for run, *rest in (spelt[first:] for first in range(len(spelt)))
    )
    return min(map(unlearning_mu, afresh), default=math.inf)


def renyi_divergence(*, mu: float, order: float) -> float:
    """D_alpha <= alpha mu^2 / 2 in both directions, for mu >= 0 and every order alpha > 1.

    >>> renyi_divergence(mu=0.5, order=8.0)
    1.0
    """
    require_nonnegative(mu=mu)
    require_order(order=order)
    return order * mu * mu / 2


@lru_cache(maxsize=4096, typed=True)  # most runs of a model take as many steps as one before
def release_mu(mechanism: Mechanism, *, steps: int, adjacency: Adjacency) -> float:
    """One record present throughout a run of `steps`: what its published result adds, given the version before it.

    For a first version, `steps` counts from the initial law. A run that reads not all batches adds nothing for most
    records; this is the number of one whose batch is read, at the worst place.
    """
    require_count(1, steps=steps)
    scale = mechanism.sensitivity(adjacency) / mechanism.sensitivity(Adjacency.ZERO_OUT)
    return scale * lookback.worst_mu(mechanism, steps) + mechanism.rounding_mu


@dataclass(frozen=True, slots=True, kw_only=True)
class Exposure:
    """Versions of one model that were published while a person's `records` were in its data.

    `releases`: pairs (steps of the run that made the version, number of such versions), steps ascending. `stretches`:
    into how many parts they fall of runs that follow each other in one chain, so that batches were read in turn.
    """

    mechanism: Mechanism
    records: int
    releases: tuple[tuple[int, int], ...]
    stretches: int = 1

    def __post_init__(self) -> None:
        require_count(1, records=self.records, stretches=self.stretches)
        for steps, count in self.releases:
            require_count(1, steps=steps, count=count)

    def moving(self) -> Iterator[tuple[int, int]]:
        """The releases (steps, count) that one record can have had a part in: all runs of a whole pass and more; of the
        shorter ones those that move it most, as many as there can have been visits to its place in them.

        All T steps visit a place T // batches + stretches times at most, and each whole pass of a long run is one of
        those. The steps of the short runs alone do not tell: long runs lie between them.
        """
        batches = self.mechanism.num_batches
        shorter = [(steps, count) for steps, count in self.releases if steps < batches]
        longer = [(steps, count) for steps, count in self.releases if steps >= batches]
        yield from longer
        visits = sum(steps * count for steps, count in self.releases) // batches + self.stretches
        visits -= sum(steps // batches * count for steps, count in longer)
        by_mu = sorted(shorter, key=lambda release: self._mu(release[0]), reverse=True)
        for steps, count in by_mu:
            if visits:
                yield steps, min(count, visits)
                visits -= min(count, visits)

    def _mu(self, steps: int) -> float:
        return release_mu(self.mechanism, steps=steps, adjacency=Adjacency.ZERO_OUT)


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
            for steps, count in exposure.moving()
        )
    )


def exposed(mechanism: Mechanism, runs: Counter[int], *, records: int, lost: int = 0) -> Exposure:
    """By so many runs of so many steps each, in which a chain begins wherever one learned. Of `lost` >= 0 of them it is
    not known what they followed."""
    stretches = 1 + runs[mechanism.learn_steps] + lost
    return Exposure(mechanism=mechanism, records=records, releases=tuple(sorted(runs.items())), stretches=stretches)


def tally(steps: Iterable[int]) -> tuple[tuple[int, int], ...]:
    """Steps of runs as the (steps, count) pairs of an `Exposure`."""
    return tuple(sorted(Counter(steps).items()))


def compact(mechanism: Mechanism, runs: Sequence[Run]) -> tuple[int, list[Run]]:
    """The same history without its old part, so that its length does not grow with the age of the model: how many steps
    that had, and the runs after it.

    What is older than the last steps that contract by 1e-18 is left out, `CUT` runs at a time: a replay of the
    history with a run more begins where the one before began. Whatever it was, `imported` covers it: any point of
    the ball, compared with any other. A history of several mechanisms is left as it is.

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
    """The runs that `compact` leaves, oldest first, of a history whose runs come with their numbers; no more of it is
    read than that and one run before. All ran with `mechanism`."""
    kept: list[Run] = []
    decay = 1.0
    for number, run in newest_first:
        if decay <= _FORGOTTEN and (number + 1) % CUT == 0:
            break
        kept.append(run)
        decay *= lookback.alike(mechanism, run.steps)[0]
    return kept[::-1]


_FORGOTTEN = 1e-18
CUT = 32


def _following(mechanism: Mechanism, run: Run) -> Mechanism:
    """The mechanism of `run`, after one that ran with `mechanism`; raises `PreconditionError` if it cannot follow."""
    made = run.mechanism
    if made is None:
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
        was, now = getattr(mechanism, name), getattr(made, name)
        if was != now:
            raise PreconditionError("same_problem", f"Expected {name}={now} to be {was}, as in the run before")
    if made != mechanism and (made.grid or mechanism.grid):
        raise PreconditionError("mechanism_constant", "Expected one mechanism in all runs of a chain on a grid")
    return made


def _spelt_out(mechanism: Mechanism, runs: Iterable[Run]) -> Iterator[Run]:
    """The runs, each with the mechanism it ran with."""
    for run in runs:
        mechanism = _following(mechanism, run)
        yield replace(run, mechanism=mechanism)


_Ran = tuple[Mechanism, int]


def _also(chain: Chain, edits: int) -> Lookback:
    """Add so many `edits` at the end of what was edited, each at the worst place."""
    return chain.edited.plus(chain.present.times(edits)) if edits else chain.edited


def _followed(moved: Lookback, runs: Iterable[_Ran]) -> Lookback:
    for mechanism, steps in runs:
        decay, variance = lookback.alike(mechanism, steps)
        moved = moved.followed(decay=decay, variance=variance)
    return moved


def _mu(mechanism: Mechanism, moved: Lookback) -> float:
    """The mu of what was moved, with what rounding to a grid adds to it."""
    if not all(0 <= number < math.inf for number in (*moved.noise, *moved.influence)):
        raise DomainError("Expected finite influence >= 0 and variance >= 0")
    return moved.mu + mechanism.rounding_mu if moved.total else 0.0
