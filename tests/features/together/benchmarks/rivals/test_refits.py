"""Plain fits, and SISA."""

import numpy as np
import pytest

from benchmarks.rivals import problems, refits


def test_a_refit_does_not_depend_on_the_removed_record() -> None:
    """The weights after a removal do not depend on whether the removed record was in the data before."""
    problem = problems.digits(0, (3, 8), 1)
    rival, rows = refits.lbfgs(problem.setting), problem.train.copy()
    before = rival.learn(rows)
    after = rival.forget(before, rows, rows.take(0))
    assert not np.array_equal(before.weights, after.weights)
    assert np.array_equal(after.weights, rival.learn(rows).weights)


@pytest.mark.slow
def test_a_warm_start_reaches_the_refit_in_fewer_passes() -> None:
    """A warm start reaches the same weights as a refit from scratch, up to the solver's tolerance, in fewer passes. It
    has no certificate."""
    problem = problems.digits(0, range(10), 1)
    rival, rows = refits.warm(problem.setting), problem.train.copy()
    before = rival.learn(rows)
    after = rival.forget(before, rows, rows.take(0))
    cold = refits.lbfgs(problem.setting).learn(rows)
    assert 1 < after.passes < cold.passes
    assert np.allclose(after.weights, cold.weights, atol=1e-2)
    assert np.abs(after.weights - cold.weights).max() < np.abs(before.weights - cold.weights).max()
    assert rival.certified(after).forgotten is None


def test_sisa_refits_one_shard() -> None:
    """Only the shard that contains the record is refitted, and the models of all other shards keep their weights."""
    problem = problems.digits(0, range(10), 1)
    rival, rows = refits.Sisa(setting=problem.setting), problem.train.copy()
    before = rival.learn(rows)
    after = rival.forget(before, rows, rows.take(0))
    changed = [not np.array_equal(*pair) for pair in zip(before.weights, after.weights, strict=True)]
    assert sum(changed) == 1
    assert 0 not in np.concatenate(after.kept)
