"""An adaptive requester against sharded retraining: Gupta, Jung, Neel, Roth, Sharifi-Malvajerdi, Waites 2021.

People are dealt to shards at random, each shard trains a model of its own, and who asks to be forgotten makes their
shard train again without them (SISA: Bourtoule et al. 2021). That is exact for requests which do not depend on what was
published. Here they do: a model remembers those whom it was trained on, so whoever reads the models learns the shards.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from sklearn.tree import ExtraTreeClassifier

from benchmarks.attacks.digits import People
from benchmarks.attacks.measured import guesses
from lethe.proof.canary_test import Guesses

SHARDS = 4
HOLLOW = 0.6
"""A shard's model that is right about fewer of those who are left has lost its people: between chance, one half, and
the least that a full shard was seen to reach, 0.7. Fixed on other draws than those that count."""


class Sharded:
    """The service: it deals people to shards once, and retrains the shards that a request touches."""

    def __init__(self, people: People, present: NDArray[np.bool_], generator: Generator) -> None:
        self._people, self._present, self._generator = people, present.copy(), generator
        self.shard = generator.permutation(len(present)) % SHARDS
        self.published = np.stack([self._trained(one) for one in range(SHARDS)])

    def delete(self, rows: Iterable[int]) -> None:
        gone = np.asarray(list(rows), dtype=np.int64)
        self._present[gone] = False
        for one in np.unique(self.shard[gone]):
            self.published[one] = self._trained(one)

    @property
    def remaining(self) -> NDArray[np.bool_]:
        return self._present

    def _trained(self, shard: int) -> NDArray[np.bool_]:
        """What anybody can see of a shard's model: for whom of all people it predicts their own label."""
        rows = self._present & (self.shard == shard)
        if not rows.any():
            return np.asarray(self._people.labels == 0)
        tree = ExtraTreeClassifier(random_state=int(self._generator.integers(2**31)))
        tree.fit(self._people.features[rows], self._people.labels[rows])
        return np.asarray(tree.predict(self._people.features) == self._people.labels)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    presence: Guesses
    """Had the deleted person been there? By the models after the deletion alone."""
    partition: Guesses
    """Were these models unlearned, or learned again from scratch from the same people?"""
    named: int
    """Of the members, how often the requester named the right shard."""
    leave: float
    """How many others the requester had leave, on average over the members."""
    mates: float
    """The share of these who were in the person's shard."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Played:
    said_in: bool
    """Of the models after the deletion; also what is said for "unlearned, not learned again"."""
    said_of_relearned: bool
    named: bool
    leave: int
    mates: float


def attack(people: People, generator: Generator, trials: Iterable[int]) -> Outcome:
    """One service with the person and one without for each of `trials`."""
    both = [[_play(people, generator, present=present) for present in (True, False)] for _ in trials]
    members, nonmembers = zip(*both, strict=True)
    return Outcome(
        presence=guesses(np.array([one.said_in for one in members]), np.array([one.said_in for one in nonmembers])),
        partition=guesses(
            np.array([one.said_in for one in members]), np.array([one.said_of_relearned for one in members])
        ),
        named=sum(one.named for one in members),
        leave=float(np.mean([one.leave for one in members])),
        mates=float(np.mean([one.mates for one in members])),
    )


def _play(people: People, generator: Generator, *, present: bool) -> _Played:
    """Whoever some model has always been right about may be one of its own. If somebody remembers the person, all whom
    that model may remember leave with them; otherwise as many leave from everywhere."""
    rows = np.ones(len(people.labels), dtype=np.bool_)
    rows[people.target] = present
    service = Sharded(people, rows, generator)
    right = service.published.copy()  # (shards, n)
    for leaving in people.rounds:
        service.delete(leaving)
        right &= service.published
    others = service.remaining & (np.arange(len(rows)) != people.target)
    remembers = np.flatnonzero(right[:, people.target])
    shard = int(remembers[0]) if len(remembers) else int(generator.integers(SHARDS))
    leaving = np.flatnonzero(others & right[shard])
    if not len(remembers):
        leaving = generator.permutation(np.flatnonzero(others))[: len(leaving)]
    mates = float((service.shard[leaving] == shard).mean())
    service.delete([people.target, *leaving])
    return _Played(
        said_in=_hollow(service),
        said_of_relearned=_hollow(Sharded(people, service.remaining, generator)),
        named=bool(shard == service.shard[people.target]),
        leave=len(leaving),
        mates=mates,
    )


def _hollow(service: Sharded) -> bool:
    """Whether the model of some shard knows hardly anybody who is left."""
    return bool(service.published[:, service.remaining].mean(axis=1).min() < HOLLOW)
