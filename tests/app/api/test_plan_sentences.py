"""Each plan states in a sentence why it has its kind and number of steps."""

from app.api import sentences
from app.unlearning.planner import PlanReason

FACTS = {"relearn_steps": 70, "requests": 5, "steps": 66}


def test_every_reason_of_a_plan_has_its_own_sentence() -> None:
    """Each reason for a plan has its own sentence, which contains the facts behind the reason."""
    by_reason = {reason: sentences.of_plan(reason, FACTS) for reason in PlanReason}
    assert len(set(by_reason.values())) == len(PlanReason)
    assert "70" in by_reason[PlanReason.FEWEST_STEPS]
    assert "66" in by_reason[PlanReason.ONE_BY_ONE]
    assert "5" in by_reason[PlanReason.ONE_BATCH]
