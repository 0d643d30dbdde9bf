"""The requester of the shards against ours, on the same people, who are real rows and no worst case.

There are no shards to learn: the requester reads the same number of versions, decides by likelihood whether the person
is in them, and has them leave together with one group of others or with another, which the attacker then looks for.
Near its minimiser a run is a linear map with Gaussian noise; the rules are those of that approximation.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.attacks.digits import People
from benchmarks.attacks.life import Life, delta_of, mechanism_of
from benchmarks.attacks.measured import Certified, guesses
from benchmarks.attacks.reading import Array
from lethe.proof import accountant, calibration
from lethe.proof.accountant import Chain, Run
from lethe.proof.canary_test import Guesses
from lethe.proof.mechanism import Mechanism

L2 = 0.02
GROUP = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """A version, from the one before: mean `fixed` + `keeps` (before - `fixed`), and the inverse of its covariance."""

    steps: int
    fixed: tuple[Array, Array]  # with the person, and without
    keeps: Array  # (d, d)
    precision: Array  # (d, d)

    def likelihood(self, version: Array, before: Array | None) -> float:
        """Twice the logarithm of how much likelier the version is with the person than without."""
        with_them, without = (
            fixed if before is None else fixed + self.keeps @ (before - fixed) for fixed in self.fixed
        )
        moved = with_them - without
        return float(moved @ self.precision @ (2 * version - with_them - without))


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    people: People
    mechanism: Mechanism
    before: tuple[Expected, ...]
    """Of the versions with the person in the data: the first, and one a round."""
    either: NDArray[np.int64]
    other: NDArray[np.int64]
    """Who leaves with the person if they were read to be in, and if not."""
    last_steps: int
    after: tuple[Array, Array]
    """Where the last version tends to, if one group left and if the other did."""
    after_precision: Array

    @property
    def certified(self) -> Certified:
        leave = len(self.people.rounds[0])
        rounds = (Run(steps=one.steps, records=leave) for one in self.before[1:])
        runs = (Run(steps=self.mechanism.learn_steps), *rounds, Run(steps=self.last_steps, records=1 + GROUP))
        return Certified(mechanism=self.mechanism, runs=runs, deleted_before=len(runs) - 1)


def setting(people: People) -> Setting:
    n, columns = people.features.shape
    mechanism = mechanism_of(people=n, columns=columns, l2=L2)
    chain = accountant.replay(mechanism, [Run(steps=mechanism.learn_steps)])
    present = np.ones(n, dtype=np.bool_)
    before = [_expected(people, mechanism, present, mechanism.learn_steps)]
    for leaving in people.rounds:
        present[leaving] = False
        steps, chain = _planned(chain, len(leaving))
        before.append(_expected(people, mechanism, present, steps))
    others = present.copy()
    others[people.target] = False
    either, other = (np.flatnonzero(others & (people.labels == label))[:GROUP] for label in (0, 1))
    steps, _ = _planned(chain, GROUP + 1)
    after = []
    for group in (either, other):
        left = others.copy()
        left[group] = False
        after.append(_minimiser(people, mechanism, left))
    return Setting(
        people=people,
        mechanism=mechanism,
        before=tuple(before),
        either=either,
        other=other,
        last_steps=steps,
        after=(after[0], after[1]),
        after_precision=_expected(people, mechanism, others, steps).precision,
    )


def played(at: Setting, trials: Iterable[int]) -> tuple[Guesses, Guesses]:
    """What is said by the release after the deletion; and what the requester read before it."""
    said = np.array([[_play(at, present=present) for present in (True, False)] for _ in trials])
    after, before = said[..., 0], said[..., 1]
    return guesses(after[:, 0], after[:, 1]), guesses(before[:, 0], before[:, 1])


def _play(at: Setting, *, present: bool) -> tuple[bool, bool]:
    features = at.people.features.copy()
    if not present:
        features[at.people.target] = 0
    life = Life.learned(at.mechanism, features, at.people.labels)
    likelihood, last = at.before[0].likelihood(life.version, None), life.version
    for leaving, expected in zip(at.people.rounds, at.before[1:], strict=True):
        life.null(leaving)
        life.publish(expected.steps)
        likelihood, last = likelihood + expected.likelihood(life.version, last), life.version
    read = likelihood > 0
    life.null([at.people.target])
    life.null(at.either if read else at.other)
    version = life.publish(at.last_steps)
    one, another = at.after
    return bool((one - another) @ at.after_precision @ (2 * version - one - another) > 0), read


def _planned(chain: Chain, records: int) -> tuple[int, Chain]:
    """The planner's steps for so many records at once, and the chain after them."""
    mechanism = chain.mechanism
    steps = calibration.least_steps(
        chain, records=records, epsilon=1.0, delta=delta_of(mechanism), at_most=mechanism.learn_steps
    )
    return steps, accountant.advance(chain, Run(steps=steps, records=records))


def _expected(people: People, mechanism: Mechanism, present: NDArray[np.bool_], steps: int) -> Expected:
    without_them = present.copy()
    without_them[people.target] = False
    fixed = (_minimiser(people, mechanism, present), _minimiser(people, mechanism, without_them))
    values, vectors = np.linalg.eigh(_hessian(people, mechanism, without_them, fixed[1]))
    shrink = 1 - mechanism.step_size * values
    spread = mechanism.step_variance * (1 - shrink ** (2 * steps)) / (1 - shrink**2)
    return Expected(
        steps=steps,
        fixed=fixed,
        keeps=vectors @ np.diag(shrink**steps) @ vectors.T,
        precision=vectors @ np.diag(1 / spread) @ vectors.T,
    )


def _minimiser(people: People, mechanism: Mechanism, present: NDArray[np.bool_]) -> Array:
    """By Newton's method."""
    here = np.zeros(people.features.shape[1])
    rows, signs = people.features[present].astype(np.float64), 2.0 * people.labels[present] - 1
    for _ in range(20):
        gradient = mechanism.l2 * here - (signs / (1 + np.exp(signs * (rows @ here)))) @ rows / mechanism.num_slots
        here = here - np.linalg.solve(_hessian(people, mechanism, present, here), gradient)
    return here


def _hessian(people: People, mechanism: Mechanism, present: NDArray[np.bool_], at: Array) -> Array:
    rows = people.features[present].astype(np.float64)
    curvature = 1 / (2 + 2 * np.cosh(rows @ at))
    return (rows.T * curvature) @ rows / mechanism.num_slots + mechanism.l2 * np.eye(len(at))
