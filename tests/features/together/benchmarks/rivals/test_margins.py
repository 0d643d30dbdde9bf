"""KLoM and U-LiRA of models that forgot a group."""

import math
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.rivals import chains, margins, problems, refits
from benchmarks.rivals.problems import Problem


@pytest.fixture(scope="module")
def problem() -> Problem:
    return margins.grouped(problems.digits(0, (3, 8), 1))


def test_klom_separates_equal_and_different_distributions() -> None:
    """In either direction, KLoM is small between samples of one normal distribution and large between samples of two
    different ones."""
    generator = np.random.default_rng(0)
    here, same, apart = (generator.normal(mean, 1, (400, 50)) for mean in (0, 0, 2))
    floor = margins.klom(here, same)
    assert 0 < floor < margins.klom(here, apart) / 2
    assert floor < margins.klom(apart, here) / 2


def test_klom_is_greatest_for_disjoint_margins() -> None:
    """For constant margins, KLoM is 0 if they are equal. If they differ, it is the maximum that an empty bin allows."""
    one = np.zeros((3, 4))
    assert margins.klom(one, one) == 0
    greatest = margins.klom(one, np.nextafter(one, 1))
    assert greatest == pytest.approx(-math.log(1e-5), rel=1e-3)
    assert margins.klom(one, one + 1e3) == pytest.approx(greatest, rel=1e-9)


def test_a_group_has_one_label_and_distinct_rows(problem: Problem) -> None:
    """All rows of a group are distinct and share one label. The first row is the one with the smallest margin under the
    plain fit."""
    assert len(set(problem.forgotten)) == margins.GROUP
    assert len(set(problem.train.labels[problem.forgotten])) == 1
    weights, _ = refits.fitted(problem.train, problem.l2)
    assert problem.forgotten[0] == np.argmin(margins.margins([weights], problem.train))


@pytest.mark.slow
def test_deterministic_rivals_are_recognised_despite_rounding(problem: Problem) -> None:
    """For groups of different sizes, a plain fit that ignores its requests is distinguished with certainty, even though
    the mean of three equal sums of margins can differ from each of them in the last bit."""
    rival = refits.nothing(problem.setting)
    for size in range(17, margins.GROUP + 1):
        _, plain = margins.compare(replace(problem, forgotten=problem.forgotten[:size]), [rival], models=8)
        assert (plain.separation, plain.mu) == (math.inf, math.inf)


@pytest.mark.soak
def test_a_refit_equals_its_oracle_and_a_plain_fit_does_not(problem: Problem) -> None:
    """KLoM and U-LiRA are both 0 for a deterministic refit and maximal for a plain fit that ignores the request.
    Lethe's model meets its target."""
    setting = problem.setting
    rivals = [chains.ours(setting), refits.lbfgs(setting), refits.nothing(setting)]
    floor, ours, refit, plain = margins.compare(problem, rivals, models=8)
    assert floor.title == margins.FLOOR
    assert floor.certified_epsilon == 0
    assert ours.certified_epsilon is not None
    assert ours.certified_epsilon <= 1
    assert (refit.forgotten, refit.kept, refit.separation, refit.mu) == (0, 0, 0, 0)
    assert (plain.forgotten, plain.mu) == (pytest.approx(11.51, abs=0.01), math.inf)
