"""Planner of runs: the cheapest run to the target that the accountant can prove; relearning is always possible."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

from lethe.contract.sets import RunKind
from lethe.proof import accountant, calibration
from lethe.proof.accountant import Chain, Run
from lethe.proof.errors import InfeasibleError
from lethe.proof.mechanism import Mechanism


class PlanReason(StrEnum):
    """Reason for the kind and number of steps of a plan. `app.api.sentences.of_plan` has its sentence."""

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
    """Facts: number of `requests`, and of `steps` of all their runs."""
    NO_INFLUENCE = "no_influence"
    """Deleted records have no influence on a model learned from scratch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Plan of a run: `steps` of the mechanism, from the live version (`unlearn`) or from the initial law. `facts` are
    the numbers that belong to `reason`."""

    kind: RunKind
    steps: int
    reason: PlanReason
    facts: Mapping[str, int] = field(default_factory=dict)


def learn(mechanism: Mechanism, *, kind: RunKind = RunKind.LEARN, reason: PlanReason = PlanReason.REQUESTED) -> Plan:
    return Plan(kind=kind, steps=mechanism.learn_steps, reason=reason)


def forget(chain: Chain, *, records: int, epsilon: float, delta: float) -> Plan:
    """Plan the run that brings a model at `chain` to (epsilon, delta) after `records` more became null.

    Unlearning takes the minimum number of steps that the accountant accepts. If that is no cheaper than relearning, the
    plan is to relearn: deleted records have no influence on a model learned from scratch.
    """
    from_scratch = chain.mechanism.learn_steps
    try:
        steps = calibration.least_steps(chain, records=records, epsilon=epsilon, delta=delta, at_most=from_scratch)
    except InfeasibleError:
        steps = from_scratch
    if steps < from_scratch:
        facts = {"relearn_steps": from_scratch}
        return Plan(kind=RunKind.UNLEARN, steps=steps, reason=PlanReason.FEWEST_STEPS, facts=facts)
    return learn(chain.mechanism, kind=RunKind.RELEARN, reason=PlanReason.UNLEARNING_NO_SHORTER)


def canary_test(mechanism: Mechanism, *, epsilon: float, delta: float) -> Plan:
    """Plan a canary test, which learns canaries and forgets them in the steps that the first deletion would take."""
    learned = after(accountant.started(mechanism), learn(mechanism), records=0)
    forgetting = forget(learned, records=1, epsilon=epsilon, delta=delta)
    steps = mechanism.learn_steps + (forgetting.steps if forgetting.kind == RunKind.UNLEARN else 0)
    return Plan(kind=RunKind.AUDIT, steps=steps, reason=PlanReason.CANARY_TEST_REQUESTED)


def rehearsal(mechanism: Mechanism, *, forgetting: Plan) -> Plan:
    """Plan a rehearsal: one scratch copy of the model takes the steps of `forgetting`, another learns from scratch."""
    steps = forgetting.steps + mechanism.learn_steps
    return Plan(kind=RunKind.REHEARSAL, steps=steps, reason=PlanReason.REHEARSAL_REQUESTED)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSchedule:
    """Plan of successive batches: the number of `runs`, of which `relearned` learn from scratch, their total `steps`,
    the steps of the `longest` run, and the `chain` after the last."""

    runs: int
    relearned: int
    steps: int
    longest: int
    chain: Chain


def in_batches(chain: Chain, *, records: int, batch: int, epsilon: float, delta: float) -> BatchSchedule:
    """Plan to forget `records` in batches of `batch`, each brought to the target before the next one."""
    runs = relearned = steps = longest = 0
    for remaining in range(records, 0, -batch):
        forgotten = min(batch, remaining)
        plan = forget(chain, records=forgotten, epsilon=epsilon, delta=delta)
        chain = after(chain, plan, records=forgotten)
        runs, steps, longest = runs + 1, steps + plan.steps, max(longest, plan.steps)
        relearned += plan.kind == RunKind.RELEARN
    return BatchSchedule(runs=runs, relearned=relearned, steps=steps, longest=longest, chain=chain)


def after(chain: Chain, plan: Plan, *, records: int) -> Chain:
    """Return the model's chain after `plan` ran on data in which `records` more became null."""
    start = chain if plan.kind == RunKind.UNLEARN else accountant.started(chain.mechanism)
    return accountant.advance(start, Run(steps=plan.steps, records=records))


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """Way to forget: the `steps` of its run, the average `steps_per_request` if all expected requests are handled in
    this way, and the `unlearning` epsilon after its run."""

    kind: Literal["unlearn", "batch", "relearn"]
    steps: int
    steps_per_request: float
    epsilon: float
    reason: PlanReason
    facts: Mapping[str, int]


def options(chain: Chain, *, records: int, epsilon: float, delta: float, expected_requests: int) -> list[Option]:
    """Return the ways to forget `records` if `expected_requests` more requests of this size follow, cheapest per
    request first: unlearn at each request, serve all requests in one batch, or relearn at each request. Unlearning is
    omitted if it is no cheaper than relearning."""
    requests = 1 + expected_requests

    def option(
        kind: Literal["unlearn", "batch", "relearn"], plan: Plan, batch: int, all_steps: int, reason: PlanReason
    ) -> Option:
        reached = after(chain, plan, records=batch)
        return Option(
            kind=kind,
            steps=plan.steps,
            steps_per_request=all_steps / requests,
            epsilon=calibration.least_epsilon(reached, records=0, steps=0, delta=delta),
            reason=reason,
            facts={"requests": requests, "steps": all_steps},
        )

    single = forget(chain, records=records, epsilon=epsilon, delta=delta)
    batch = forget(chain, records=requests * records, epsilon=epsilon, delta=delta)
    relearning = learn(chain.mechanism, kind=RunKind.RELEARN)
    ways = [
        option("batch", batch, requests * records, batch.steps, PlanReason.ONE_BATCH),
        option("relearn", relearning, records, requests * relearning.steps, PlanReason.NO_INFLUENCE),
    ]
    if single.kind == RunKind.UNLEARN:
        one_by_one = in_batches(chain, records=requests * records, batch=records, epsilon=epsilon, delta=delta)
        ways.insert(0, option("unlearn", single, records, one_by_one.steps, PlanReason.ONE_BY_ONE))
    return sorted(ways, key=lambda way: way.steps_per_request)
