"""What to run: the cheapest way to the target that the accountant can prove. There is always one."""

from dataclasses import dataclass
from typing import Literal

from app.privacy import calibration
from app.privacy.accountant import Chain
from app.privacy.errors import InfeasibleError
from app.privacy.mechanism import Mechanism

Kind = Literal["learn", "unlearn", "relearn", "erase"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """`steps` of the mechanism: continued on the live version (`unlearn`), or from the initial law."""

    kind: Kind
    steps: int
    reason: str


def learn(mechanism: Mechanism, *, kind: Kind = "learn") -> Plan:
    return Plan(kind=kind, steps=mechanism.learn_steps, reason="asked for")


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
        return Plan(kind="unlearn", steps=steps, reason=f"least steps to the target; relearning takes {from_scratch}")
    return Plan(kind="relearn", steps=from_scratch, reason="unlearning would take as many steps as relearning")
