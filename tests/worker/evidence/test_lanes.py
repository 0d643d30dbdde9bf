"""Lanes in the running chain: they follow their law and affect nothing else."""

import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

from app.rows.blocks import BLOCK_ROWS
from lethe.proof import calibration, canary_test
from lethe.proof.canary_test import CanaryPlan
from lethe.proof.mechanism import Mechanism
from tests.stored import held_in_memory
from tests.worker import passes
from tests.worker.evidence.conftest import FORGETTING, FORGETTING_BATCHES, LEARNING, LEARNING_BATCHES, SHORT
from worker import evidence, isolated
from worker.langevin import chain, engines
from worker.langevin.noise import SystemNoise

Run = Callable[..., chain.Ran]
BOTH = pytest.mark.parametrize("plan", [LEARNING, FORGETTING], ids=["learning", "forgetting"])


@pytest.fixture(params=["cpu", *passes.OTHERS])
def computing(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Select the engine that computes the steps, where CPU tensors stand in for a device, and return its name."""
    name = request.param

    def opened(mechanism: Mechanism, features: Any, labels: Any, *_: Any) -> AbstractContextManager[Any]:
        return passes.OTHERS[name](features, labels, num_classes=mechanism.num_classes)

    if name != "cpu":
        monkeypatch.setattr(engines, "open_rows", opened)
    return name


@BOTH
@pytest.mark.parametrize("grid", [0.0, None, 2.0**-12], ids=["no grid", "production's grid", "coarse grid"])
def test_lanes_follow_their_law(
    plan: CanaryPlan, grid: float | None, computing: str, mechanism: Mechanism, ran: Run
) -> None:
    """On any grid, the final positions of 2,048 lanes with a canary follow N(mean, variance), and those of 2,048 lanes
    without a canary follow N(0, variance). Two Kolmogorov-Smirnov tests check this with a false-alarm rate of 1e-9
    each, and the canary test has no findings."""
    plan = replace(plan, lanes=4096)
    law, found = canary_test.law(mechanism, plan), ran(plan, **{} if grid is None else {"grid": grid})
    assert found.lanes is not None
    assert found.observed is not None
    ends, std = evidence.of(mechanism, plan).without_witnesses(found.lanes).numpy(), math.sqrt(law.variance)
    assert law.mean[0] > 2.5 * std
    assert stats.kstest(ends[:2048], "norm", args=(law.mean[0], std)).pvalue > 1e-9
    assert stats.kstest(ends[2048:], "norm", args=(0, std)).pvalue > 1e-9
    assert found.observed.findings(mechanism) == ()


@BOTH
@pytest.mark.parametrize("steps", [1, 2, 7])
def test_short_runs_are_tested_too(
    plan: CanaryPlan, steps: int, computing: str, mechanism: Mechanism, ran: Run
) -> None:
    """The canary test of a short run covers exactly the run's steps and has no findings."""
    plan = replace(plan, steps=steps)
    found = ran(plan)
    assert found.observed is not None
    assert (found.observed.plan, found.steps, found.records) == (plan, steps, 40)
    assert found.observed.findings(mechanism) == ()


@pytest.mark.parametrize("plan", [LEARNING_BATCHES, FORGETTING_BATCHES, SHORT], ids=["learning", "forgetting", "short"])
def test_lanes_of_batches_follow_their_law(plan: CanaryPlan, computing: str, batched: Mechanism, ran: Run) -> None:
    """Canary lanes follow their law even if each step reads only one batch and the step size decreases. The batches'
    witnesses move some lanes by at least ten thousand standard deviations."""
    found = ran(plan, made=batched)
    assert found.observed is not None
    assert found.lanes is not None
    assert found.observed.findings(batched) == ()
    assert found.lanes.abs().max() > 1e4 * math.sqrt(canary_test.law(batched, plan).variance)


class TwoSources:
    """Noise that draws the five parameters from one seed and everything after them from another."""

    def __init__(self, seed: int) -> None:
        self._parameters, self._others = np.random.default_rng(seed), np.random.default_rng(seed + 1)

    def normal(self, size: int) -> torch.Tensor:
        if size == LEARNING.lanes:  # initial positions of the lanes
            return torch.from_numpy(self._others.standard_normal(size))
        drawn = [self._parameters.standard_normal(5), self._others.standard_normal(size - 5)]
        return torch.from_numpy(np.concatenate(drawn))

    def rounded_normal(self, size: int, spread: float) -> torch.Tensor:
        return self.normal(size).mul_(spread).round_()


@BOTH
def test_lanes_do_not_affect_the_parameters(plan: CanaryPlan, ran: Run) -> None:
    """With the same noise for the parameters, a run with canary lanes and a run without them end with bit-identical
    parameters."""
    audited = ran(plan, noise=TwoSources(3))
    alone = ran(None, steps=plan.steps, noise=TwoSources(3))
    assert np.array_equal(audited.parameters, alone.parameters)
    assert (alone.lanes, alone.observed) == (None, None)


def test_lanes_are_not_projected(mechanism: Mechanism, ran: Run) -> None:
    """Canary lanes are not projected into the ball even if they are far outside it, whereas the parameters are
    projected at every step."""
    small, plan = 0.05, FORGETTING
    found = ran(plan, radius=small)
    assert np.linalg.norm(found.parameters) <= small * (1 + 1e-6)
    assert found.lanes is not None
    assert found.lanes.abs().max() > 10 * small
    assert found.observed is not None
    assert found.observed.findings(mechanism) == ()


def test_lanes_of_an_isolated_run_follow_their_law(mechanism: Mechanism) -> None:
    """A run in a separate process counts all non-null rows, and its canary lanes follow their law."""
    slots = 2 * BLOCK_ROWS + 700
    features = np.random.default_rng(0).standard_normal((slots, 5)).astype(np.float32)
    features /= 1.001 * np.linalg.norm(features, axis=1, keepdims=True)
    features[::7] = 0
    wide = replace(mechanism, num_slots=slots, batch_size=slots)
    for plan in (LEARNING, FORGETTING):
        with held_in_memory(features, np.zeros(slots, np.int32)) as rows:
            found = isolated.run(
                wide,
                rows=rows,
                initial=np.zeros((1, 5)),
                steps=plan.steps,
                audit=plan,
                on_progress=lambda steps_done: None,
            )
        assert found.records == slots - len(range(0, slots, 7))
        assert found.observed is not None
        assert found.observed.plan == plan
        assert found.observed.findings(wide) == ()


@pytest.mark.slow
@pytest.mark.parametrize("steps", [1, 9_000, 46_500, 60_000])
def test_drift_is_standard_normal(steps: int) -> None:
    """Over 4,000 correct canary tests, the drift statistic passes a test for standard normality with a false-alarm rate
    of 1e-9, even if the expected value or its square underflows. The first ten of these tests have no findings."""
    mechanism = calibration.mechanism_for(
        calibration.ModelSettings(epsilon=1.0, delta=1e-5), num_slots=1000, num_classes=2
    )
    plan = CanaryPlan(lanes=64, steps_before=2601, steps=steps)
    law, one, noise = canary_test.law(mechanism, plan), evidence.of(mechanism, plan), SystemNoise()
    drifts, witnessed = [], -one.without_witnesses(torch.zeros(64, dtype=torch.float64))
    for _ in range(4000):
        start = one.start(noise)
        ended = law.decay * start + witnessed + law.unforeseen**0.5 * noise.normal(64)
        observed = one.observed(start, ended)
        drifts.append(observed.drift)
        assert len(drifts) > 10 or observed.findings(mechanism) == ()
    assert stats.kstest(drifts, "norm").pvalue > 1e-9
    assert np.abs(drifts).max() < 8


def test_lanes_start_where_given(mechanism: Mechanism) -> None:
    """Canary lanes start at the given positions, or at the origin in a training run. The returned starting positions
    are a copy."""
    law, known = canary_test.law(mechanism, FORGETTING), torch.arange(256, dtype=torch.float64)
    given = evidence.Lanes(law, FORGETTING, start=known)
    given.start(SystemNoise()).zero_()
    assert torch.equal(given.start(SystemNoise()), known)
    assert not evidence.of(mechanism, LEARNING).start(SystemNoise()).any()


def test_paired_lanes_share_their_witnesses(mechanism: Mechanism) -> None:
    """Both lanes of a pair have the same witnesses. The first lane also has a canary while the canary is present."""
    for plan, there in ((LEARNING, canary_test.law(mechanism, LEARNING).push), (FORGETTING, 0.0)):
        first, second = evidence.of(mechanism, plan).push.of(0).chunk(2)
        assert len(second.unique()) == plan.groups == 16
        assert (first - second).numpy() == pytest.approx(there, rel=1e-9, abs=1e-300)
