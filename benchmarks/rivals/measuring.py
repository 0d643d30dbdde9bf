"""Serve the requests of a problem, one after the other, with a clock and a test set."""

import statistics
import time
from dataclasses import dataclass

import numpy as np

from app.catalogue.prediction import probabilities
from benchmarks.rivals.problems import Problem
from benchmarks.rivals.rival import Rival, Rows, State, Weights


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """`requests` served, fewer than asked for where the time was up; passes and seconds are those of one request.

    Seconds are of processor time, all threads of this process together: the machine may be shared."""

    rival: str
    title: str
    l2: float
    requests: int
    learn_passes: float
    learn_seconds: float
    passes: float  # median
    most_passes: float
    seconds: float  # median
    accuracy: float  # after the last, mean of the repeats
    accuracy_std: float
    epsilon: float | None  # certified after the last, at the problem's delta
    adaptive_epsilon: float | None


def measure(rival: Rival, problem: Problem, *, limit_seconds: float) -> Measured:
    served = [_serve(rival, problem, limit_seconds / problem.repeats) for _ in range(problem.repeats)]
    requests = [one for run in served for one in run.requests]
    accuracies = [accuracy(run.last.weights, problem.test) for run in served]
    certified = rival.certified(served[-1].last)
    return Measured(
        rival=rival.name,
        title=rival.title,
        l2=rival.l2,
        requests=len(served[-1].requests),
        learn_passes=served[0].learn_passes,
        learn_seconds=statistics.median(run.learn_seconds for run in served),
        passes=statistics.median(passes for passes, _ in requests),
        most_passes=max(passes for passes, _ in requests),
        seconds=statistics.median(seconds for _, seconds in requests),
        accuracy=statistics.fmean(accuracies),
        accuracy_std=statistics.pstdev(accuracies),
        epsilon=certified.forgotten,
        adaptive_epsilon=certified.adaptive,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Served:
    learn_passes: float
    learn_seconds: float
    requests: list[tuple[float, float]]
    last: State


def _serve(rival: Rival, problem: Problem, limit_seconds: float) -> _Served:
    """At least one request, and no other once the time is up."""
    rows = problem.train.copy()
    started = time.process_time()
    state = rival.learn(rows)
    learn_passes, learned = state.passes, time.process_time()
    requests: list[tuple[float, float]] = []
    for row in problem.forgotten:
        record = rows.take(int(row))
        before = time.process_time()
        state = rival.forget(state, rows, record)
        requests.append((state.passes, time.process_time() - before))
        if time.process_time() - learned > limit_seconds:
            break
    return _Served(learn_passes=learn_passes, learn_seconds=learned - started, requests=requests, last=state)


def accuracy(weights: Weights, rows: Rows) -> float:
    """Of one model, or of an ensemble that pools its probabilities."""
    pile = weights if weights.ndim == 3 else weights[None]
    pooled = np.mean([probabilities(each, rows.features, rows.num_classes) for each in pile], axis=0)
    return float((pooled.argmax(axis=1) == rows.labels).mean())
