"""What audits find and prove: by the law that a faulty run has, and in the chain that runs."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from rich.progress import track
from scipy import special, stats

from benchmarks.canaries.costing import walk
from benchmarks.canaries.plans import BATCHES, DEFAULT, IN_BATCHES, LANES, SHAPES, Row, planned
from lethe.proof import canary_test
from lethe.proof.canary_test import CanaryPlan, Law, Observed
from lethe.proof.mechanism import Mechanism
from tests.worker.evidence.faults import BATCHED, OF_FORGETTING, OF_LATER_RUNS, SCHEDULES, Fault
from worker.evidence import Lanes
from worker.langevin.noise import SystemNoise
from worker.langevin.schedule import Schedule

TESTS = ("guarantee", "noise", "forgetting", "schedule")
LOOSER = 0.01
CHANGED: dict[str, dict[str, Any]] = {
    "none": {},
    "does nothing": {"steps": 0.0},
    "no noise": {"noise": 0.0},
    "noise x 0.7": {"noise": 0.7},
    "noise x 0.9": {"noise": 0.9},
    "noise reused at every step": {"reused": True},
    "half the steps": {"steps": 0.5},
    "90 % of the steps": {"steps": 0.9},
    "canary not removed": {"stays": True},
    "contracts 10 % less": {"pull": 0.9},
}
"""What is wrong with a run, as its lanes see it."""
ALL_CHANGED = CHANGED | {name: {"fault": fault} for name, fault in SCHEDULES.items()}


def changed(run: str) -> dict[str, dict[str, Any]]:
    """The faults that a run can have."""
    return {name: fault for name, fault in ALL_CHANGED.items() if not _cannot_be(name, run)}


def observe(
    mechanism: Mechanism, plan: CanaryPlan, audits: int, fault: Mapping[str, Any] = CHANGED["none"]
) -> Iterator[Observed]:
    """Audits of runs with a fault, each drawn from the law that it then has."""
    law, noise = canary_test.law(mechanism, plan), SystemNoise()
    one, canaries = Lanes(law, plan), torch.arange(plan.lanes) < plan.lanes // 2
    stays = fault.get("stays", not plan.steps_before)
    read, decay, spread = _ran(mechanism, plan, **{k: v for k, v in fault.items() if k != "stays"})
    witnessed = np.bincount(np.arange(len(read)) % len(law.witnesses), weights=read) @ law.witnesses
    moved = torch.from_numpy(witnessed)[one.push.groups] + stays * law.push * canaries * torch.from_numpy(
        read[law.place]
    ).repeat(2)
    for _ in range(audits):
        start = one.start(noise)
        yield one.observed(start, decay * start + moved + spread * noise.normal(plan.lanes))


def _ran(
    mechanism: Mechanism,
    plan: CanaryPlan,
    *,
    steps: float = 1.0,
    noise: float = 1.0,
    reused: bool = False,
    pull: float = 1.0,
    fault: Fault = Schedule.step,
) -> tuple[Any, float, float]:
    """What a faulty run makes of lanes, step by step: by batch how far one unit of a record in it moves one, by what
    the run multiplies what was there, and the standard deviation of its noise."""
    read, decay, variance, sum_of_noise = np.zeros(mechanism.num_batches), 1.0, 0.0, 0.0
    if last := int(steps * plan.steps):
        schedule = Schedule(
            num_slots=mechanism.num_slots,
            steps=last,
            num_batches=mechanism.num_batches,
            cool_down=mechanism.cool_down,
            first_step=plan.steps_before,
        )
        for step in (fault(schedule, done) for done in range(last)):
            keep = 1 - pull * step.share * mechanism.step_size * mechanism.strong_convexity
            read *= keep
            read[step.batch] += step.share
            drawn = step.share * mechanism.step_variance
            decay, variance = keep * decay, keep**2 * variance + drawn
            sum_of_noise = keep * sum_of_noise + math.sqrt(drawn)
    return read, decay, noise * (sum_of_noise if reused else math.sqrt(variance))


def found(mechanism: Mechanism, plans: dict[str, CanaryPlan], audits: int) -> Iterator[Row]:
    """The share of audits that find a fault, and that find it by each test."""
    for run, plan in plans.items():
        for name, fault in track(changed(run).items(), description=run):
            for number in LANES:
                counted: Counter[str] = Counter()
                for observed in observe(mechanism, replace(plan, lanes=number), audits, fault):
                    findings = observed.findings(mechanism)
                    counted.update([*findings, *["any"] * bool(findings)])
                shares = {test: counted[test] / audits for test in ("any", *TESTS)}
                yield {"run": run, "fault": name, "lanes": number} | shares


def alarms(mechanism: Mechanism, plans: dict[str, CanaryPlan], audits: int) -> Iterator[Row]:
    """The share of audits of correct runs that find something, were they allowed to in one of a hundred."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(canary_test, "FALSE_ALARM", LOOSER)
        for run, plan in plans.items():
            for number in (64, DEFAULT):
                correct = observe(mechanism, replace(plan, lanes=number), audits)
                wrong = sum(bool(observed.findings(mechanism)) for observed in correct)
                yield {"run": run, "lanes": number, "audits": audits, "allowed": LOOSER, "alarms": wrong / audits}


def in_the_chain(audits: int) -> Iterator[Row]:
    """The share of audited runs of the real chain that find a fault planted in its code."""
    small = planned(*SHAPES["small"]), planned(*SHAPES["small"], **BATCHES["small"])
    for fault, plant in track({"none": lambda patch: None, **BATCHED}.items(), description="in the chain"):
        shares: Row = {"fault": fault, "audits": audits}
        for mechanism, plans in small:
            rows = np.zeros((mechanism.num_slots, 21), np.float32)
            for run, plan in plans.items():
                if plan.steps_before == 0:
                    plan = replace(plan, steps=100)  # of a run that has not settled, half the steps can be seen
                if _cannot_be(fault, run):
                    continue
                with pytest.MonkeyPatch.context() as patch:
                    plant(patch)
                    ran = [walk(mechanism, rows, plan) for _ in range(audits)]
                shares[run] = sum(bool(one.findings(mechanism)) for one in ran if one) / audits
        yield shares


def _cannot_be(fault: str, run: str) -> bool:
    """Whether it is no fault of such a run."""
    return (fault in SCHEDULES and IN_BATCHES not in run) or (
        run.startswith("learning") and fault in (*OF_FORGETTING, *OF_LATER_RUNS, "canary not removed")
    )


def proved(mechanism: Mechanism, plans: dict[str, CanaryPlan]) -> Iterator[Row]:
    """The reported bound over what is certified of one record, by the exact law of a right run's guesses; and the
    probability that it is above the truth."""
    for run, plan in plans.items():
        certified = canary_test.certified_mu(mechanism, plan)
        for number in (*LANES, 4 * LANES[-1]):
            law = canary_test.law(mechanism, replace(plan, lanes=number))
            truth = float(abs(law.mean).max()) / math.sqrt(law.variance)
            chances = _right_guesses(law)

            def bound(right: float, number: int = number) -> float:
                return canary_test.mu_of_right_guesses(int(right), number, error=canary_test.ERROR)

            at = (int(np.searchsorted(chances.cumsum(), q)) for q in (0.05, 0.5, 0.95))
            low, middle, high = (bound(right) / law.records / certified for right in at)
            too_many = next((k for k in range(number // 2, number + 1) if bound(k) > truth), number + 1)
            wrong = float(chances[too_many:].sum())
            yield {"run": run, "lanes": number, "median": middle, "low": low, "high": high, "wrong": wrong}


def _right_guesses(law: Law) -> Any:
    """The probability of each number of right guesses, of lanes whose canaries are moved by different amounts."""
    right, pairs = np.unique(special.ndtr(abs(law.mean) / math.sqrt(law.variance) / 2), return_counts=True)
    lanes = 2 * int(pairs.sum())
    if len(right) == 1:
        return stats.binom.pmf(np.arange(lanes + 1), lanes, right[0])
    product = np.ones(lanes // 2 + 1, np.complex128)
    for chance, number in zip(right, 2 * pairs, strict=True):
        product *= np.fft.rfft(stats.binom.pmf(np.arange(lanes + 1), number, chance), lanes + 1)
    return np.fft.irfft(product, lanes + 1).clip(min=0)
