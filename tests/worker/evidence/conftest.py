"""A small problem whose runs are tested."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from lethe.proof.canary_test import CanaryPlan
from lethe.proof.losses import Objective
from lethe.proof.mechanism import Mechanism, finest_grid
from worker import evidence
from worker.langevin import chain
from worker.langevin.noise import Noise, SystemNoise

LEARNING = CanaryPlan(lanes=256, steps_before=0, steps=40)
FORGETTING = CanaryPlan(lanes=256, steps_before=40, steps=20)
LEARNING_BATCHES = CanaryPlan(lanes=256, steps_before=0, steps=43)
FORGETTING_BATCHES = CanaryPlan(lanes=256, steps_before=43, steps=21)
SHORT = CanaryPlan(lanes=256, steps_before=43, steps=7)
"""A run that does not read every batch, and ends before its cool-down could begin."""


@pytest.fixture
def mechanism() -> Mechanism:
    """Return a mechanism with 40 slots and 5 columns, whose step multiplies a lane by 0.96."""
    return Mechanism(
        objective=Objective.LOGISTIC_REGRESSION,
        num_slots=40,
        num_classes=2,
        l2=0.02,
        step_size=2.0,
        noise_scale=0.05,
        radius=10.0,
        learn_steps=40,
        grid=finest_grid(noise_std=0.1, radius=10.0),
        num_parameters=5,
    )


@pytest.fixture
def batched(mechanism: Mechanism) -> Mechanism:
    """Return the same mechanism in ten batches of 4 slots."""
    made = replace(mechanism, batch_size=4, cool_down=8)
    return replace(made, grid=finest_grid(noise_std=made.least_noise_std, radius=made.radius))


@pytest.fixture
def ran(mechanism: Mechanism) -> Callable[..., chain.Ran]:
    """Return a function that runs the chain on rows of norm 1, with a plan's canary lanes or without any."""
    features = np.random.default_rng(0).standard_normal((40, 5))
    features *= (1 - 2**-20) / np.linalg.norm(features, axis=1, keepdims=True)

    def run(
        plan: CanaryPlan | None,
        *,
        made: Mechanism = mechanism,
        steps: int | None = None,
        noise: Noise | None = None,
        **changed: Any,
    ) -> chain.Ran:
        return chain.run(
            mechanism=replace(made, **changed),
            features=features.astype(np.float32),
            labels=(features[:, 0] > 0).astype(np.int32),
            initial=np.zeros((1, 5)),
            first_step=plan.steps_before if plan else 0,
            on_progress=lambda steps_done: None,
            steps=steps or (plan.steps if plan else 20),
            noise=noise or SystemNoise(),
            lanes=evidence.of(made, plan) if plan else None,
        )

    return run
