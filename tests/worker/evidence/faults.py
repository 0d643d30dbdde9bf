"""Faults that tests plant in the running chain."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pytest
import torch

from tests.worker.langevin.conftest import SilentNoise
from worker import evidence
from worker.langevin import chain
from worker.langevin.noise import SystemNoise
from worker.langevin.schedule import Schedule, Step
from worker.langevin.step import State, projected_noisy_step

Plant = Callable[[pytest.MonkeyPatch], None]


def _copied(state: State) -> State:
    """Return the state with only its count of steps changed."""
    parameters, here = state.parameters.clone(), state.lanes.clone()
    return State(parameters=parameters, steps_done=state.steps_done + 1, lanes=here)


def _stepping(step: Callable[..., State]) -> Plant:
    """Return a plant that replaces the chain's step with `step(noise, state, **settings)`."""
    return lambda patch: patch.setattr(chain, "projected_noisy_step", step)


def _with(**changed: Callable[[Any], Any]) -> Plant:
    """Return a plant that applies these functions to settings of the chain's step."""

    def step(noise: Any, state: State, **settings: Any) -> State:
        return projected_noisy_step(noise, state, **settings | {k: f(settings[k]) for k, f in changed.items()})

    return _stepping(step)


class Repeating:
    """Noise that is drawn once and repeated at every step."""

    def __init__(self) -> None:
        self._drawn: dict[int, torch.Tensor] = {}

    def normal(self, size: int) -> torch.Tensor:
        if size not in self._drawn:
            self._drawn[size] = SystemNoise().normal(size)
        return self._drawn[size].clone()

    def rounded_normal(self, size: int, spread: float) -> torch.Tensor:
        return self.normal(size).mul_(spread).round_()


def _noise(make: Callable[[], Any]) -> Plant:
    def plant(patch: pytest.MonkeyPatch) -> None:
        noise = make()
        _stepping(lambda _, state, **settings: projected_noisy_step(noise, state, **settings))(patch)

    return plant


def _every_second(noise: Any, state: State, **settings: Any) -> State:
    return _copied(state) if state.steps_done % 2 else projected_noisy_step(noise, state, **settings)


def _canary_stays(patch: pytest.MonkeyPatch) -> None:
    right = evidence.Lanes.push.fget
    assert right is not None

    def push(self: evidence.Lanes) -> evidence.Push:
        return replace(right(self), canaries=self._law.push * self._canaries)

    patch.setattr(evidence.Lanes, "push", property(push))


Fault = Callable[[Schedule, int], Step]


def _scheduled(fault: Fault) -> Plant:
    """Return a plant that replaces the steps of the run's schedule with `fault(schedule, done)`."""

    class Faulty(Schedule):
        def step(self, done: int) -> Step:
            return fault(Schedule(**asdict(self)), done)

    return lambda patch: patch.setattr(chain, "Schedule", Faulty)


def reading(order: Callable[[int], Sequence[int]]) -> Fault:
    """Return a fault in which the run reads the batches repeatedly in another order."""

    def step(right: Schedule, done: int) -> Step:
        batches = order(right.num_batches)
        batch = batches[(right.first_step + done) % len(batches)]
        return replace(right.step(done), batch=batch, rows=right.rows_of(batch))

    return step


def _once(other: Callable[[int, int], int]) -> Fault:
    """Return a fault in which the run's middle step reads the batch of another step, `other(done, middle)`."""

    def step(right: Schedule, done: int) -> Step:
        instead = right.step(other(done, right.steps // 2))
        return replace(right.step(done), batch=instead.batch, rows=instead.rows)

    return step


SCHEDULES: dict[str, Fault] = {
    "a batch skipped": reading(lambda batches: [batch for batch in range(batches) if batch != batches // 2]),
    "a batch read in place of the next": reading(
        lambda batches: [batch - (batch == batches // 2) for batch in range(batches)]
    ),
    "order reversed": reading(lambda batches: range(batches)[::-1]),
    "order shuffled": reading(lambda batches: np.random.default_rng(1).permutation(batches).tolist()),
    "always the same batch": reading(lambda batches: [0]),
    "position not carried": lambda right, done: replace(right, first_step=0).step(done),
    "no cool-down": lambda right, done: replace(right.step(done), share=1.0),
    "one step reads another batch": _once(lambda done, middle: done + (done == middle)),
    "two steps change places": _once(lambda done, middle: {middle: middle + 1, middle + 1: middle}.get(done, done)),
}
"""Faults in the order of the batches and in the step-size schedule."""

FAULTS: dict[str, Plant] = {
    "does nothing": _stepping(lambda _, state, **settings: _copied(state)),
    "no noise": _noise(SilentNoise),
    "noise x 0.5": _with(noise_scale=lambda scale: 0.5 * scale),
    "noise x 2": _with(noise_scale=lambda scale: 2 * scale),
    "noise reused": _noise(Repeating),
    "half the steps": _stepping(_every_second),
    "canary stays": _canary_stays,
    "contracts too little": _with(l2=lambda l2: l2 / 3),
    "lanes pushed": _with(push=lambda push: push + 0.05),
}
BATCHED = FAULTS | {name: _scheduled(fault) for name, fault in SCHEDULES.items()}
"""Faults in runs that read batches in order."""
OF_FORGETTING = ("canary stays",)
"""Faults that exist only in runs that forget, because canaries are meant to stay during training."""
OF_LATER_RUNS = ("position not carried",)
"""Faults that exist only in later runs, because a chain's first run cannot show them."""
