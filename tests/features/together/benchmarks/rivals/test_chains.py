"""Rivals that run the service's chain."""

import math
from itertools import pairwise

import pytest

from benchmarks.rivals import chains, problems
from benchmarks.rivals.problems import Problem
from benchmarks.rivals.rival import Certified


@pytest.fixture(scope="module")
def problem() -> Problem:
    return problems.digits(0, (3, 8), 6)


def served(rival: chains.NoisyChain, problem: Problem) -> tuple[list[float], list[Certified]]:
    """Serve all deletion requests, and return each request's passes and certificate."""
    rows, passes, promised = problem.train.copy(), list[float](), list[Certified]()
    state = rival.learn(rows)
    for slot in problem.forgotten:
        state = rival.forget(state, rows, rows.take(int(slot)))
        passes.append(state.passes)
        promised.append(rival.certified(state))
    return passes, promised


def test_lethe_meets_the_target_at_every_request(problem: Problem) -> None:
    """Every version of Lethe's model is certified at the target and takes fewer passes than training. The adaptive
    epsilon grows with every version."""
    rival = chains.ours(problem.setting)
    passes, promised = served(rival, problem)
    assert max(passes) < rival.mechanism.learn_steps / rival.mechanism.num_batches
    assert all(one.forgotten is not None and one.forgotten <= 1 for one in promised)
    adaptive = [one.adaptive for one in promised]
    assert all(a is not None and b is not None and a < b for a, b in pairwise(adaptive))


def test_retraining_reveals_only_published_versions(problem: Problem) -> None:
    """Retraining for each request always has a certified epsilon of 0. Its adaptive epsilon grows with the number of
    published versions."""
    _, promised = served(chains.learn_again(problem.setting), problem)
    assert [one.forgotten for one in promised] == [0.0] * 6
    assert promised[0].adaptive is not None
    assert promised[-1].adaptive is not None
    assert 0 < promised[0].adaptive < promised[-1].adaptive


def test_ignoring_requests_increases_epsilon(problem: Problem) -> None:
    """If requests are ignored, the epsilon that the training noise alone certifies is above 1 and rises with each
    further record, while the adaptive epsilon stays the same."""
    _, promised = served(chains.nothing(problem.setting), problem)
    epsilons = [one.forgotten for one in promised]
    assert all(a is not None and b is not None and 1 < a < b for a, b in pairwise(epsilons))
    assert len({one.adaptive for one in promised}) == 1


def test_steps_of_algorithm_6_never_fall_or_exceed_retraining(problem: Problem) -> None:
    """The number of steps in the paper's Algorithm 6 never decreases from one request to the next and never exceeds the
    number of training steps. With Lethe's noise, even the first request would take more steps than training itself."""
    rival = chains.published(problem.setting)
    passes, _ = served(rival, problem)
    assert passes == sorted(passes)
    assert max(passes) <= rival.mechanism.learn_steps
    ours = chains.ours(problem.setting).mechanism
    assert chains.papers_steps(problem.setting, ours.noise_scale)[0] > ours.learn_steps


def test_batches_are_read_cyclically_over_all_runs(problem: Problem) -> None:
    """A run starts with the batch after the last one of the previous run, so that no batch is skipped or read twice."""
    rival, rows = chains.ours(problem.setting), problem.train.copy()
    state = rival.learn(rows)
    steps = [state.kept.chain.steps]
    for slot in problem.forgotten:
        state = rival.forget(state, rows, rows.take(int(slot)))
        steps.append(state.kept.chain.steps)
        assert state.passes == (steps[-1] - steps[-2]) / rival.mechanism.num_batches
    assert rival.mechanism.num_batches > 1
    assert steps == sorted(set(steps))


def test_epochs_of_noisy_sgd_are_minimal(problem: Problem) -> None:
    """With the computed number of epochs, the published bound meets the target, and with one epoch fewer it does not.
    The influence of earlier requests fades."""
    rival = chains.noisy_sgd(problem.setting)
    made, setting = rival.mechanism, problem.setting
    epochs = chains.sgd_epochs(setting, made)
    assert made.learn_steps % made.num_batches == 0
    size = setting.num_slots // made.num_batches
    apart = 2 * made.step_size / size / (1 - (1 - made.step_size * setting.l2) ** made.num_batches)

    def epsilon(epochs: int) -> float:
        """Return the smallest epsilon of the published bound over a grid of orders."""
        faded = (1 - made.step_size * setting.l2) ** (2 * epochs * made.num_batches)
        slope = apart**2 * faded / (2 * made.step_size * made.noise_scale**2)
        orders = (1 + 1.001**power for power in range(-10_000, 10_000))
        return min(order * slope + math.log(1 / setting.delta) / (order - 1) for order in orders)

    assert epsilon(epochs[0]) <= setting.epsilon < epsilon(epochs[0] - 1)
    assert epochs == sorted(epochs)
    assert epochs[-1] <= epochs[0] + 1
    assert served(rival, problem)[0] == epochs
