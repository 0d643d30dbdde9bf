"""Certified removal."""

import numpy as np
import pytest

from benchmarks.rivals import problems
from benchmarks.rivals.removal import CertifiedRemoval
from benchmarks.rivals.rival import Rows, Weights


def slope(rows: Rows, weights: Weights, l2: float) -> Weights:
    """Return the gradient of the remaining rows' summed losses and their regulariser, computed directly and without
    b."""
    left = rows.features.any(axis=1)
    features, labels = rows.features[left].astype(float), rows.labels[left]
    wanted = labels[:, None] == (np.array([1]) if rows.num_classes == 2 else np.arange(rows.num_classes))
    error = 1 / (1 + np.exp(-features @ weights.T)) - wanted
    return error.T @ features + l2 * len(features) * weights


@pytest.mark.parametrize("kept", [(3, 8), pytest.param(range(10), marks=pytest.mark.soak)], ids=["two", "ten"])
def test_the_gradient_stays_within_the_spent_budget(kept: range | tuple[int, ...]) -> None:
    """After each Newton step, the norm of the gradient is at most the part of the budget that the rival reports as
    spent."""
    problem = problems.digits(0, kept, 5)
    rival, rows = CertifiedRemoval(problem.setting, problem.train), problem.train.copy()
    state = rival.learn(rows)
    tilt = -slope(rows, state.weights, rival.l2)
    for slot in problem.forgotten:
        state = rival.forget(state, rows, rows.take(int(slot)))
        assert 0 < np.linalg.norm(slope(rows, state.weights, rival.l2) + tilt) <= state.kept


def test_a_spent_budget_triggers_retraining() -> None:
    """A rival whose budget is meant for a single request has to retrain, with a newly drawn random term b, while it
    serves a hundred requests."""
    problem = problems.digits(0, (3, 8), 1)
    rival, rows = CertifiedRemoval(problem.setting, problem.train), problem.train.copy()
    state, passes = rival.learn(rows), []
    for slot in range(100):
        state = rival.forget(state, rows, rows.take(slot))
        passes.append(state.passes)
    assert max(passes) > 2 * min(passes)
