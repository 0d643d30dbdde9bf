"""The canary test of runs by objective perturbation: its law, its false alarms, and the faults that it finds."""

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from scipy import optimize, stats

from app.errors import AuditFailed
from lethe.features.objective import accountant
from lethe.features.objective.methods import Perturbed, calibrate
from lethe.proof import canary_test
from lethe.proof.calibration import ModelSettings
from lethe.proof.canary_test import CanaryPlan, Observed
from lethe.proof.errors import PreconditionError
from lethe.proof.losses import Objective
from tests.features.objective.test_solver import KINDS, rows as rows_of
from worker import evidence
from worker.features.canary_tests import chain_of_canaries as canaries
from worker.features.objective import methods, solver
from worker.langevin.noise import SystemNoise

DELTA = 1e-4
STEPS = 300
LEARNING = CanaryPlan(lanes=512, steps_before=0, steps=STEPS)
FORGETTING = CanaryPlan(lanes=512, steps_before=STEPS, steps=STEPS)
LENGTHS = dict(zip(KINDS, (1, 2, 3), strict=True))
"""Squared length of the longest change of one record's slopes: one score, two scores of opposite sign, three labels."""

Fault = Callable[[pytest.MonkeyPatch], None]


@functools.cache
def made(objective: Objective = Objective.LOGISTIC_REGRESSION, classes: int = 2) -> Perturbed:
    """Return the mechanism of a model of forty rows with four columns."""
    scores = 1 if (objective, classes) == (Objective.LOGISTIC_REGRESSION, 2) else classes
    return calibrate(
        ModelSettings(epsilon=1.0, delta=DELTA),
        num_slots=40,
        num_classes=classes,
        objective=objective,
        num_parameters=4 * scores,
    )


def ran(plan: CanaryPlan | None, mechanism: Perturbed, noise: Any = None) -> Any:
    """Return a run on forty rows with the plan's lanes, or without lanes."""
    features, labels = rows_of(mechanism.objective, mechanism.num_classes)
    return methods.run(
        mechanism=mechanism,
        features=features,
        labels=labels,
        initial=np.zeros(mechanism.shape),
        steps=STEPS,
        noise=noise or SystemNoise(),
        on_progress=lambda steps_done: None,
        lanes=evidence.of(mechanism, plan) if plan else None,
    )


def observed(plan: CanaryPlan, mechanism: Perturbed) -> Observed:
    found: Observed = ran(plan, mechanism).observed
    return found


@pytest.mark.parametrize(("objective", "classes"), KINDS)
def test_a_few_hundred_lanes_can_refute_the_guarantee(objective: Objective, classes: int) -> None:
    """With 256 lanes, correct guesses about all of them prove more than is certified for the records of a canary."""
    mechanism, plan = made(objective, classes), CanaryPlan(lanes=256, steps_before=0, steps=STEPS)
    certified = canary_test.certified_mu(mechanism, plan, records=canary_test.law(mechanism, plan).records)
    assert canary_test.mu_of_right_guesses(256, 256, error=canary_test.ERROR) > certified


class Prepared:
    """Noise that is prepared in advance, so that the first numbers do not depend on how many are drawn."""

    def __init__(self) -> None:
        self.normals = np.random.default_rng(3).standard_normal((2, 1000))
        self._draws = iter(self.normals)

    def rounded_normal(self, size: int, spread: float) -> torch.Tensor:
        return torch.from_numpy(np.round(spread * next(self._draws)[:size]))


class Scaled(SystemNoise):
    """Faulty noise: the draws with these numbers, out of the two of each run, are scaled by a factor."""

    def __init__(self, factor: float, *draws: int) -> None:
        super().__init__()
        self._factor, self._draws, self._count = factor, draws, 0

    def rounded_normal(self, size: int, spread: float) -> torch.Tensor:
        drawn = super().rounded_normal(size, spread)
        self._count += 1
        return torch.round(self._factor * drawn) if (self._count - 1) % 2 in self._draws else drawn


# --- the law ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(("objective", "classes"), KINDS)
@pytest.mark.parametrize("newton", [0, 512])
def test_each_lane_ends_at_the_root_of_its_own_problem(
    objective: Objective, classes: int, newton: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With either solver, each lane ends at the root of its one-dimensional problem, which scipy finds from the lane's
    own number of the common draw, plus its own output noise. Every second lane has a canary with the same slope."""
    monkeypatch.setattr(solver, "NEWTON_PARAMETERS", newton)
    mechanism, plan = made(objective, classes), CanaryPlan(lanes=20, steps_before=0, steps=STEPS)
    size, law = mechanism.num_parameters, canary_test.law(mechanism, plan)
    noise = Prepared()
    found = ran(plan, mechanism, noise)
    assert law.push == pytest.approx(-law.records * math.sqrt(LENGTHS[objective, classes]))
    for lane in range(plan.lanes):
        perturbation, output = noise.normals[:, size + lane] * (mechanism.noise_scale, mechanism.output_noise)
        constant = perturbation + (law.push if lane < plan.lanes // 2 else 0.0)
        root = optimize.brentq(
            lambda w, constant: constant + mechanism.regularisation * w, -1e3, 1e3, args=(constant,), xtol=1e-13
        )
        assert float(found.lanes[lane]) == pytest.approx(root + output, abs=1e-5 * mechanism.output_noise)


@pytest.mark.parametrize(("objective", "classes"), KINDS)
def test_lanes_do_not_change_a_bit_of_the_model(objective: Objective, classes: int) -> None:
    """With the same noise, a version has the same parameters whether or not its run has lanes, and the same lanes
    whatever its rows."""
    mechanism, plan = made(objective, classes), CanaryPlan(lanes=20, steps_before=0, steps=STEPS)
    with_lanes, without = ran(plan, mechanism, Prepared()), ran(None, mechanism, Prepared())
    assert np.array_equal(with_lanes.parameters, without.parameters)
    assert (len(without.lanes), without.observed) == (0, None)
    features, labels = rows_of(objective, classes)
    other = solver.minimise(
        mechanism=mechanism,
        features=np.zeros_like(features),
        labels=labels,
        noise=Prepared(),
        on_progress=lambda iterations: None,
        slopes=evidence.of(mechanism, plan).push.canaries.numpy(),  # type: ignore[union-attr]
    )
    assert np.array_equal(other.lanes, with_lanes.lanes.numpy())


@pytest.mark.parametrize(("objective", "classes"), KINDS)
def test_lanes_differ_by_at_most_what_is_certified(objective: Objective, classes: int) -> None:
    """The distance between lanes with and without a canary, in standard deviations, is at most the certified mu of its
    records, and at least half of it. A forgotten canary leaves no distance, and its certified epsilon is 0."""
    mechanism = made(objective, classes)
    law = canary_test.law(mechanism, LEARNING)
    certified = canary_test.certified_mu(mechanism, LEARNING, records=law.records)
    assert certified == accountant.mu(mechanism, records=law.records)
    assert 0.5 * certified < np.abs(law.mean).max() / math.sqrt(law.variance) <= certified
    assert not canary_test.law(mechanism, FORGETTING).mean.any()
    assert canary_test.certified_mu(mechanism, FORGETTING) == accountant.deletion_mu(mechanism)
    assert canary_test.certified_mu(mechanism, FORGETTING, records=10**6) == accountant.deletion_mu(mechanism)


# --- correct runs ----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_correct_runs_rarely_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 300 correct runs, tested at an error of 5 % for the guarantee, for the lanes' law and for the output noise, no
    more fail each test than an exact binomial of that rate allows with probability 1e-6."""
    runs, error, mechanism = 300, 0.05, made()
    plan = CanaryPlan(lanes=48, steps_before=0, steps=STEPS)
    monkeypatch.setattr(solver, "FALSE_ALARM", error)
    failed = {"guarantee": 0, "law": 0, "output": 0}
    certified = canary_test.certified_mu(mechanism, plan, records=canary_test.law(mechanism, plan).records)
    for _ in range(runs):
        try:
            found = observed(plan, mechanism)
        except AuditFailed:
            failed["output"] += 1
            continue
        failed["guarantee"] += found.proved(error) > certified
        failed["law"] += bool(found.deviations(error=error))
    for name, count in failed.items():
        assert stats.binom.sf(count - 1, runs, error) > 1e-6, (name, count)


@pytest.mark.slow
@pytest.mark.parametrize(("objective", "classes"), KINDS)
@pytest.mark.parametrize("plan", [LEARNING, FORGETTING])
def test_a_requested_test_of_a_correct_method_passes(plan: CanaryPlan, objective: Objective, classes: int) -> None:
    """A canary test on request, which learns the canaries and then solves without them, reports both runs and finds
    nothing. What it proves about present canaries is positive, and nothing about forgotten ones."""
    mechanism, reported = made(objective, classes), list[int]()
    found = canaries.run(mechanism, dataclasses.replace(plan, lanes=4096), on_progress=reported.append)
    assert reported == [STEPS, 2 * STEPS][: 1 + (plan is FORGETTING)]
    document = found.to_json(mechanism, delta=DELTA)
    assert (document["findings"], document["mu_lower_bound"] > 0) == ([], plan is LEARNING)
    assert document["mu_lower_bound"] <= document["mu"]
    if plan is FORGETTING:
        assert (document["notion"], document["epsilon"], document["epsilon_lower_bound"]) == ("deletion", 0, 0)


# --- faults ----------------------------------------------------------------------------------------------------------


def _noise(factor: float, *draws: int) -> Fault:
    def minimise(*, noise: Any, **named: Any) -> Any:
        return solver.minimise(noise=Scaled(factor, *draws), **named)

    return lambda patch: patch.setattr(methods, "minimise", minimise)


def _regularisation(factor: float) -> Fault:
    solve = solver._solve

    def with_less(rows: Any, mechanism: Any, *rest: Any) -> None:
        solve(rows, dataclasses.replace(mechanism, l2=factor * mechanism.l2), *rest)

    return lambda patch: patch.setattr(solver, "_solve", with_less)


def _stops_early(patch: pytest.MonkeyPatch) -> None:
    solve = solver._solve

    def early(rows: Any, mechanism: Any, perturbation: Any, point: Any, *rest: Any) -> None:
        solve(rows, mechanism, perturbation, point, *rest)
        point *= 0.6

    patch.setattr(solver, "_solve", early)


def _canary_everywhere(patch: pytest.MonkeyPatch) -> None:
    right = evidence.Lanes.push.fget
    assert right is not None

    def push(lanes: evidence.Lanes) -> evidence.Push:
        return dataclasses.replace(right(lanes), canaries=torch.full_like(lanes._canaries, lanes._law.push))

    patch.setattr(evidence.Lanes, "push", property(push))


def _canary_stays(patch: pytest.MonkeyPatch) -> None:
    right = evidence.Lanes.push.fget
    assert right is not None
    learned: list[torch.Tensor] = []

    def push(lanes: evidence.Lanes) -> evidence.Push:
        pushed = right(lanes)
        learned.extend([] if pushed.canaries is None else [pushed.canaries])
        return dataclasses.replace(pushed, canaries=learned[0])

    patch.setattr(evidence.Lanes, "push", property(push))


class Repeating(SystemNoise):
    """Faulty noise: every run draws what the first run drew."""

    drawn: dict[int, torch.Tensor]

    def rounded_normal(self, size: int, spread: float) -> torch.Tensor:
        return self.drawn.setdefault(round(spread), super().rounded_normal(size, spread)).clone()


def _noise_reused(patch: pytest.MonkeyPatch) -> None:
    drawn: dict[int, torch.Tensor] = {}

    def minimise(*, noise: Any, **named: Any) -> Any:
        repeating = Repeating()
        repeating.drawn = drawn
        return solver.minimise(noise=repeating, **named)

    patch.setattr(methods, "minimise", minimise)


FAULTS: dict[str, Fault] = {
    "noise halved": _noise(0.5, 0),
    "noise doubled": _noise(2.0, 0),
    "noise missing": _noise(0.0, 0),
    "Lambda too small": _regularisation(0.6),
    "Lambda too large": _regularisation(1.7),
    "solver stops early": _stops_early,
    "canaries that are absent stay": _canary_everywhere,
}
"""Faults in every run."""
FORGETTING_FAULTS: dict[str, Fault] = {
    "deleted canary stays": _canary_stays,
    "noise of the previous run reused": _noise_reused,
}
"""Faults in a run after a deletion."""


@pytest.fixture
def unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Disable the check of the gradient, so that only the lanes can find a fault."""
    monkeypatch.setattr(solver, "gradient_norm_bound", lambda *given, **named: 0.0)


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize(("objective", "classes"), KINDS)
def test_a_fault_in_a_run_is_found(
    fault: str, objective: Objective, classes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lanes of a single run find each fault in its noise, regularisation, solver or canaries."""
    mechanism = made(objective, classes)
    FAULTS[fault](monkeypatch)
    assert observed(LEARNING, mechanism).findings(mechanism)


@pytest.mark.slow
@pytest.mark.parametrize("factor", [0.0, 0.5, 2.0])
def test_wrong_output_noise_is_found(factor: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """The output noise is so small that it does not show in the lanes' positions. A run in which it is missing, halved
    or doubled is refused by the test of the distance between lanes and their minimisers."""
    _noise(factor, 1)(monkeypatch)
    with pytest.raises(AuditFailed, match="output noise"):
        ran(LEARNING, made())


@pytest.mark.parametrize("fault", FORGETTING_FAULTS)
def test_a_fault_after_a_deletion_is_found(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A canary test on request finds a run after a deletion that still has the deleted canaries, or that uses the noise
    of the run before."""
    FORGETTING_FAULTS[fault](monkeypatch)
    found = canaries.run(made(), FORGETTING, on_progress=lambda steps_done: None)
    assert "forgetting" in found.findings(made())


@pytest.mark.slow
def test_a_deleted_canary_that_stays_refutes_the_guarantee(monkeypatch: pytest.MonkeyPatch) -> None:
    """With 4,096 lanes, guesses about deleted canaries that stay refute the certified deletion epsilon of 0."""
    _canary_stays(monkeypatch)
    plan = dataclasses.replace(FORGETTING, lanes=4096)
    found = canaries.run(made(), plan, on_progress=lambda steps_done: None)
    assert "guarantee" in found.findings(made())


def test_half_the_noise_refutes_the_guarantee(monkeypatch: pytest.MonkeyPatch) -> None:
    """With 4,096 lanes and half the noise, guesses about present canaries prove more than the certified mu."""
    _noise(0.5, 0)(monkeypatch)
    found = observed(dataclasses.replace(LEARNING, lanes=4096), made())
    assert "guarantee" in found.findings(made())


def test_records_other_than_planned_are_refused() -> None:
    """A statement about canaries with more records than planned is refused: its bound for one record would be lower."""
    found = observed(LEARNING, made())
    with pytest.raises(PreconditionError) as refused:
        dataclasses.replace(found, records=found.records + 2).findings(made())
    assert refused.value.name == "records_of_plan"
