"""The same models many times over: with the rows and without, before and after unlearning, by the production chain."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from benchmarks.membership.problems import Problem, Rows
from benchmarks.membership.requests import Request
from benchmarks.origin import origin
from worker.langevin import chain, engines
from worker.langevin.noise import Noise, SystemNoise

Parameters = NDArray[np.float64]  # (models, d)


class Method(StrEnum):
    """What is done once the rows are null."""

    NOTHING = "nothing"
    """The model stays as it was."""
    FINE_TUNING = "fine-tuning"
    """As many steps as unlearning takes, on the same rows, without noise."""
    UNLEARNING = "unlearning"
    """What the service does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Models:
    """Of one request: models that learned its rows, and models whose slots were null from the first step.

    Both kinds then take the same steps. Nonmembers under `nothing` are learned again from scratch; under `unlearning`
    they have the law with which the certificate compares. Models of different rows of an array are independent, and
    so are members and nonmembers; models of different methods are not.
    """

    members: Mapping[Method, Parameters]
    nonmembers: Mapping[Method, Parameters]

    @property
    def retrained(self) -> Parameters:
        return self.nonmembers[Method.NOTHING]


class Silence:
    """Noise of no size, for fine-tuning, which has none."""

    def normal(self, size: int) -> Tensor:
        return torch.zeros(size, dtype=torch.float64)

    def rounded_normal(self, size: int, spread: float) -> Tensor:
        return torch.zeros(size, dtype=torch.float64)


def models(
    problem: Problem, requests: Sequence[Request], counts: Mapping[str, int], *, done: Callable[[int], None]
) -> dict[str, Models]:
    """`counts[name]` models of each kind for each of the requests, each model learned from scratch with new noise.

    Requests share the models that learned all rows. `done` is told the steps as they are taken.
    """
    most = max(counts[request.name] for request in requests)
    learned = [learn(problem, problem.rows, done) for _ in range(most)]
    found = {}
    for request in requests:
        rows = problem.rows.nulled(request.slots)
        starts = learned[: counts[request.name]], [learn(problem, rows, done) for _ in range(counts[request.name])]
        members, nonmembers = (
            {
                method: _stacked(go_on(problem, rows, request, method, start, done) for start in kind)
                for method in Method
            }
            for kind in starts
        )
        found[request.name] = Models(members=members, nonmembers=nonmembers)
    return found


def num_steps(problem: Problem, requests: Sequence[Request], counts: Mapping[str, int]) -> int:
    """How many steps `models` takes."""
    learn_steps = problem.mechanism.learn_steps
    shared = max(counts[request.name] for request in requests) * learn_steps
    return shared + sum(counts[request.name] * (learn_steps + 4 * request.steps) for request in requests)


def learn(problem: Problem, rows: Rows, done: Callable[[int], None]) -> Parameters:
    start = origin(num_classes=2, num_features=rows.features.shape[1])
    made = problem.mechanism
    return _run(problem, rows, start, done, noise=SystemNoise(), grid=made.grid, steps=made.learn_steps)


def go_on(
    problem: Problem, rows: Rows, request: Request, method: Method, start: Parameters, done: Callable[[int], None]
) -> Parameters:
    """With the batches that come next after learning."""
    then = {"first_step": problem.mechanism.learn_steps, "steps": request.steps}
    match method:
        case Method.NOTHING:
            return start
        case Method.FINE_TUNING:
            return _run(problem, rows, start, done, noise=Silence(), grid=0.0, **then)
        case Method.UNLEARNING:
            return _run(problem, rows, start, done, noise=SystemNoise(), grid=problem.mechanism.grid, **then)


def _run(
    problem: Problem,
    rows: Rows,
    start: Parameters,
    done: Callable[[int], None],
    *,
    noise: Noise,
    grid: float,
    steps: int,
    first_step: int = 0,
) -> Parameters:
    ran = chain.run(
        features=rows.features,
        labels=rows.labels,
        mechanism=replace(problem.mechanism, grid=grid),
        initial=start,
        first_step=first_step,
        steps=steps,
        noise=noise,
        on_progress=lambda steps_done: None,
        backend=engines.Backend(threads=1),
    )
    done(steps)
    return ran.parameters


def _stacked(parameters: Iterable[Parameters]) -> Parameters:
    return np.concatenate(list(parameters))
