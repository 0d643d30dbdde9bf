"""Attacks on released versions prove less than is certified, unless the solver is sabotaged."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy.special import betaincinv

from lethe.features.objective import accountant
from lethe.features.objective.accountant import Releases
from tests.features.objective.quadrature import mechanism
from worker.features.objective.solver import minimise
from worker.langevin.noise import SystemNoise

pytestmark = pytest.mark.slow

GAMES = 300
DELTA = 0.01
FALSE_ALARM = 1e-6
"""Probability that a sound mechanism fails a test here, for each test."""
SETTINGS = mechanism(num_slots=21, num_columns=2, l2=1.0 / 21, noise_scale=2.0, tolerance=1e-6, output_noise=2.0**-7)
PERSON = 20


def table(held: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return twenty rows of one class and one more row: a person of the other class if `held`, otherwise a null row."""
    features = np.tile(np.array([0.6, 0.6], dtype=np.float32), (21, 1))
    labels = np.zeros(21, dtype=np.int32)
    features[PERSON], labels[PERSON] = (0.7, -0.7), 1
    if not held:
        features[PERSON] = 0
    return features, labels


def version(held: bool, noise: SystemNoise) -> np.ndarray:
    features, labels = table(held)
    return minimise(
        mechanism=SETTINGS, features=features, labels=labels, noise=noise, on_progress=lambda iterations: None
    ).parameters[0]


class ReusedNoise(SystemNoise):
    """Sabotaged noise: the perturbation of the first version is drawn once and reused for every later one."""

    def __init__(self) -> None:
        super().__init__()
        self._first: torch.Tensor | None = None
        self._calls = 0

    def rounded_normal(self, size: int, spread: float) -> torch.Tensor:
        self._calls += 1
        if self._calls % 2 == 0:
            return super().rounded_normal(size, spread)
        if self._first is None:
            self._first = super().rounded_normal(size, spread)
        return self._first.clone()


class PulledNoise(SystemNoise):
    """Sabotaged noise: the perturbation includes the last version, like a solver that starts there and stops early."""

    def __init__(self) -> None:
        super().__init__()
        self.last = np.zeros(2)
        self._calls = 0

    def rounded_normal(self, size: int, spread: float) -> torch.Tensor:
        self._calls += 1
        drawn = super().rounded_normal(size, spread)
        if self._calls % 2:
            drawn = 0.1 * drawn - torch.from_numpy(np.round(2 * self.last / SETTINGS.noise_grid))
        return drawn


def proved_epsilon(scores: tuple[np.ndarray, np.ndarray]) -> float:
    """Return a lower bound on epsilon at `DELTA` from the scores of games with and without the person, as the best of
    eight thresholds. The bound is too large with probability at most `FALSE_ALARM` (Clopper and Pearson 1934)."""
    proved, games = 0.0, len(scores[0])
    share = FALSE_ALARM / 32
    thresholds = np.quantile(np.concatenate([games_[: games // 2] for games_ in scores]), np.linspace(0.1, 0.9, 8))
    held, gone = (games_[games // 2 :] for games_ in scores)
    for threshold in thresholds:
        for hits, misses in ((held > threshold, gone > threshold), (gone <= threshold, held <= threshold)):
            hit, miss = int(hits.sum()), int(misses.sum())
            least = betaincinv(hit, len(hits) - hit + 1, share) if hit else 0.0
            most = betaincinv(miss + 1, len(misses) - miss, 1 - share) if miss < len(misses) else 1.0
            if least > DELTA:
                proved = max(proved, math.log((least - DELTA) / most))
    return proved


def played(game: Callable[[bool], float]) -> tuple[np.ndarray, np.ndarray]:
    held, gone = (np.array([game(person) for _ in range(GAMES)]) for person in (True, False))
    return held, gone


def lean(parameters: np.ndarray) -> float:
    """Return how far a model leans towards the person's class."""
    return float(parameters @ np.array([0.7, -0.7]))


def test_attack_on_one_version_stays_below_its_certificate():
    """The best linear attack on one version proves an epsilon of at most the certified epsilon."""
    proved = proved_epsilon(played(lambda held: lean(version(held, SystemNoise()))))
    assert proved <= accountant.epsilon(SETTINGS, delta=DELTA)


@pytest.mark.parametrize(("sabotaged", "caught"), [(SystemNoise, False), (ReusedNoise, True)])
def test_attack_on_two_versions_catches_a_reused_perturbation(sabotaged, caught):
    """If the person is deleted between two versions, an attack on the difference between the versions proves at most
    the certified `adaptive` epsilon. If both versions use the same perturbation, the attack proves a larger epsilon."""

    def game(held: bool) -> float:
        noise = sabotaged()
        return lean(version(held, noise) - version(False, noise))

    certified = accountant.adaptive_epsilon([Releases(mechanism=SETTINGS, versions=1)], delta=DELTA)
    assert (proved_epsilon(played(game)) > certified) == caught


@pytest.mark.parametrize(("sabotaged", "caught"), [(SystemNoise, False), (PulledNoise, True)])
def test_attack_after_deletion_catches_a_trace_of_the_previous_version(sabotaged, caught):
    """An attack on the version after a deletion finds no trace of the deleted person unless that version depends on the
    previous one."""

    def game(held: bool) -> float:
        noise = sabotaged()
        before = version(held, noise)
        if isinstance(noise, PulledNoise):
            noise.last = before
        return lean(version(False, noise))

    allowed = 0.0 if not caught else 0.2
    assert (proved_epsilon(played(game)) > allowed) == caught
