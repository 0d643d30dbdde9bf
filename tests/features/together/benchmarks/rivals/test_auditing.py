"""The audit of rivals by a planted record."""

import math

import pytest

from benchmarks.rivals import chains, problems, refits
from benchmarks.rivals.auditing import Audited, audit
from benchmarks.rivals.problems import Problem
from benchmarks.rivals.refits import RandomModel
from benchmarks.rivals.removal import CertifiedRemoval
from benchmarks.rivals.rival import Rival


@pytest.fixture(scope="module")
def problem() -> Problem:
    return problems.planted(0)[0]


def audited(rival: Rival, problem: Problem) -> Audited:
    return audit(rival, problem, 0, choosing=60, counting=120, error=1e-6)


def test_two_versions_reveal_the_record_of_a_refit(problem: Problem) -> None:
    """A deterministic refit equals retraining exactly, but together with the previous version it reveals the deleted
    record with certainty."""
    found = audited(refits.lbfgs(problem.setting), problem)
    assert found.after.deterministic
    assert (found.after.epsilon, found.both.epsilon) == (0.0, math.inf)


def test_a_fit_that_ignores_requests_reveals_the_record(problem: Problem) -> None:
    """A plain fit without noise that ignores the request reveals the record with certainty."""
    assert audited(refits.nothing(problem.setting), problem).after.epsilon == math.inf


def test_noise_shared_by_versions_cancels(problem: Problem) -> None:
    """Two versions from certified removal, read together, reveal the record beyond the epsilon that is certified for
    the last version alone."""
    found = audited(CertifiedRemoval(problem.setting, problem.train), problem)
    assert found.after.epsilon <= 1 < found.both.epsilon


def test_a_random_model_reveals_nothing(problem: Problem) -> None:
    """For a random model, which reveals nothing, the audit proves an epsilon of 0."""
    found = audited(RandomModel(setting=problem.setting), problem)
    assert (found.after.epsilon, found.both.epsilon) == (0.0, 0.0)


@pytest.mark.soak
def test_lethe_stays_within_both_certificates(problem: Problem) -> None:
    """For Lethe's model, the audit proves no more than is certified, either for the version after the request or for
    both versions together."""
    found = audited(chains.ours(problem.setting), problem)
    assert found.certified_epsilon is not None
    assert found.certified_adaptive_epsilon is not None
    assert found.after.epsilon <= found.certified_epsilon
    assert found.both.epsilon <= found.certified_adaptive_epsilon
