"""Run planner: the cheapest run that the accountant can prove to reach the target. Retraining is always possible."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from lethe.contract.sets import RunKind
from lethe.proof import accountant, calibration, errors, methods
from lethe.proof.mechanism import Mechanism


class PlanReason(StrEnum):
    """Reason for a plan's kind and number of steps. `app.api.sentences.of_plan` expresses it as a sentence."""

    REQUESTED = "requested"
    CANARY_TEST_REQUESTED = "canary_test_requested"
    REHEARSAL_REQUESTED = "rehearsal_requested"
    FEWEST_STEPS = "fewest_steps"
    """Fewer steps would miss the target. Fact: `relearn_steps`."""
    UNLEARNING_NO_SHORTER = "unlearning_no_shorter"
    ROWS_ADDED = "rows_added"
    NO_MODEL_DUE = "no_model_due"
    """The run only edits rows."""
    ONE_BATCH = "one_batch"
    """Fact: number of `requests` that the run serves."""
    ONE_BY_ONE = "one_by_one"
    """Facts: number of `requests`, and total number of `steps` of their runs."""
    FRESH_NOISE = "fresh_noise"
    """Each version of a model by this method is trained from scratch with fresh noise."""
    NO_INFLUENCE = "no_influence"
    """Deleted records have no influence on a model trained from scratch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Plan of a run: `steps` of the mechanism, starting from the live version (`unlearn`) or from the initial law.
    `facts` are the numbers that go with `reason`."""

    kind: RunKind
    steps: int
    reason: PlanReason
    facts: Mapping[str, int] = field(default_factory=dict)


def learn(mechanism: Mechanism, *, kind: RunKind = RunKind.LEARN, reason: PlanReason = PlanReason.REQUESTED) -> Plan:
    return Plan(kind=kind, steps=mechanism.learn_steps, reason=reason)


def forget(chain: accountant.Chain, *, records: int, epsilon: float, delta: float) -> Plan:
    """Plan the run that brings a model at `chain` to (epsilon, delta) after `records` more records have become null.

    Unlearning takes the minimum number of steps that the accountant accepts. If that is no cheaper than relearning, the
    plan is to relearn: deleted records have no influence on a model trained from scratch.
    """
    from_scratch = chain.mechanism.learn_steps
    if not methods.of(chain.mechanism).continues:
        return learn(chain.mechanism, kind=RunKind.RELEARN, reason=PlanReason.FRESH_NOISE)
    try:
        steps = calibration.least_steps(chain, records=records, epsilon=epsilon, delta=delta, at_most=from_scratch)
    except errors.InfeasibleError:
        steps = from_scratch
    if steps < from_scratch:
        facts = {"relearn_steps": from_scratch}
        return Plan(kind=RunKind.UNLEARN, steps=steps, reason=PlanReason.FEWEST_STEPS, facts=facts)
    return learn(chain.mechanism, kind=RunKind.RELEARN, reason=PlanReason.UNLEARNING_NO_SHORTER)


def after(chain: accountant.Chain, plan: Plan, *, records: int) -> accountant.Chain:
    """Return the model's chain after running `plan` on data in which `records` more records have become null."""
    method = methods.of(chain.mechanism)
    start = chain if plan.kind == RunKind.UNLEARN else method.started(chain.mechanism)
    return method.advance(start, accountant.Run(steps=plan.steps, records=records))
