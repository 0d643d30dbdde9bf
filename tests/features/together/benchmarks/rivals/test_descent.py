"""Descent-to-Delete and fine-tuning."""

from collections.abc import Callable

import numpy as np
import pytest

from benchmarks.rivals import chains, descent, problems, refits
from benchmarks.rivals.problems import Problem
from benchmarks.rivals.rival import Setting


@pytest.fixture(scope="module")
def problem() -> Problem:
    return problems.digits(0, (3, 8), 1)


def test_descent_converges_to_the_fit(problem: Problem) -> None:
    """Without noise, many steps reach the minimiser that scikit-learn finds."""
    setting = problem.setting
    steps = {"l2": setting.l2, "step_size": setting.step_size, "steps": 2000}
    found = descent.descend(problem.train, np.zeros(setting.shape), **steps)
    assert np.allclose(found, refits.fitted(problem.train, setting.l2)[0], atol=1e-3)


def test_secret_state_takes_the_fewest_iterations(problem: Problem) -> None:
    """The rival takes the smallest number of iterations at which its noise is at most Lethe's noise. It stores the
    noiseless iterate but does not publish it."""
    ours = chains.ours(problem.setting).noise_std
    rival = descent.with_secret_state(problem.setting, ours)
    assert rival.iterations is not None
    assert rival.noise_std <= ours
    state = rival.learn(problem.train.copy())
    assert not np.array_equal(state.kept.noiseless, state.weights)


def test_public_state_keeps_only_published_weights(problem: Problem) -> None:
    """Between requests, the rival stores only the published weights."""
    assert descent.without_secret_state(problem.setting).learn(problem.train.copy()).kept.noiseless is None


@pytest.mark.parametrize("make", [descent.negative_gradient, descent.pseudo_label])
def test_fine_tuning_stays_near_the_fit(problem: Problem, make: Callable[[Setting], descent.FineTuning]) -> None:
    """A few fine-tuning steps move the weights by no more than one record could, and the result differs from a
    refit."""
    rival, rows = make(problem.setting), problem.train.copy()
    before = rival.learn(rows)
    after = rival.forget(before, rows, rows.take(0))
    assert 0 < np.linalg.norm(after.weights - before.weights) < 2 / (rival.l2 * len(rows))
    assert not np.allclose(after.weights, refits.fitted(rows, rival.l2)[0], atol=1e-6)
