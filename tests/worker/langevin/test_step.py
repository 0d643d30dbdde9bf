import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

from tests.worker.langevin.conftest import SilentNoise
from worker.langevin.gradient import HostRows as RowsInMemory
from worker.langevin.noise import SystemNoise
from worker.langevin.step import State, projected_noisy_step

Rows = Callable[..., tuple[Any, Any]]
SETTINGS = {"num_slots": 60, "l2": 0.05, "step_size": 1.5, "noise_scale": 0.2, "radius": 20.0}


def state_at(parameters: Any, steps_done: int = 0) -> State:
    return State(parameters=torch.tensor(parameters, dtype=torch.float64), steps_done=steps_done)


def step(noise: Any, state: State, features: Any, labels: Any, **settings: Any) -> State:
    num_classes = max(2, state.parameters.shape[0])
    with RowsInMemory(features, labels, num_classes=num_classes) as rows:
        return projected_noisy_step(noise, state, rows=rows, **SETTINGS | settings)


def test_noiseless_steps_are_gradient_descent_for_two_classes(random_rows: Rows, silent_noise: Any) -> None:
    """With two classes, the noiseless step is x - eta * grad f(x), where numpy computes the gradient of f with labels
    -1 and +1."""
    features, labels = random_rows(60, 6)
    here = np.random.default_rng(1).standard_normal((1, 6))
    signs = 2.0 * labels - 1
    slopes = -signs / (1 + np.exp(signs * (features.astype(float) @ here[0])))
    expected = here - 1.5 * (slopes @ features.astype(float) / 60 + 0.05 * here)
    after = step(silent_noise, state_at(here), features, labels)
    np.testing.assert_allclose(after.parameters.numpy(), expected, atol=1e-6)


def test_noiseless_steps_are_gradient_descent_for_many_classes(random_rows: Rows, silent_noise: Any) -> None:
    """With more classes, the noiseless step is x - eta * grad f(x), where numpy computes the softmax gradient of f."""
    features, labels = random_rows(60, 6, 4)
    here = np.random.default_rng(1).standard_normal((4, 6))
    odds = np.exp(features.astype(float) @ here.T)
    slopes = odds / odds.sum(axis=1, keepdims=True) - np.eye(4)[labels]
    expected = here - 1.5 * (slopes.T @ features.astype(float) / 60 + 0.05 * here)
    after = step(silent_noise, state_at(here), features, labels)
    np.testing.assert_allclose(after.parameters.numpy(), expected, atol=1e-6)


def test_steps_without_data_are_decay_plus_noise(random_rows: Rows, replayable_noise: Any) -> None:
    """On null rows a step is (1 - eta * l2) x + sqrt(2 eta) * noise_scale * z."""
    features, labels = random_rows(60, 6)
    here = np.random.default_rng(1).standard_normal((1, 6))
    after = step(replayable_noise(5), state_at(here), np.zeros_like(features), labels)
    z = np.random.default_rng(5).standard_normal(6)
    expected = (1 - 1.5 * 0.05) * here + math.sqrt(2 * 1.5) * 0.2 * z
    np.testing.assert_allclose(after.parameters.numpy(), expected, rtol=1e-13)


@pytest.mark.slow
@pytest.mark.parametrize("grid", [0.0, 2.0**-34])
def test_steps_add_gaussian_noise_of_the_stated_variance(grid: float, silent_noise: Any) -> None:
    """A step with production noise, with or without a grid, differs from the noiseless step by N(0, 2 eta sigma^2),
    according to a Kolmogorov-Smirnov test on 100,000 coordinates with a false-alarm rate of 1e-9."""
    width = 100_000
    features = np.zeros((2, width), np.float32)
    features[:, 0] = 1
    data = {"features": features, "labels": np.array([0, 1], np.int32), "num_slots": 2, "radius": 1e6}
    here = state_at(np.ones((1, width)))
    noisy, plain = (step(noise, here, **data, grid=grid).parameters.numpy() for noise in (SystemNoise(), silent_noise))
    assert stats.kstest((noisy - plain).ravel(), "norm", args=(0, math.sqrt(2 * 1.5) * 0.2)).pvalue > 1e-9


def test_steps_on_a_grid_round_the_mean_and_add_an_integer(random_rows: Rows, replayable_noise: Any) -> None:
    """On a grid, the next state is exactly grid * (round(mean / grid) + integer), however coarse the grid is."""
    features, labels = random_rows(60, 6)
    here = state_at(np.random.default_rng(1).standard_normal((1, 6)))
    for grid in (2.0**-40, 2.0**-8, 0.5, 4.0):
        noise = replayable_noise(7)
        mean = step(SilentNoise(), here, features, labels).parameters.numpy()
        after = step(noise, here, features, labels, grid=grid).parameters.numpy()
        whole = np.rint(math.sqrt(2 * 1.5) * 0.2 / grid * np.random.default_rng(7).standard_normal(6))
        assert (after == grid * (np.rint(mean / grid) + whole)).all()
        assert not noise.drawn[0].any()


def test_result_stays_in_the_ball(random_rows: Rows, replayable_noise: Any) -> None:
    """The next state lies in the ball, whatever the noise."""
    features, labels = random_rows(60, 6)
    for seed in range(20):
        here = state_at(np.full((1, 6), 0.3))
        after = step(replayable_noise(seed), here, features, labels, noise_scale=100.0, radius=0.8)
        assert float(torch.linalg.vector_norm(after.parameters)) <= 0.8 * (1 + 1e-12)


def test_a_step_does_not_change_its_input(random_rows: Rows, replayable_noise: Any) -> None:
    """A step increments the step count, does not modify the old state, and is deterministic for given noise."""
    features, labels = random_rows(60, 6)
    before = state_at(np.ones((1, 6)), steps_done=4)
    results = [step(replayable_noise(3), before, features, labels) for _ in range(2)]
    assert torch.equal(before.parameters, torch.ones(1, 6, dtype=torch.float64))
    assert torch.equal(results[0].parameters, results[1].parameters)
    assert [before.steps_done, results[0].steps_done] == [4, 5]
    with pytest.raises(dataclasses.FrozenInstanceError):
        before.steps_done = 0  # type: ignore[misc]


@pytest.mark.parametrize("poison", [math.nan, math.inf])
def test_a_result_that_is_not_finite_is_refused(poison: float, random_rows: Rows) -> None:
    """Non-finite noise stops the step with an error that quotes no number, and the step's result is overwritten."""
    features, labels = random_rows(60, 6)
    buffer = torch.full((6,), poison, dtype=torch.float64)

    class BrokenNoise:
        def normal(self, size: int) -> torch.Tensor:
            return buffer

    with pytest.raises(FloatingPointError) as refused:
        step(BrokenNoise(), state_at(np.ones((1, 6))), features, labels)
    assert not any(character.isdigit() for character in str(refused.value))
    assert not buffer.any()
