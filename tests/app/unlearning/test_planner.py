"""A plan is the cheapest way to reach the target, and states its reason."""

import pytest
from hypothesis import given, strategies as st

from app.unlearning import planner
from app.unlearning.planner import PlanReason
from lethe.proof import accountant, calibration, guarantees
from lethe.proof.accountant import Chain, Run
from lethe.proof.mechanism import Mechanism

DELTA = 1e-5


def mechanism(noise_scale: float | None = None) -> Mechanism:
    return calibration.mechanism_for(
        calibration.ModelSettings(
            epsilon=1.0, delta=DELTA, l2=0.01, noise_scale=noise_scale, step_size=None, radius=None, learn_steps=None
        ),
        num_slots=1000,
        num_classes=2,
    )


def learned(noise_scale: float | None = None) -> Chain:
    chosen = mechanism(noise_scale)
    return accountant.replay(chosen, [Run(steps=chosen.learn_steps)])


def test_training_takes_the_steps_of_the_mechanism() -> None:
    """A run from scratch takes the number of training steps that the mechanism specifies, and its plan states that the
    run was requested."""
    chosen = mechanism()
    for kind in ("learn", "relearn"):
        plan = planner.learn(chosen, kind=kind)
        assert (plan.kind, plan.steps, plan.reason) == (kind, chosen.learn_steps, PlanReason.REQUESTED)


def test_one_record_is_unlearned() -> None:
    """To forget one record of a thousand, the plan continues the chain, because this takes fewer steps than training
    from scratch."""
    chain = learned()
    plan = planner.forget(chain, records=1, epsilon=1.0, delta=DELTA)
    assert plan.kind == "unlearn"
    assert 1 <= plan.steps < chain.mechanism.learn_steps
    assert (plan.reason, plan.facts) == (PlanReason.FEWEST_STEPS, {"relearn_steps": chain.mechanism.learn_steps})


def test_retraining_is_planned_if_it_is_cheaper() -> None:
    """If the noise is far too small for the target, the plan is to retrain, and the reason it states is that unlearning
    would take at least as many steps."""
    chain = learned(noise_scale=1e-9)
    plan = planner.forget(chain, records=1, epsilon=0.01, delta=1e-9)
    assert (plan.kind, plan.steps) == ("relearn", chain.mechanism.learn_steps)
    assert plan.reason == PlanReason.UNLEARNING_NO_SHORTER


def test_nothing_to_forget_still_takes_a_step() -> None:
    """A plan for a model with an outstanding revision but no records to forget takes at least one unlearning step."""
    plan = planner.forget(learned(), records=0, epsilon=1.0, delta=DELTA)
    assert plan.kind == "unlearn"
    assert plan.steps >= 1


@given(records=st.integers(1, 1000), epsilon=st.floats(0.05, 10), noise_scale=st.floats(1e-4, 0.1))
def test_every_plan_reaches_the_target(records: int, epsilon: float, noise_scale: float) -> None:
    """For any chain and any target (epsilon, delta), the plan meets the target and would miss it with one step
    fewer."""
    chain = learned(noise_scale)
    plan = planner.forget(chain, records=records, epsilon=epsilon, delta=DELTA)
    if plan.kind == "relearn":
        assert plan.steps == chain.mechanism.learn_steps
        return
    assert plan.steps < chain.mechanism.learn_steps

    def reached(steps: int) -> float:
        run = Run(steps=steps, records=records)
        after = accountant.advance(chain, run)
        by_notion = {g.notion: g for g in guarantees.of_chain(after, last_run=run, delta=DELTA)}
        return by_notion["unlearning"].epsilon

    assert reached(plan.steps) <= epsilon * (1 + 1e-9)
    if plan.steps > 1:
        assert reached(plan.steps - 1) > epsilon * (1 - 1e-9)


@pytest.mark.parametrize("epsilon", [0.2, 1.0, 5.0])
def test_more_records_never_take_fewer_steps(epsilon: float) -> None:
    """The number of planned steps never decreases as the number of records to forget grows."""
    steps = [planner.forget(learned(), records=k, epsilon=epsilon, delta=DELTA).steps for k in range(1, 40)]
    assert steps == sorted(steps)


def test_unlearning_continues_and_relearning_restarts_the_chain() -> None:
    """Unlearning continues the chain without the forgotten records; retraining restarts the chain with no records to
    forget."""
    chain = learned()
    plan = planner.forget(chain, records=2, epsilon=1.0, delta=DELTA)
    assert planner.after(chain, plan, records=2) == accountant.advance(chain, Run(steps=plan.steps, records=2))
    relearned = planner.after(chain, planner.learn(chain.mechanism, kind="relearn"), records=2)
    assert accountant.unlearning_mu(relearned) == 0
    assert relearned.steps == chain.mechanism.learn_steps
