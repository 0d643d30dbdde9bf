"""The planner: the cheapest run to the target that the accountant can prove. There is always one."""

from dataclasses import dataclass
from typing import Literal

from lethe.contract.previews import EXPECTED_REQUESTS
from lethe.contract.sets import RunKind
from lethe.proof import accountant
from lethe.proof.accountant import Chain, Run
from lethe.proof.errors import InfeasibleError
from lethe.proof.mechanism import Mechanism
from lethe.theorems import calibration


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """`steps` of the mechanism: continued on the live version (`unlearn`), or from the initial law."""

    kind: RunKind
    steps: int
    reason: str


def learn(mechanism: Mechanism, *, kind: RunKind = RunKind.LEARN, reason: str = "asked for") -> Plan:
    return Plan(kind=kind, steps=mechanism.learn_steps, reason=reason)


def forget(chain: Chain, *, records: int, epsilon: float, delta: float) -> Plan:
    """Bring a model that stands at `chain` to (epsilon, delta) after `records` more have become null.

    Unlearning takes the least number of steps that the accountant accepts; where that is no cheaper than learning
    again, learn again: nothing deleted has any influence on that.
    """
    from_scratch = chain.mechanism.learn_steps
    try:
        steps = calibration.least_steps(chain, records=records, epsilon=epsilon, delta=delta, at_most=from_scratch)
    except InfeasibleError:
        steps = from_scratch
    if steps < from_scratch:
        return Plan(
            kind=RunKind.UNLEARN, steps=steps, reason=f"least steps to the target; relearning takes {from_scratch}"
        )
    return Plan(kind=RunKind.RELEARN, steps=from_scratch, reason="unlearning would take as many steps as relearning")


def audit(mechanism: Mechanism, *, epsilon: float, delta: float) -> Plan:
    """Let canaries be learned, and forgotten as the first record would be."""
    learned = after(accountant.started(mechanism), learn(mechanism), records=0)
    forgetting = forget(learned, records=1, epsilon=epsilon, delta=delta)
    steps = mechanism.learn_steps + (forgetting.steps if forgetting.kind == RunKind.UNLEARN else 0)
    return Plan(kind=RunKind.AUDIT, steps=steps, reason="asked for: canaries alone are learned and forgotten")


def rehearsal(mechanism: Mechanism, *, forgetting: Plan) -> Plan:
    """Forget on a scratch copy as `forgetting` would, and learn another from scratch."""
    steps = forgetting.steps + mechanism.learn_steps
    return Plan(kind=RunKind.REHEARSAL, steps=steps, reason="asked for: people drawn at random are forgotten on a copy")


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """Batch after batch: the `runs` it takes, all their `steps`, the most of one, and what holds after the last."""

    runs: int
    relearned: int
    steps: int
    longest: int
    chain: Chain


def in_batches(chain: Chain, *, records: int, batch: int, epsilon: float, delta: float) -> Schedule:
    """Forget `records`, so many at a time, each batch brought to the target before the next comes."""
    runs = relearned = steps = longest = 0
    for left in range(records, 0, -batch):
        forgotten = min(batch, left)
        plan = forget(chain, records=forgotten, epsilon=epsilon, delta=delta)
        chain = after(chain, plan, records=forgotten)
        runs, steps, longest = runs + 1, steps + plan.steps, max(longest, plan.steps)
        relearned += plan.kind == RunKind.RELEARN
    return Schedule(runs=runs, relearned=relearned, steps=steps, longest=longest, chain=chain)


def after(chain: Chain, plan: Plan, *, records: int) -> Chain:
    """The model's chain once `plan` has run, before which `records` more became null."""
    start = chain if plan.kind == RunKind.UNLEARN else accountant.started(chain.mechanism)
    return accountant.advance(start, Run(steps=plan.steps, records=records))


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One way to forget: `steps` of its run, `steps_per_request` if all that is expected is handled so, and the
    `unlearning` epsilon when its run is done."""

    kind: Literal["unlearn", "batch", "relearn"]
    steps: int
    steps_per_request: float
    epsilon: float
    reason: str


def options(
    chain: Chain, *, records: int, epsilon: float, delta: float, expected_requests: int = EXPECTED_REQUESTS
) -> list[Option]:
    """The ways to forget `records` now, given that `expected_requests` more of as many records each will follow.

    Cheapest per request first: unlearn now, and again at each request; wait, and serve them all in one batch; learn
    again at each request. Unlearning is left out where it is no cheaper than learning again.
    """
    requests = 1 + expected_requests

    def option(
        kind: Literal["unlearn", "batch", "relearn"], plan: Plan, batch: int, all_steps: int, why: str
    ) -> Option:
        reached = after(chain, plan, records=batch)
        return Option(
            kind=kind,
            steps=plan.steps,
            steps_per_request=all_steps / requests,
            epsilon=calibration.least_epsilon(reached, records=0, steps=0, delta=delta),
            reason=why,
        )

    now = forget(chain, records=records, epsilon=epsilon, delta=delta)
    together = forget(chain, records=requests * records, epsilon=epsilon, delta=delta)
    again = learn(chain.mechanism, kind=RunKind.RELEARN)
    found = [
        option(
            "batch", together, requests * records, together.steps, f"one run for {requests} requests, once all are in"
        ),
        option("relearn", again, records, requests * again.steps, "nothing deleted has any influence on it"),
    ]
    if now.kind == RunKind.UNLEARN:
        one_by_one = in_batches(chain, records=requests * records, batch=records, epsilon=epsilon, delta=delta)
        total = one_by_one.steps
        found.insert(0, option("unlearn", now, records, total, f"{total} steps for {requests} requests one by one"))
    return sorted(found, key=lambda option: option.steps_per_request)
