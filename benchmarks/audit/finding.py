"""What audits find and prove: by the law that a faulty run has, and in the chain that runs."""

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from rich.progress import track
from scipy import special, stats

from app.privacy import audit
from app.privacy.audit import AuditPlan, Observed
from app.privacy.mechanism import Mechanism
from benchmarks.audit.costing import walk
from benchmarks.audit.plans import DEFAULT, LANES, SHAPES, Row, planned
from tests.worker.audit.faults import FAULTS, OF_FORGETTING
from worker.audit.lanes import Lanes
from worker.langevin.noise import SystemNoise

TESTS = ("guarantee", "noise", "forgetting")
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
"""What is wrong with a run of full batches, as its lanes see it."""


def observe(mechanism: Mechanism, plan: AuditPlan, audits: int, fault: str = "none") -> Iterator[Observed]:
    """Audits of runs with a fault, each drawn from the law that it then has."""
    law, noise = audit.law(mechanism, plan), SystemNoise()
    one, canaries = Lanes(law, plan), torch.arange(plan.lanes) < plan.lanes // 2
    ran = {"steps": 1.0, "noise": 1.0, "reused": False, "stays": not plan.steps_before, "pull": 1.0} | CHANGED[fault]
    keep, steps = 1 - ran["pull"] * mechanism.step_size * mechanism.strong_convexity, int(ran["steps"] * plan.steps)
    push = law.push if ran["stays"] else 0.0
    pushes, squares = ((1 - ratio**steps) / (1 - ratio) for ratio in (keep, keep**2))
    spread = ran["noise"] * math.sqrt(mechanism.step_variance) * (pushes if ran["reused"] else math.sqrt(squares))
    for _ in range(audits):
        start = one.start(noise)
        yield one.observed(start, keep**steps * start + push * pushes * canaries + spread * noise.normal(plan.lanes))


def found(mechanism: Mechanism, plans: dict[str, AuditPlan], audits: int) -> Iterator[Row]:
    """The share of audits that find a fault, and that find it by each test."""
    for run, plan in plans.items():
        for fault in track(CHANGED, description=run):
            if fault == "canary not removed" and run == "learning":
                continue
            for number in LANES:
                counted: Counter[str] = Counter()
                for observed in observe(mechanism, replace(plan, lanes=number), audits, fault):
                    findings = observed.findings(mechanism)
                    counted.update([*findings, *["any"] * bool(findings)])
                shares = {name: counted[name] / audits for name in ("any", *TESTS)}
                yield {"run": run, "fault": fault, "lanes": number} | shares


def alarms(mechanism: Mechanism, plans: dict[str, AuditPlan], audits: int) -> Iterator[Row]:
    """The share of audits of correct runs that find something, were they allowed to in one of a hundred."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(audit, "FALSE_ALARM", LOOSER)
        for run, plan in plans.items():
            for number in (64, DEFAULT):
                correct = observe(mechanism, replace(plan, lanes=number), audits)
                wrong = sum(bool(observed.findings(mechanism)) for observed in correct)
                yield {"run": run, "lanes": number, "audits": audits, "allowed": LOOSER, "alarms": wrong / audits}


def in_the_chain(audits: int) -> Iterator[Row]:
    """The share of audited runs of the real chain that find a fault planted in its code."""
    mechanism, plans = planned(*SHAPES["small"])
    for fault, plant in track({"none": lambda patch: None, **FAULTS}.items(), description="in the chain"):
        shares: Row = {"fault": fault, "audits": audits}
        for run, plan in plans.items():
            if run == "learning":
                plan = replace(plan, steps=100)  # of a run that has not settled, half the steps can be seen
                if fault in OF_FORGETTING:
                    continue
            with pytest.MonkeyPatch.context() as patch:
                plant(patch)
                ran = (walk(mechanism, np.zeros((1, 21), np.float32), plan) for _ in range(audits))
                shares[run] = sum(bool(one.findings(mechanism)) for one in ran if one) / audits
        yield shares


def proved(mechanism: Mechanism, plans: dict[str, AuditPlan]) -> Iterator[Row]:
    """The reported bound over what is certified of one record, by the exact law of a right run's guesses; and the
    probability that it is above the truth."""
    for run, plan in plans.items():
        law, certified = audit.law(mechanism, plan), audit.certified_mu(mechanism, plan)
        truth = law.mean[0] / math.sqrt(law.variance)
        for number in (*LANES, 4 * LANES[-1]):
            guesses = stats.binom(number, special.ndtr(truth / 2))

            def bound(right: float, number: int = number) -> float:
                return audit.mu_of_right_guesses(int(right), number, error=audit.ERROR)

            low, middle, high = (bound(guesses.ppf(q)) / law.records / certified for q in (0.05, 0.5, 0.95))
            too_many = next((k for k in range(number // 2, number + 1) if bound(k) > truth), number + 1)
            wrong = float(guesses.sf(too_many - 1))
            yield {"run": run, "lanes": number, "median": middle, "low": low, "high": high, "wrong": wrong}
