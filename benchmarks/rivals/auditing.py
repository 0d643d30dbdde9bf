"""What published weights still tell of one planted record, from below.

Many runs with the record, which then asks to be forgotten, and as many in which its slot was null from the start. Two
questions: the version after the request alone, against the rival's own reference; and both versions, before and after,
which is what anybody sees who reads what is published. A linear discriminant and its threshold are chosen on some of
the runs; the others are counted, and bounded by Clopper and Pearson (`lethe/proof/canary_test.py`).

A rival whose runs all give the same bits needs no counting: it is told apart with certainty, or not at all.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from rich.progress import track
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from benchmarks.refuting import epsilon_at_least, mu_at_least
from benchmarks.rivals.problems import Problem
from benchmarks.rivals.rival import Certified, Rival
from lethe.proof.canary_test import Guesses

FAMILY_ERROR = 0.05
BOUNDS_PER_RIVAL = 4  # mu and epsilon, after and both
_THRESHOLDS = np.linspace(0.02, 0.98, 49)
_PROBES = 3

Samples = NDArray[np.float64]  # (runs, numbers published)


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """A lower bound of what the samples tell; infinite or 0 without an error where nothing is random."""

    deterministic: bool
    mu: float
    epsilon: float
    mu_guesses: Guesses | None
    epsilon_guesses: Guesses | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Audited:
    rival: str
    title: str
    runs: int  # counted, of each kind
    certified_epsilon: float | None
    certified_adaptive_epsilon: float | None
    after: Told
    both: Told


def audit(rival: Rival, problem: Problem, row: int, *, choosing: int, counting: int, error: float) -> Audited:
    """`choosing` and `counting` runs of each kind; each bound is wrong with probability at most `error`."""
    delta, kinds = problem.setting.delta, (True, False)
    runs = {present: [_run(rival, problem, row, present) for _ in range(_PROBES)] for present in kinds}
    same = all(np.array_equal(one[:2], runs[present][0][:2]) for present in kinds for one in runs[present])
    if not same:
        for present in kinds:
            more = track(range(choosing + counting - _PROBES), f"{rival.title}, {'in' if present else 'out'}")
            runs[present] += [_run(rival, problem, row, present) for _ in more]
    members, others = (np.array([one[:2] for one in runs[present]]) for present in kinds)  # (runs, 2, numbers)
    reference = others[:, 0 if rival.relearns_as_reference else 1]

    def tell(member: Samples, other: Samples) -> Told:
        return _certainly(member, other) if same else _bounded(member, other, choosing, delta=delta, error=error)

    certified = runs[True][0].certified
    return Audited(
        rival=rival.name,
        title=rival.title,
        runs=_PROBES if same else counting,
        certified_epsilon=certified.forgotten,
        certified_adaptive_epsilon=certified.adaptive,
        after=tell(members[:, 1], reference),
        both=tell(_changes(members), _changes(others)),
    )


class _Run(NamedTuple):
    before: Samples
    after: Samples
    certified: Certified


def _run(rival: Rival, problem: Problem, row: int, present: bool) -> _Run:
    """The versions before and after the request, and what is promised after it."""
    rows = problem.train.copy()
    if not present:
        rows.take(row)
    before = rival.learn(rows)
    after = rival.forget(before, rows, rows.take(row))
    return _Run(before.weights.ravel(), after.weights.ravel(), rival.certified(after))


def _changes(versions: Samples) -> Samples:
    """Both versions, as the first and the difference: noise that they share then cancels."""
    return np.hstack((versions[:, 0], versions[:, 1] - versions[:, 0]))


def _certainly(members: Samples, others: Samples) -> Told:
    found = 0.0 if np.array_equal(members[0], others[0]) else math.inf
    return Told(deterministic=True, mu=found, epsilon=found, mu_guesses=None, epsilon_guesses=None)


def _bounded(members: Samples, others: Samples, choosing: int, *, delta: float, error: float) -> Told:
    """One threshold for mu and one for epsilon, chosen on the first runs by what they would prove of themselves."""
    learnt = np.vstack((members[:choosing], others[:choosing]))
    discriminant = make_pipeline(StandardScaler(), LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto"))
    discriminant.fit(learnt, np.repeat([1, 0], choosing))
    member, other = (discriminant.decision_function(samples) for samples in (members, others))
    candidates = np.quantile(discriminant.decision_function(learnt), _THRESHOLDS)

    def best(proved: Callable[[Guesses], float]) -> tuple[float, Guesses]:
        chosen = max(candidates, key=lambda at: proved(_guesses(member[:choosing], other[:choosing], at)))
        guesses = _guesses(member[choosing:], other[choosing:], chosen)
        return proved(guesses), guesses

    mu, mu_guesses = best(lambda guesses: mu_at_least(guesses, error=error))
    epsilon, epsilon_guesses = best(lambda guesses: epsilon_at_least(guesses, delta=delta, error=error))
    return Told(deterministic=False, mu=mu, epsilon=epsilon, mu_guesses=mu_guesses, epsilon_guesses=epsilon_guesses)


def _guesses(members: Samples, others: Samples, threshold: float) -> Guesses:
    return Guesses(
        true_positives=int((members > threshold).sum()),
        members=len(members),
        false_positives=int((others > threshold).sum()),
        nonmembers=len(others),
    )
