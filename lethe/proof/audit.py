"""Lower bounds on a guarantee, proved by samples, to stand beside the accountant's upper bounds.

An attacker who guesses by a rule that was fixed before the samples whether a record was in has a true and a false
positive rate; a mu-GDP guarantee allows only pairs with Phi^-1(TPR) - Phi^-1(FPR) <= mu (Dong, Roth and Su 2022), an
(epsilon, delta) one only TPR <= e^epsilon FPR + delta and its mirror (Kairouz, Oh and Viswanath 2015). Counted rates
are bounded by Clopper and Pearson (1934), so that whatever is claimed is wrong with a stated probability at most.
"""

import math
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import special

from lethe.proof import accountant, conversion
from lethe.proof.errors import (
    LARGEST_COUNT,
    DomainError,
    PreconditionError,
    require_count,
    require_finite,
    require_fraction,
    require_nonnegative,
)
from lethe.proof.guarantees import Notion
from lethe.proof.mechanism import Adjacency, Mechanism


@dataclass(frozen=True, slots=True, kw_only=True)
class Guesses:
    """Counts of a rule fixed beforehand that said "in": of `members` independent samples that had the record, and of
    `nonmembers` that had not."""

    true_positives: int
    members: int
    false_positives: int
    nonmembers: int

    def __post_init__(self) -> None:
        require_count(1, members=self.members, nonmembers=self.nonmembers)
        require_count(0, true_positives=self.true_positives, false_positives=self.false_positives)
        if self.true_positives > self.members or self.false_positives > self.nonmembers:
            raise DomainError("Expected no more positives than samples")


def at_least(hits: int, trials: int, *, error: float) -> float:
    """A bound below the probability of a hit, wrong with probability at most `error` (Clopper and Pearson).

    >>> round(at_least(0, 10, error=0.05), 6), round(at_least(10, 10, error=0.05), 6)
    (0.0, 0.741134)
    """
    require_count(1, trials=trials)
    require_count(0, hits=hits)
    require_fraction(error=error)
    if hits > trials:
        raise DomainError(f"Expected hits={hits} <= trials={trials}")
    return float(special.betaincinv(hits, trials - hits + 1, error)) if hits else 0.0


def at_most(hits: int, trials: int, *, error: float) -> float:
    """A bound above the probability of a hit, wrong with probability at most `error`."""
    return 1 - at_least(trials - hits, trials, error=error)


def mu_at_least(guesses: Guesses, *, error: float) -> float:
    """The greatest mu >= 0 that the guesses refute every smaller guarantee of; wrong with probability <= `error`."""
    true, false = _corner(guesses, error)
    return max(0.0, float(special.ndtri(true) - special.ndtri(false))) if true > 0 and false < 1 else 0.0


def mu_of_right_guesses(right: int, trials: int, *, error: float) -> float:
    """As `mu_at_least`, of as many samples that had the record as that had not, for `error` <= 1/4: of a guess in both
    the chances add up to 2 Phi(mu/2) at most, so that one bound is enough, of their mean (Hoeffding 1956).

    >>> round(mu_of_right_guesses(239, 256, error=0.05), 6)
    2.586695
    """
    if error > 0.25:
        raise DomainError(f"Expected error={error} <= 1/4")
    return max(0.0, 2 * float(special.ndtri(at_least(right, trials, error=error))))


def epsilon_at_least(guesses: Guesses, *, delta: float, error: float) -> float:
    """The greatest epsilon >= 0 such that no (smaller, delta) guarantee allows the guesses, in either direction; wrong
    with probability <= `error`."""
    require_nonnegative(delta=delta)
    true, false = _corner(guesses, error)
    directions = ((true, false), (1 - false, 1 - true))
    proved = (math.log((hit - delta) / miss) for hit, miss in directions if hit > delta and miss > 0)
    return max(0.0, max(proved, default=0.0))


def _corner(guesses: Guesses, error: float) -> tuple[float, float]:
    """At least the true and at most the false positive rate, both together but for probability `error`."""
    require_fraction(error=error)
    true = at_least(guesses.true_positives, guesses.members, error=error / 2)
    return true, at_most(guesses.false_positives, guesses.nonmembers, error=error / 2)


# ----------------------------------------------------------------------------------------------- the audit of a run

Array = npt.NDArray[Any]

FALSE_ALARM = 1e-6
"""The probability at most with which a run that is as it should be fails its audit: one run in a million."""
_TESTS = 3
"""Shares of it: one for the guesses; the others for noise, forgetting and schedule, which have as much each."""
ERROR = FALSE_ALARM / _TESTS
"""The probability at most with which a reported lower bound is wrong: that of the test which refuses a run for its
guesses, so that whatever exceeds what is certified is refused and never reported."""
_DOWN = 1 - 2.0**-40
"""A bound from below goes down by more than its arithmetic rounds."""
_APART = 2.5
"""Standard deviations between lanes with and without a canary at the end, where a bound from few samples is tightest,
and some hundreds of them can refute a guarantee."""
_FARTHEST = 1e6
"""Standard deviations between them at the start of a run, at most: beyond it rounding would be seen."""
_WITNESSED = 1e6
"""Standard deviations by which the witnesses of a lane can move it in a run, at most: as far as that, since they are
invented and stay, so that lanes show whether a batch was read one step too early."""
_LANES_OF_GROUP, _MOST_GROUPS, _DIFFERENT_BATCHES = 16, 64, 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditPlan:
    """An even number of `lanes`, half of them with a canary. A run of `steps` >= 1 that learns from the origin
    (`steps_before` = 0) has the canaries throughout; one that continues a chain of `steps_before`, in which they were
    present, forgets them."""

    lanes: int
    steps_before: int
    steps: int

    def __post_init__(self) -> None:
        require_count(2, lanes=self.lanes)
        require_count(0, steps_before=self.steps_before)
        require_count(1, steps=self.steps)
        if self.lanes % 2:
            raise DomainError(f"Expected lanes={self.lanes} even")

    @property
    def notion(self) -> Notion:
        """The guarantee that the lanes can refute: of a canary that was forgotten, or of one that is still there."""
        return Notion.DELETION if self.steps_before else Notion.RELEASE

    @property
    def groups(self) -> int:
        """Number of groups of lanes, which differ by their witnesses: lanes i and i + lanes/2 are in group
        i mod `groups`."""
        return min(_MOST_GROUPS, max(1, self.lanes // _LANES_OF_GROUP))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Law:
    """The law that the lanes of a run obey if the run is as it should be; its derivation is
    `docs/mathematics/lanes.md`.

    A lane is a coordinate that no row touches, so that only the regulariser, the noise, its canary and its witnesses
    move it. A canary is as many worst-case `records`, with a linear loss, in the batch `place`. Lanes i and i + lanes/2
    have the same place, and of the two only the first has a canary. Lanes with a canary start a run about `start`, the
    others about 0, all of them with variance `start_variance`. A step that reads a canary's batch at the full step size
    adds `push` as long as the canary is there. Lanes with a canary end about `mean`; all have `variance` then, of which
    `unforeseen` came in this run, which multiplies what was there by `decay`.

    Witnesses are like canaries, but in every lane, in every batch, and there from the first step of the run to its
    last. How many they are differs from batch to batch and from group to group: a step that reads batch b at the full
    step size adds `witnesses[b mod len(witnesses), g]` to all lanes of group g, which a run makes `witnessed[g]`.
    """

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


def law(mechanism: Mechanism, plan: AuditPlan, *, records: int | None = None) -> Law:
    """`records`: worst-case records in a canary; by default as many as take the lane of the worst place `_APART` away.

    There is a canary in as many batches as there are canaries, evenly over all of them, in the one where it is moved
    most too.
    """
    steps_before, steps, one = plan.steps_before, plan.steps, mechanism.sensitivity(Adjacency.ZERO_OUT)
    before, here = _run(mechanism, steps_before, first=0), _run(mechanism, steps, first=steps_before)
    start, mean = before.moved, here.decay * before.moved if steps_before else here.moved
    variance = here.decay**2 * before.variance + here.variance
    place = _places(mechanism.num_batches, plan.lanes // 2, worst=int(np.argmax(np.abs(mean))))
    start, mean = start[place], mean[place]
    witnesses, witnessed = _witnesses(here, plan.groups)
    if records is None:
        apart = _APART * math.sqrt(variance) / most if (most := float(np.abs(mean).max())) else math.inf
        far = float(np.abs(start).max())
        farthest = _FARTHEST * math.sqrt(before.variance) / far if far else math.inf
        records = max(1, math.ceil(min(apart, farthest, LARGEST_COUNT)))
    return Law(
        records=records,
        place=place,
        start=records * start,
        start_variance=before.variance,
        push=records * one,
        mean=records * mean,
        decay=here.decay,
        unforeseen=here.variance,
        variance=variance,
        witnesses=one * witnesses,
        witnessed=witnessed,
    )


def _places(num_batches: int, canaries: int, *, worst: int) -> Array:
    return (worst + np.arange(canaries) * max(1, num_batches // canaries)) % num_batches


@lru_cache(maxsize=1)
def _amounts() -> Array:
    """Numbers in (-1, 1) that tell batches apart: drawn once, of no secret, and the same for every run."""
    drawn: Array = np.random.default_rng(0).uniform(-1, 1, (_DIFFERENT_BATCHES, _MOST_GROUPS))
    return drawn


def _witnesses(run: "_Run", groups: int) -> tuple[Array, Array]:
    """Return how many records the witnesses are, and where they move lanes."""
    different = np.arange(len(run.moved)) % _DIFFERENT_BATCHES
    amounts = _amounts()[: len(run.moved), :groups]
    moved, far = (np.bincount(different, weights=weights) for weights in (run.moved, np.abs(run.moved)))
    records = _WITNESSED * math.sqrt(run.variance) / float((far @ np.abs(amounts)).max())
    return records * amounts, records * (moved @ amounts)


@dataclass(frozen=True, slots=True, eq=False)
class _Run:
    """The effect of a run on lanes: `moved` by one record, by its place; `decay`, which multiplies what was there; and
    the variance of its noise."""

    moved: Array  # (num_batches,)
    decay: float
    variance: float


@lru_cache(maxsize=64)
def _run(mechanism: Mechanism, steps: int, *, first: int) -> _Run:
    """Compute the effect of `steps` >= 0, the first of which reads the batch of step `first` of the chain."""
    keep, one = 1 - mechanism.step_size * mechanism.strong_convexity, mechanism.sensitivity(Adjacency.ZERO_OUT)
    batches, steady = mechanism.num_batches, mechanism.steady(steps)
    moved, order = np.zeros(batches), (first + np.arange(batches)) % batches
    since = (steady - 1 - np.arange(batches)) % batches  # steps since a place was last read, in the order of reading
    visits = (steady - since + batches - 1 - np.arange(batches)) // batches
    every = keep**batches
    moved[order] = one * keep**since * np.array([_summed(every, count) for count in visits])
    variance, decay = mechanism.step_variance * _summed(keep**2, steady), keep**steady
    for step in range(steady, steps):
        share = (steps - step) / mechanism.cool_down
        slower = 1 - share * mechanism.step_size * mechanism.strong_convexity
        moved *= slower
        moved[(first + step) % batches] += share * one
        variance, decay = slower**2 * variance + share * mechanism.step_variance, slower * decay
    return _Run(moved, decay, variance)


def _summed(ratio: float, terms: int) -> float:
    """1 + ratio + ... + ratio^(terms - 1), for |ratio| < 1."""
    last = -math.expm1(terms * math.log(ratio)) if ratio > 0 else 1 - ratio**terms
    return last / (1 - ratio)


def certified_mu(mechanism: Mechanism, plan: AuditPlan, *, records: int = 1) -> float:
    """The mu that the accountant certifies of `records` in a run (`zero_out`): of the release if it learned, else of
    the deletion."""
    steps_before, steps = plan.steps_before, plan.steps
    chain = accountant.replay(mechanism, [accountant.Run(steps=k) for k in (steps_before, steps) if k])
    return accountant.deletion_mu(chain, records=records, steps_present=steps_before or steps)


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """Statistics of the lanes of one run: counts, and sums of normalised residuals, from which all else follows.

    `squares`: of the squares of the residuals, each less the mean of its group, chi^2 with as many degrees of freedom
    as lanes less groups if the noise is right.
    `drift`: of the residuals along where the lanes came from (learning, along the canaries), groups' means apart,
    standard normal if steps, contraction and canaries are right.
    `visits`: of the squares of the groups' means, chi^2 with as many degrees of freedom as groups if batches were read
    in their turn, by steps of the size that was theirs.
    """

    plan: AuditPlan
    records: int
    guesses: Guesses
    squares: float
    drift: float
    visits: float

    def __post_init__(self) -> None:
        require_count(1, records=self.records)
        require_nonnegative(squares=self.squares, visits=self.visits)
        require_finite(drift=self.drift)
        if not self.guesses.members == self.guesses.nonmembers == self.plan.lanes // 2:
            raise DomainError("Expected a guess for every lane")

    def findings(self, mechanism: Mechanism) -> tuple[str, ...]:
        """Name the faults of the run; all of them together are wrong with probability <= `FALSE_ALARM`.

        Raises `PreconditionError` if its canaries did not stand for as many records as those of the plan.
        """
        return _findings(self, mechanism, FALSE_ALARM / _TESTS)

    def deviations(self, *, error: float = FALSE_ALARM - ERROR) -> tuple[str, ...]:
        """The findings about the law of the lanes, for any number of records in their canaries; all of them together
        are wrong with probability <= `error`."""
        groups, free = self.plan.groups, self.plan.lanes - self.plan.groups
        chances = {
            "noise": 2 * min(special.chdtr(free, self.squares), special.chdtrc(free, self.squares)),
            "forgetting": 2 * special.ndtr(-abs(self.drift)),
            "schedule": special.chdtrc(groups, self.visits),
        }
        return tuple(name for name, chance in chances.items() if not chance >= error / len(chances))

    def proved(self, error: float) -> float:
        """A bound below mu of all the records in a canary."""
        right = self.guesses.true_positives + self.guesses.nonmembers - self.guesses.false_positives
        return mu_of_right_guesses(right, self.plan.lanes, error=error)

    def counted(self) -> dict[str, Any]:
        """The document that `from_json` reads."""
        counts = {"records": self.records, "guesses": asdict(self.guesses)}
        sums = {"squares": self.squares, "drift": self.drift, "visits": self.visits}
        return asdict(self.plan) | counts | sums

    def to_json(self, mechanism: Mechanism, *, delta: float) -> dict[str, Any]:
        """With everything that follows: for one record, what is certified, and what the lanes prove at least. Without
        a finding about the guarantee the second is no more than the first."""
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
        plan = AuditPlan(**{name: document[name] for name in ("lanes", "steps_before", "steps")})
        rest = {name: document[name] for name in ("records", "squares", "drift", "visits")}
        return cls(plan=plan, guesses=Guesses(**document["guesses"]), **rest)


@lru_cache(maxsize=256)  # the same for every certificate of a run
def _findings(observed: Observed, mechanism: Mechanism, error: float) -> tuple[str, ...]:
    planned = law(mechanism, observed.plan).records
    if abs(observed.records - planned) > 1:  # rounded up from what another machine's library may see otherwise
        raise PreconditionError("records_of_plan", f"Expected records={observed.records} in a canary to be {planned}")
    certified = certified_mu(mechanism, observed.plan, records=observed.records)
    deviations = observed.deviations(error=(_TESTS - 1) * error)
    return (*(["guarantee"] if observed.proved(error) > certified else []), *deviations)
