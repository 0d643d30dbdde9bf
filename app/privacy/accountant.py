"""The accountant: two scalars per stretch of a chain, and every guarantee read off them.

Learning and unlearning are one chain of projected noisy gradient steps on a dataset whose slots are edited between
runs: a deleted record becomes null. Compare it with the chain that runs the same steps on other data from the same
initial law, and keep

    influence   W <- c W + s_t        s_t: how far the differing records move one noiseless step
    variance    V <- c^2 V + nu^2     nu^2 = 2 eta sigma^2

Then the last iterates are mu-indistinguishable (mu-GDP, in both directions) with mu = W / sqrt(V), where the noise
never fell. Where it did, mu is that of a string pulled tight under the path of the chain (`taut_string.py`), of which
this is the case of one piece. Proof: `docs/mathematics/shift.md`; the inequality is the shifted interpolation of Bok,
Su and Altschuler (2024), optimised over its shifts. A chain may begin at a model that was not learned here
(`reset.md`), and its steps may round to a grid, which adds a little to mu (`grid.md`).
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from app.privacy.errors import DomainError, PreconditionError, require_count, require_nonnegative, require_order
from app.privacy.mechanism import Adjacency, Mechanism
from app.privacy.taut_string import Span, faded, mu_of, periodic, restarts

THEOREM = "shifted-interpolation/1"
"""The id under which certificates cite the bound above."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """`steps` K >= 1 steps, before which `records` more of the dataset's records became null.

    Other edits before it: `inserted` null slots got a record, `corrected` slots got another record. `mechanism`: what
    it ran with, where that is not what the run before it ran with; without a grid step size and noise scale may differ.
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
        """How much the data changed, in records against null: a record against another record counts twice."""
        return self.records + self.inserted + 2 * self.corrected


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """Where one model's chain stands, in the `zero_out` adjacency.

    `steps`: all steps since the initial law. `variance`: V. `presence`: W of one slot that differs since the first
    step and still does (a record not yet deleted, a slot not yet filled). `influence`: sum of W over all `edits` since
    the first step. `distance`: what is left of the distance between the two starts. `constant`: every run so far had
    the same mechanism, the present `mechanism`. `parts`: the chain cut where its noise fell, none if it never did.
    """

    mechanism: Mechanism
    steps: int
    variance: float
    presence: float
    influence: float
    distance: float = 0.0
    edits: int = 0
    constant: bool = True
    parts: "tuple[Part, ...]" = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Runs of a chain during which its noise did not fall, as though nothing had been before them.

    `variance`, `presence` and `influence` at their end, as in `Chain`, and `decay`, the product of their contractions.
    `influence` is that of the `edits` since the first step of the chain; each one after them adds a `presence`.
    """

    variance: float = 0.0
    presence: float = 0.0
    influence: float = 0.0
    decay: float = 1.0
    edits: int = 0

    def span(self, edits: int) -> Span[float]:
        """What it adds to the path if there have been so many `edits` in all."""
        return Span(self.influence + (edits - self.edits) * self.presence, self.variance, self.decay)


def started(mechanism: Mechanism) -> Chain:
    """The chain before its first step: a draw from the initial law, which is the same whatever the data."""
    return Chain(mechanism=mechanism, steps=0, variance=0.0, presence=0.0, influence=0.0)


def imported(mechanism: Mechanism) -> Chain:
    """The chain at a model that was not learned here: any point of the ball, compared with any other (`reset.md`)."""
    return replace(started(mechanism), distance=2 * mechanism.radius)


def advance(chain: Chain, run: Run) -> Chain:
    """The chain after `run`. Splitting a run in two changes nothing: this is the recursion, summed.

    Raises `PreconditionError` if `run` has a mechanism that cannot follow the chain's.
    """
    if not isinstance(run, Run):
        raise DomainError(f"Expected a Run, not {type(run).__name__}")
    mechanism = _following(chain.mechanism, run)
    parts = chain.parts
    if chain.steps and mechanism.noise_scale < chain.mechanism.noise_scale:
        parts = (*(parts or (_whole(chain),)), Part(edits=chain.edits))
    steps = _with_one(mechanism, run.steps)
    variance, presence, influence = _recursion(chain, run, steps)
    return Chain(
        mechanism=mechanism,
        steps=chain.steps + run.steps,
        variance=variance,
        presence=presence,
        influence=influence,
        distance=faded(steps.decay, chain.distance),
        edits=chain.edits + run.edits,
        constant=chain.steps == 0 or (chain.constant and mechanism == chain.mechanism),
        parts=parts and (*parts[:-1], _longer(parts[-1], run, steps)),
    )


def resume(chain: Chain, runs: Iterable[Run]) -> Chain:
    """The chain after all of `runs`."""
    for run in runs:
        chain = advance(chain, run)
    return chain


def replay(mechanism: Mechanism, runs: Iterable[Run]) -> Chain:
    """The chain after all of `runs`, the first of which is learning."""
    return resume(started(mechanism), runs)


def erased(chain: Chain, *, records: int) -> Chain:
    """The chain when `records` >= 0 of it have just become null and no step has been run since."""
    require_count(0, records=records)
    return replace(chain, influence=chain.influence + records * chain.presence, edits=chain.edits + records)


def unlearning_mu(chain: Chain, *, records: int = 0) -> float:
    """Against learning from scratch: same steps, same initial law, on the data as they are now.

    Covers all edits so far together (influences add), and `records` >= 0 more that have just become null. For
    requests that do not depend on published models. Of an `imported` chain: against the same steps from any start.
    """
    require_count(0, records=records)
    if chain.parts:
        return _mu(chain.mechanism, [part.span(chain.edits + records) for part in chain.parts])
    return _mu_of_one(chain, chain.influence + records * chain.presence + chain.distance)


def deletion_mu(chain: Chain, *, records: int, steps_present: int, steps_absent: int = 0) -> float:
    """Against the same history in which one person's `records` had been null from the start.

    `steps_absent`: steps of this chain that ran before they were inserted; until then both histories have the same
    law, so that the comparison begins there, with W = V = 0. `steps_present`: steps that ran from then until they were
    deleted. Both >= 0, together <= chain.steps. For requests that do not depend on published models.

    Raises `PreconditionError` for a chain of several mechanisms: resume it over `alone`.
    """
    require_count(0, records=records, steps_present=steps_present, steps_absent=steps_absent)
    steps = chain.steps - steps_absent
    if steps_present > steps:
        raise DomainError(f"Expected steps_present={steps_present} <= steps={steps}")
    if not chain.constant:
        raise PreconditionError("mechanism_constant", "Expected one mechanism in all runs; follow the records alone")
    decay = chain.mechanism.contraction ** (steps - steps_present)
    influence = faded(decay, records * _with_one(chain.mechanism, steps_present).influence)
    if steps_absent:
        return _mu(chain.mechanism, [Span(influence, _with_one(chain.mechanism, steps).variance, 1.0)])
    return _mu_of_one(chain, influence + chain.distance)


def alone(
    mechanism: Mechanism, runs: Iterable[Run], *, records: int, steps_present: int, steps_absent: int = 0
) -> list[Run]:
    """The runs since one person's `records` came, in which nothing but their deletion is edited.

    `deletion` is `unlearning` of this history, also where mechanisms vary: resume it from `started`, or from
    `imported` if they were there when the model was. `steps_absent` and `steps_present` as in `deletion_mu`; a run
    begins after each, or `DomainError`.
    """
    require_count(0, records=records, steps_present=steps_present, steps_absent=steps_absent)
    own: list[Run] = []
    starts, steps = set[int](), 0
    deleted = steps_absent + steps_present
    for run in _spelt_out(mechanism, runs):
        starts.add(steps)
        if steps >= steps_absent:
            own.append(Run(steps=run.steps, records=records if steps == deleted else 0, mechanism=run.mechanism))
        steps += run.steps
    if not {steps_absent, deleted} <= starts:
        raise DomainError(f"Expected runs to begin after steps_absent={steps_absent} and after {deleted} steps")
    return own


def reset_mu(mechanism: Mechanism, *, steps: int) -> float:
    """`steps` >= 1 on the present data from any point of the ball, against the same steps from any other.

    Holds given the whole past: for imported models, for repair, and against whoever chose the requests.
    """
    require_count(1, steps=steps)
    return unlearning_mu(advance(imported(mechanism), Run(steps=steps)))


def restart_mu(mechanism: Mechanism, runs: Sequence[Run]) -> float:
    """What `unlearning` becomes if the comparison begins anew, 2R apart and without noise, before the best of `runs`.

    A second upper bound beside `unlearning_mu(replay(mechanism, runs))`, smaller where very much was edited long ago.
    The runs are read from the last to the first; infinite if there is none.
    """
    spans: list[Span[float]] = []
    differing = 0
    for run in reversed(list(_spelt_out(mechanism, runs))):
        alike = _with_one(run.mechanism or mechanism, run.steps)
        spans.append(replace(alike, influence=differing * alike.influence))
        differing += run.edits
    best = min(restarts(spans, apart=2 * mechanism.radius), default=math.inf)
    return best + mechanism.rounding_mu


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

    For a first version, `steps` counts from the initial law.
    """
    require_count(1, steps=steps)
    scale = mechanism.sensitivity(adjacency) / mechanism.sensitivity(Adjacency.ZERO_OUT)
    alike = _with_one(mechanism, steps)
    return _mu(mechanism, [replace(alike, influence=scale * alike.influence)])


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
    just before the youngest of them: an upper bound of every influence, and the same steps in all. A history of
    several mechanisms is left as it is.

    >>> from app.privacy.mechanism import Objective
    >>> m = Mechanism(objective=Objective.LOGISTIC_REGRESSION, num_slots=100, num_classes=2, l2=1.0, step_size=0.5,
    ...               noise_scale=1.0, radius=1.0, learn_steps=9)
    >>> [(r.steps, r.records) for r in compact(m, [Run(steps=9), Run(steps=70, records=1), Run(steps=80, records=2)])]
    [(79, 0), (80, 3)]
    """
    horizon = math.log(1e-18) / math.log(mechanism.contraction)
    age = 0
    if any(run.mechanism not in (None, mechanism) for run in runs):
        return list(runs)
    for index in range(len(runs) - 1, 1, -1):
        age += runs[index].steps
        if age >= horizon:
            older = Run(steps=sum(run.steps for run in runs[:index]))
            merged = runs[1 : index + 1]
            youngest = Run(
                steps=runs[index].steps,
                records=sum(run.records for run in merged),
                inserted=sum(run.inserted for run in merged),
                corrected=sum(run.corrected for run in merged),
            )
            return [older, youngest, *runs[index + 1 :]]
    return list(runs)


def _following(mechanism: Mechanism, run: Run) -> Mechanism:
    """The mechanism of `run`, after one that ran with `mechanism`; raises `PreconditionError` if it cannot follow."""
    made = run.mechanism
    if made is None:
        return mechanism
    for name in ("objective", "num_slots", "num_classes", "num_parameters", "l2", "radius"):
        was, now = getattr(mechanism, name), getattr(made, name)
        if was != now:
            raise PreconditionError("same_problem", f"Expected {name}={now} to be {was}, as in the run before")
    if made != mechanism and (made.grid or mechanism.grid):
        raise PreconditionError("mechanism_constant", "Expected one mechanism in all runs of a chain on a grid")
    return made


def _recursion(at: Chain | Part, run: Run, steps: Span[float]) -> tuple[float, float, float]:
    """Variance, presence and influence after `run`, whose `steps` these are."""
    return (
        steps.decay**2 * at.variance + steps.variance,
        steps.decay * at.presence + steps.influence,
        faded(steps.decay, at.influence + run.edits * at.presence),
    )


def _whole(chain: Chain) -> Part:
    """A chain that was not cut yet. Nothing is before it, so that its decay plays no part."""
    influence = chain.influence + chain.distance
    return Part(variance=chain.variance, presence=chain.presence, influence=influence, edits=chain.edits)


def _longer(part: Part, run: Run, steps: Span[float]) -> Part:
    """The last part of a chain after `run`, whose `steps` these are."""
    variance, presence, influence = _recursion(part, run, steps)
    return Part(
        variance=variance,
        presence=presence,
        influence=influence,
        decay=part.decay * steps.decay,
        edits=part.edits + run.edits,
    )


def _spelt_out(mechanism: Mechanism, runs: Iterable[Run]) -> Iterator[Run]:
    """The runs, each with the mechanism it ran with."""
    for run in runs:
        mechanism = _following(mechanism, run)
        yield replace(run, mechanism=mechanism)


def _with_one(mechanism: Mechanism, steps: int) -> Span[float]:
    """`steps` >= 0 in which one record differs, `zero_out`."""
    if not steps:
        return Span(0.0, 0.0, 1.0)
    s = mechanism.sensitivity(Adjacency.ZERO_OUT)
    return periodic(steps, contraction=mechanism.contraction, variance=mechanism.step_variance, push=s)


def _mu_of_one(chain: Chain, influence: float) -> float:
    """What `influence` on the last iterate amounts to under all the noise of a chain whose noise never fell."""
    return _mu(chain.mechanism, [Span(influence, chain.variance, 1.0)])


def _mu(mechanism: Mechanism, spans: Sequence[Span[float]]) -> float:
    """The mu of the string under `spans`, and what rounding to a grid adds to it."""
    for span in spans:
        if not (0 <= span.influence < math.inf and 0 <= span.variance < math.inf):
            raise DomainError("Expected finite influence >= 0 and variance >= 0")
    differs = any(span.influence for span in spans)
    return mu_of(spans) + mechanism.rounding_mu if differs else 0.0
