"""Lower bounds on a guarantee, proved from samples, to compare with the accountant's upper bounds.

An attacker guesses whether a record was present, by a rule fixed before seeing the samples. A mu-GDP guarantee allows
only true and false positive rates with Phi^-1(TPR) - Phi^-1(FPR) <= mu (Dong, Roth and Su 2022), an (epsilon, delta)
guarantee only TPR <= e^epsilon FPR + delta and its mirror (Kairouz, Oh and Viswanath 2015). Clopper-Pearson intervals
(1934) bound the rates from the counts, so that a claim is wrong with at most a stated probability.
"""

import math
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

# scipy loads scipy.special only when it is first used.
import scipy

from lethe.proof import accountant, conversion, errors, guarantees, methods
from lethe.proof.mechanism import Adjacency, Mechanism


@dataclass(frozen=True, slots=True, kw_only=True)
class Guesses:
    """Positive guesses made by a rule fixed beforehand on `members` independent samples with the record and
    `nonmembers` without it."""

    true_positives: int
    members: int
    false_positives: int
    nonmembers: int

    def __post_init__(self) -> None:
        errors.require_count(1, members=self.members, nonmembers=self.nonmembers)
        errors.require_count(0, true_positives=self.true_positives, false_positives=self.false_positives)
        if self.true_positives > self.members or self.false_positives > self.nonmembers:
            raise errors.DomainError("Expected no more positives than samples")


def at_least(hits: int, trials: int, *, error: float) -> float:
    """Return a lower bound on the hit probability that is wrong with probability at most `error` (Clopper and Pearson).

    >>> round(at_least(0, 10, error=0.05), 6), round(at_least(10, 10, error=0.05), 6)
    (0.0, 0.741134)
    """
    errors.require_count(1, trials=trials)
    errors.require_count(0, hits=hits)
    errors.require_fraction(error=error)
    if hits > trials:
        raise errors.DomainError(f"Expected hits={hits} <= trials={trials}")
    return float(scipy.special.betaincinv(hits, trials - hits + 1, error)) if hits else 0.0


def at_most(hits: int, trials: int, *, error: float) -> float:
    """Return an upper bound on the hit probability that is wrong with probability at most `error`."""
    return 1 - at_least(trials - hits, trials, error=error)


def chance_of_squares(squares: float, count: int) -> float:
    """Return the two-sided probability of a sum of squares of `count` standard normals as extreme as `squares`."""
    return float(2 * min(scipy.special.chdtr(count, squares), scipy.special.chdtrc(count, squares)))


def mu_of_right_guesses(right: int, trials: int, *, error: float) -> float:
    """Return a lower bound on mu, given `right` correct guesses on `trials` samples, half of which contain the record.
    The bound is >= 0 and wrong with probability at most `error` <= 1/4.

    For a sample with the record and one without, the probabilities of a correct guess add up to at most 2 Phi(mu/2), so
    a single bound on their mean is sufficient (Hoeffding 1956).

    >>> round(mu_of_right_guesses(239, 256, error=0.05), 6)
    2.586695
    """
    if error > 0.25:
        raise errors.DomainError(f"Expected error={error} <= 1/4")
    return max(0.0, 2 * float(scipy.special.ndtri(at_least(right, trials, error=error))))


# ---------------------------------------------------------------------------------------------- canary test of a run

Array = npt.NDArray[Any]

FALSE_ALARM = 1e-6
"""Maximum probability that the lanes of a correct run show a fault: one run in a million."""
_TESTS = 3
"""Number of shares into which FALSE_ALARM is divided: one for the guesses, two for noise, forgetting and schedule."""
ERROR = FALSE_ALARM / _TESTS
"""Maximum probability that a reported lower bound is wrong. It equals that of the test that refuses a run for its
guesses, so that a bound above the certified value refuses the run and is never reported."""
_DOWN = 1 - 2.0**-40
"""Factor that lowers a lower bound by more than its rounding error."""
APART = 2.5
"""Distance in standard deviations between lanes with and without a canary at the end of a run. At this distance, a
bound from few samples is tightest, and a few hundred lanes can refute a guarantee."""
_FARTHEST = 1e6
"""Maximum distance between such lanes at the start of a run, in standard deviations; beyond it, rounding would show."""
_WITNESSED = 1e6
"""Maximum number of standard deviations by which witnesses move a lane in a run. Witnesses are artificial and stay, so
this can be large, and lanes then reveal a batch that was read one step early."""
_LANES_OF_GROUP, _MAX_GROUPS, _DIFFERENT_BATCHES = 16, 64, 4096
MAX_LANES = 2**18
"""Maximum number of lanes: those of a test on request for a model with the most lanes and the most chains."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryPlan:
    """Plan of a canary test in a run of `steps` >= 1, with an even number of `lanes` (see `Law`), half with a canary.

    A learning run (`steps_before` = 0) starts at the origin and keeps its canaries throughout. A run that continues a
    chain of `steps_before` steps with canaries forgets them."""

    lanes: int
    steps_before: int
    steps: int

    def __post_init__(self) -> None:
        errors.require_count(2, lanes=self.lanes)
        errors.require_count(0, steps_before=self.steps_before)
        errors.require_count(1, steps=self.steps)
        if self.lanes % 2 or self.lanes > MAX_LANES:
            raise errors.DomainError(f"Expected lanes={self.lanes} even and at most {MAX_LANES}")

    @property
    def notion(self) -> guarantees.Notion:
        """Notion that the lanes can refute: `deletion` for a forgotten canary, `release` for one still present."""
        return guarantees.Notion.DELETION if self.steps_before else guarantees.Notion.RELEASE

    @property
    def groups(self) -> int:
        """Number of groups of lanes with different witnesses: lanes i and i + lanes/2 are in group i mod `groups`."""
        return min(_MAX_GROUPS, max(1, self.lanes // _LANES_OF_GROUP))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Law:
    """Joint distribution of the lanes in a correct run. Derivation: `docs/mathematics/lanes.md`.

    A lane is a coordinate that no row touches, so only the regulariser, the noise, its canary and its witnesses move
    it. A canary consists of worst-case `records` with a linear loss in the batch `place`. Lanes i and i + lanes/2 have
    the same place, and only the first of them has a canary. Lanes with a canary start a run around `start`, the others
    around 0, all with variance `start_variance`. A full-size step that reads a canary's batch adds `push` while the
    canary is present. Lanes with a canary end around `mean`. All lanes end with `variance`, of which this run, whose
    contraction is `decay`, added `unforeseen`.

    Witnesses resemble canaries but are in every lane and every batch, from the first step of the run to its last. Their
    number differs between batches and groups: a full-size step that reads batch b adds
    `witnesses[b mod len(witnesses), g]` to all lanes of group g, which sums to `witnessed[g]` over a run."""

    records: int
    place: Array  # (lanes / 2,) whole numbers
    start: Array  # (lanes / 2,)
    start_variance: float
    push: float
    mean: Array  # (lanes / 2,)
    decay: float
    unforeseen: float
    variance: float
    witnesses: Array  # (batches that differ, groups)
    witnessed: Array  # (groups,)


def law(mechanism: Mechanism, plan: CanaryPlan, *, records: int | None = None) -> Law:
    """Return the law of the lanes in a run, whatever its method.

    A canary has `records` worst-case records, by default as many as it takes to move the lane at the worst place by
    `APART`.
    """
    of_lanes: Law = methods.of(mechanism).law(mechanism, plan, records)
    return of_lanes


def law_of_steps(mechanism: Mechanism, plan: CanaryPlan, records: int | None) -> Law:
    """Return the law of the lanes in a run of noisy steps. The canaries are spread evenly over the batches, one of them
    in the batch with the largest effect."""
    steps_before, steps, sensitivity = plan.steps_before, plan.steps, mechanism.sensitivity(Adjacency.ZERO_OUT)
    before, effect = _run(mechanism, steps_before, first=0), _run(mechanism, steps, first=steps_before)
    start, mean = before.moved, effect.decay * before.moved if steps_before else effect.moved
    variance = effect.decay**2 * before.variance + effect.variance
    stride = max(1, mechanism.num_batches // (plan.lanes // 2))
    place = (np.argmax(np.abs(mean)) + np.arange(plan.lanes // 2) * stride) % mechanism.num_batches
    start, mean = start[place], mean[place]
    witnesses, witnessed = _witnesses(effect, plan.groups)
    if records is None:
        apart = APART * math.sqrt(variance) / most if (most := float(np.abs(mean).max())) else math.inf
        far = float(np.abs(start).max())
        farthest = _FARTHEST * math.sqrt(before.variance) / far if far else math.inf
        records = max(1, math.ceil(min(apart, farthest, errors.LARGEST_COUNT)))
    return Law(
        records=records,
        place=place,
        start=records * start,
        start_variance=before.variance,
        push=records * sensitivity,
        mean=records * mean,
        decay=effect.decay,
        unforeseen=effect.variance,
        variance=variance,
        witnesses=sensitivity * witnesses,
        witnessed=witnessed,
    )


@lru_cache(maxsize=1)
def _amounts() -> Array:
    """Return fixed, public pseudo-random numbers in (-1, 1) that distinguish the batches."""
    drawn: Array = np.random.default_rng(0).uniform(-1, 1, (_DIFFERENT_BATCHES, _MAX_GROUPS))
    return drawn


def _witnesses(run: "_Run", groups: int) -> tuple[Array, Array]:
    """Return the numbers of witness records and the means to which they move the lanes."""
    different = np.arange(len(run.moved)) % _DIFFERENT_BATCHES
    amounts = _amounts()[: len(run.moved), :groups]
    moved, far = (np.bincount(different, weights=weights) for weights in (run.moved, np.abs(run.moved)))
    records = _WITNESSED * math.sqrt(run.variance) / float((far @ np.abs(amounts)).max())
    return records * amounts, records * (moved @ amounts)


@dataclass(frozen=True, slots=True, eq=False)
class _Run:
    """Effect of a run on lanes: the distance `moved` by one record at each place, the factor `decay` applied to earlier
    values, and the variance of the run's noise."""

    moved: Array  # (num_batches,)
    decay: float
    variance: float


@lru_cache(maxsize=64)
def _run(mechanism: Mechanism, steps: int, *, first: int) -> _Run:
    """Return the effect of `steps` >= 0 steps, the first of which is step `first` of the chain."""
    keep, sensitivity = 1 - mechanism.step_size * mechanism.strong_convexity, mechanism.sensitivity(Adjacency.ZERO_OUT)
    batches, steady = mechanism.num_batches, mechanism.steady(steps)
    moved, order = np.zeros(batches), (first + np.arange(batches)) % batches
    # Steps since a place was last read, in the order of reading.
    since = (steady - 1 - np.arange(batches)) % batches
    visits = (steady - since + batches - 1 - np.arange(batches)) // batches
    every = keep**batches
    moved[order] = sensitivity * keep**since * np.array([_summed(every, count) for count in visits])
    variance, decay = mechanism.step_variance * _summed(keep**2, steady), keep**steady
    for step in range(steady, steps):
        share = (steps - step) / mechanism.cool_down
        slower = 1 - share * mechanism.step_size * mechanism.strong_convexity
        moved *= slower
        moved[(first + step) % batches] += share * sensitivity
        variance, decay = slower**2 * variance + share * mechanism.step_variance, slower * decay
    return _Run(moved, decay, variance)


def _summed(ratio: float, terms: int) -> float:
    """Return 1 + ratio + ... + ratio^(terms - 1), for |ratio| < 1."""
    last = -math.expm1(terms * math.log(ratio)) if ratio > 0 else 1 - ratio**terms
    return last / (1 - ratio)


# Cached because a run's certificates and its record state the same number.
@lru_cache(maxsize=256)
def certified_mu(mechanism: Mechanism, plan: CanaryPlan, *, records: int = 1) -> float:
    """Return the certified mu (`zero_out`) of `records` records in a run: the release mu for a learning run, otherwise
    the deletion mu."""
    method = methods.of(mechanism)
    before = plan.steps_before if method.continues else 0
    chain = methods.replay(mechanism, [accountant.Run(steps=k) for k in (before, plan.steps) if k])
    return method.deletion_mu(chain, records=records, steps_present=before if plan.steps_before else plan.steps)


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """Statistics of the lanes of one run: counts, and sums of normalised residuals.

    Attributes:
        squares: Sum of squared residuals, each less the mean of its group. If the noise is correct, the sum follows
            chi^2 with (lanes - groups) degrees of freedom.
        drift: Residuals less group means, projected onto the lanes' starts (in a learning run, onto the canaries). It
            is standard normal if steps, contraction and canaries are correct.
        visits: Sum of squared group means. It follows chi^2 with `groups` degrees of freedom if batches were read in
            the right order and with the right step sizes.
    """

    plan: CanaryPlan
    records: int
    guesses: Guesses
    squares: float
    drift: float
    visits: float

    def __post_init__(self) -> None:
        errors.require_count(1, records=self.records)
        errors.require_nonnegative(squares=self.squares, visits=self.visits)
        errors.require_finite(drift=self.drift)
        if not self.guesses.members == self.guesses.nonmembers == self.plan.lanes // 2:
            raise errors.DomainError("Expected a guess for every lane")

    def findings(self, mechanism: Mechanism) -> tuple[str, ...]:
        """Return the faults found in the run. The total probability of a false finding is at most `FALSE_ALARM`.

        Raises `PreconditionError` if the canaries do not represent the plan's number of records.
        """
        return _findings(self, mechanism, FALSE_ALARM / _TESTS)

    def deviations(self, *, error: float = FALSE_ALARM - ERROR) -> tuple[str, ...]:
        """Return the deviations from the law of the lanes, for any number of records in a canary. The total probability
        of a false deviation is at most `error`."""
        groups, free = self.plan.groups, self.plan.lanes - self.plan.groups
        chances = {
            "noise": chance_of_squares(self.squares, free),
            "forgetting": 2 * scipy.special.ndtr(-abs(self.drift)),
            "schedule": scipy.special.chdtrc(groups, self.visits),
        }
        return tuple(name for name, chance in chances.items() if not chance >= error / len(chances))

    def proved(self, error: float) -> float:
        """Return a lower bound on the joint mu of all records in a canary."""
        right = self.guesses.true_positives + self.guesses.nonmembers - self.guesses.false_positives
        return mu_of_right_guesses(right, self.plan.lanes, error=error)

    def counted(self) -> dict[str, Any]:
        """Return the counts and sums that `from_json` reads."""
        counts = {"records": self.records, "guesses": asdict(self.guesses)}
        sums = {"squares": self.squares, "drift": self.drift, "visits": self.visits}
        return asdict(self.plan) | counts | sums

    def to_json(self, mechanism: Mechanism, *, delta: float) -> dict[str, Any]:
        """Return the counts, the certified values and the lower bounds that the counts imply for one record. Unless
        there is a finding about the guarantee, a lower bound never exceeds the certified value."""
        mu, proved = certified_mu(mechanism, self.plan), self.proved(ERROR) / self.records * _DOWN
        return self.counted() | {
            "notion": self.plan.notion.value,
            "mu": mu,
            "epsilon": conversion.gdp_epsilon(mu=mu, delta=delta),
            "mu_lower_bound": proved,
            "epsilon_lower_bound": conversion.gdp_epsilon_below(mu=proved, delta=delta),
            "error": ERROR,
            "findings": list(self.findings(mechanism)),
        }

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> "Observed":
        plan = CanaryPlan(**{name: document[name] for name in ("lanes", "steps_before", "steps")})
        rest = {name: document[name] for name in ("records", "squares", "drift", "visits")}
        return cls(plan=plan, guesses=Guesses(**document["guesses"]), **rest)


# Cached because every certificate of a run asks for the same findings.
@lru_cache(maxsize=256)
def _findings(observed: Observed, mechanism: Mechanism, error: float) -> tuple[str, ...]:
    planned = law(mechanism, observed.plan).records
    # The number is rounded up from values that may differ in the last bit on another machine.
    if abs(observed.records - planned) > 1:
        raise errors.PreconditionError(
            "records_of_plan", f"Expected records={observed.records} in a canary to be {planned}"
        )
    certified = certified_mu(mechanism, observed.plan, records=observed.records)
    deviations = observed.deviations(error=(_TESTS - 1) * error)
    return (*(["guarantee"] if observed.proved(error) > certified else []), *deviations)
