"""The mechanisms that the theorems were written about, small enough to be read, and who attacks them.

Every function plays a game `trials` times in each of two worlds, in which one person's record differs from the start,
and returns the attacker's guesses. In both worlds that record is deleted before the attacker looks.
"""

import math
from collections.abc import Callable

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from benchmarks.attacks.measured import Said, guesses
from lethe.proof.canary_test import Guesses

MEDIAN_PEOPLE = 15
"""Odd, so that the median is somebody's record."""
UNIVERSE = (-2, -1, 1, 2)


def median(generator: Generator, *, trials: int, step: int) -> Guesses:
    """Theorem 3.1: the median of distinct numbers, computed again after every request.

    The requester reads the first median and overwrites another person's record with it in every request; request
    `step` deletes the person whose record it was. The attacker sees the one release after that.
    """

    def play(present: bool) -> bool:
        others = np.sort(generator.random(MEDIAN_PEOPLE - 1))
        low, high = others[MEDIAN_PEOPLE // 2 - 1 : MEDIAN_PEOPLE // 2 + 1]
        this, another = low + (high - low) / 3, high - (high - low) / 3
        people = np.append(others, this if present else another)
        first = np.median(people)
        for index in generator.permutation(MEDIAN_PEOPLE - 1)[: step - 1]:
            people[index] = first
        people[-1] = 0.0
        return bool(np.median(people) == this)

    return _played(play, trials)


def total(generator: Generator, *, trials: int) -> Guesses:
    """Equations 7 and 8: the sum of what is left, exactly; a requester deletes everything below zero if the first sum
    was below zero, and everything else otherwise. In one world the person's record is -1, in the other 1."""

    def play(present: bool) -> bool:
        people = np.array([UNIVERSE[0], -1 if present else 1, UNIVERSE[-1]])
        negative = people.sum() < 0
        people = people[people >= 0] if negative else people[people < 0]
        return bool(people.sum() > 0)

    return _played(play, trials)


def counter(generator: Generator, *, epsilon: float, releases: int, trials: int, divided: bool) -> Guesses:
    """Theorem 3.2: a count with Laplace noise, to which a secret state adds what was deleted.

    The person is the first whom the model forgets. `divided` as printed: release j adds (deleted records that counted)
    / j; otherwise all of one. Both are within (epsilon, 0) of counting again at every release. The attacker knows
    everybody else, sees the releases after the deletion and compares likelihoods; ties are decided by a coin.
    """
    shifts = 1 / np.arange(1, releases + 1) if divided else np.ones(releases)

    def said(present: bool) -> Said:
        seen = generator.laplace(scale=1 / epsilon, size=(trials, releases)) + shifts * present
        likelihood = epsilon * (np.abs(seen) - np.abs(seen - shifts)).sum(axis=1)
        return np.asarray(likelihood + 1e-9 * (generator.random(trials) - 0.5) > 0)

    return guesses(said(True), said(False))


def most_of_divided_counter(epsilon: float) -> float:
    """No attacker's advantage is above this, however many releases: sqrt(1 - product of squared affinities).

    The affinity of two Laplace laws whose means are a apart is (1 + epsilon a / 2) exp(-epsilon a / 2); here a = 1/j.
    The squares of 1/j have a finite sum, so the product never reaches 0 (Kakutani 1948). Beyond a million releases each
    logarithm is replaced by what it exceeds, -(epsilon / j)^2 / 8.
    """
    halves = epsilon / (2 * np.arange(1, 10**6 + 1))
    log_affinity = float((np.log1p(halves) - halves).sum()) - epsilon**2 / 8 * 1e-6
    return math.sqrt(-math.expm1(2 * log_affinity))


def pad_over_two_releases(generator: Generator, *, trials: int) -> tuple[Guesses, Guesses]:
    """The counterexample to Theorem 4.1 as printed: guesses by one release after the deletion, and by two.

    The model is first the person's bit. The request that deletes it leads to a constant; the next, by somebody who
    read the bit and copies it into another row, to a fresh random pad; the third to that row, with the pad added.
    Every release on its own has the same law in both worlds.
    """

    def play(present: bool) -> tuple[bool, bool]:
        rows = [present, False]
        published = [rows[0]]
        rows[0] = False
        published.append(False)
        rows[1] = published[0]
        pad = bool(generator.integers(2))
        published.append(pad)
        published.append(rows[1] ^ published[2])
        return published[3], published[2] ^ published[3]

    return _two(play, trials)


def pad_of_the_requester(generator: Generator, *, trials: int) -> tuple[Guesses, Guesses]:
    """The counterexample to Theorem 4.3 as printed: guesses when requests are fixed, and when they are adaptive.

    The model is first a random pad that has nothing to do with anybody. A request that edits row i adds the parity of i
    to it, and the next, which deletes the person, publishes their bit with that pad added. Whoever read the pad edits a
    row of its parity.
    """

    def play(present: bool) -> tuple[bool, bool]:
        pad = bool(generator.integers(2))
        by_nobody, by_reader = pad ^ False, pad ^ pad
        return present ^ by_nobody, present ^ by_reader

    return _two(play, trials)


def _played(play: Callable[[bool], bool], trials: int) -> Guesses:
    members, nonmembers = (np.array([play(present) for _ in range(trials)]) for present in (True, False))
    return guesses(members, nonmembers)


def _two(play: Callable[[bool], tuple[bool, bool]], trials: int) -> tuple[Guesses, Guesses]:
    said: list[NDArray[np.bool_]] = [np.array([play(present) for _ in range(trials)]) for present in (True, False)]
    return guesses(said[0][:, 0], said[1][:, 0]), guesses(said[0][:, 1], said[1][:, 1])
