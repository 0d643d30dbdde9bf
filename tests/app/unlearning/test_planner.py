"""The plan: the cheapest way to the target, and why."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

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


def test_learning_takes_the_steps_of_the_mechanism() -> None:
    """A run from scratch takes the mechanism's learning steps because it was asked for."""
    chosen = mechanism()
    for kind in ("learn", "relearn"):
        plan = planner.learn(chosen, kind=kind)
        assert (plan.kind, plan.steps, plan.reason) == (kind, chosen.learn_steps, PlanReason.REQUESTED)


def test_one_record_is_unlearned() -> None:
    """Forgetting one record of a thousand continues the chain, for fewer steps than learning, and says so."""
    chain = learned()
    plan = planner.forget(chain, records=1, epsilon=1.0, delta=DELTA)
    assert plan.kind == "unlearn"
    assert 1 <= plan.steps < chain.mechanism.learn_steps
    assert (plan.reason, plan.facts) == (PlanReason.FEWEST_STEPS, {"relearn_steps": chain.mechanism.learn_steps})


def test_what_is_no_cheaper_is_relearned() -> None:
    """With noise far too small for the target, the plan is to learn again, and says why."""
    chain = learned(noise_scale=1e-9)
    plan = planner.forget(chain, records=1, epsilon=0.01, delta=1e-9)
    assert (plan.kind, plan.steps) == ("relearn", chain.mechanism.learn_steps)
    assert plan.reason == PlanReason.UNLEARNING_NO_SHORTER


def test_nothing_to_forget_still_takes_a_step() -> None:
    """A model that fell behind a revision without rows of its own is brought up to date in the fewest steps."""
    plan = planner.forget(learned(), records=0, epsilon=1.0, delta=DELTA)
    assert plan.kind == "unlearn"
    assert plan.steps >= 1


@given(records=st.integers(1, 1000), epsilon=st.floats(0.05, 10), noise_scale=st.floats(1e-4, 0.1))
def test_every_plan_reaches_the_target(records: int, epsilon: float, noise_scale: float) -> None:
    """Whatever is asked of whatever chain, there is a plan, it meets (epsilon, delta), and one step less would not."""
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
    """The steps of the plan do not fall when more is to be forgotten."""
    steps = [planner.forget(learned(), records=k, epsilon=epsilon, delta=DELTA).steps for k in range(1, 40)]
    assert steps == sorted(steps)


def test_the_options_are_compared() -> None:
    """Unlearn now, wait for the batch, learn again: each with its steps, cheapest per request first, and why."""
    chain = learned()
    found = planner.options(chain, records=1, epsilon=1.0, delta=DELTA, expected_requests=4)
    assert [option.kind for option in found] == ["batch", "unlearn", "relearn"]
    batch, now, again = found

    assert now.steps == planner.forget(chain, records=1, epsilon=1.0, delta=DELTA).steps
    one_by_one = calibration.schedule(chain, batches=[1] * 5, epsilon=1.0, delta=DELTA, at_most=10**6)
    assert now.steps_per_request == sum(one_by_one) / 5
    assert (now.reason, now.facts) == (PlanReason.ONE_BY_ONE, {"requests": 5, "steps": sum(one_by_one)})

    assert batch.steps == planner.forget(chain, records=5, epsilon=1.0, delta=DELTA).steps
    assert batch.steps_per_request == batch.steps / 5
    assert (batch.reason, batch.facts["requests"]) == (PlanReason.ONE_BATCH, 5)

    assert (again.steps, again.steps_per_request, again.epsilon) == (chain.mechanism.learn_steps,) * 2 + (0.0,)
    assert again.reason == PlanReason.NO_INFLUENCE


def test_unlearning_is_no_option_where_relearning_is_cheaper() -> None:
    """With noise far too small, what is left is to learn again: for everybody at once, or each time."""
    chain = learned(noise_scale=1e-9)
    found = planner.options(chain, records=1, epsilon=0.01, delta=1e-9, expected_requests=9)
    requests = 10
    assert [option.kind for option in found] == ["batch", "relearn"]
    assert {option.steps for option in found} == {chain.mechanism.learn_steps}
    assert [option.steps_per_request for option in found] == [
        chain.mechanism.learn_steps / requests,
        chain.mechanism.learn_steps,
    ]


def test_the_options_where_a_step_is_enough() -> None:
    """With much noise the least run forgets anybody, and waiting only saves runs."""
    found = {
        option.kind: option
        for option in planner.options(
            learned(noise_scale=1.0), records=1, epsilon=1.0, delta=DELTA, expected_requests=9
        )
    }
    assert (found["unlearn"].steps, found["unlearn"].steps_per_request) == (1, 1)
    assert (found["batch"].steps, found["batch"].steps_per_request) == (1, 1 / 10)


@given(
    records=st.integers(1, 1000),
    epsilon=st.floats(0.05, 10),
    noise_scale=st.floats(1e-4, 0.1),
    expected=st.integers(1, 12),
)
def test_every_option_reaches_the_target(records: int, epsilon: float, noise_scale: float, expected: int) -> None:
    """There is always an option, the plan is among them, all reach the target, and waiting is never dearer."""
    chain = learned(noise_scale)
    found = planner.options(chain, records=records, epsilon=epsilon, delta=DELTA, expected_requests=expected)
    by_kind = {option.kind: option for option in found}
    plan = planner.forget(chain, records=records, epsilon=epsilon, delta=DELTA)
    assert by_kind[plan.kind].steps == plan.steps  # type: ignore[index]
    assert all(option.epsilon <= epsilon * (1 + 1e-9) for option in found)
    costs = [option.steps_per_request for option in found]
    assert costs == sorted(costs)
    assert by_kind["batch"].steps_per_request <= min(costs)


def test_where_a_plan_leads() -> None:
    """Unlearning continues the chain with the records gone; learning again starts it anew, with nobody to forget."""
    chain = learned()
    plan = planner.forget(chain, records=2, epsilon=1.0, delta=DELTA)
    assert planner.after(chain, plan, records=2) == accountant.advance(chain, Run(steps=plan.steps, records=2))
    relearned = planner.after(chain, planner.learn(chain.mechanism, kind="relearn"), records=2)
    assert accountant.unlearning_mu(relearned) == 0
    assert relearned.steps == chain.mechanism.learn_steps


@given(records=st.integers(1, 60), batch=st.integers(1, 60), noise_scale=st.floats(1e-3, 0.1))
def test_a_schedule_is_its_plans_in_order(records: int, batch: int, noise_scale: float) -> None:
    """Batch after batch, each by its own plan from where the last one ended; the last batch takes what is left."""
    chain = learned(noise_scale=noise_scale)
    found = planner.in_batches(chain, records=records, batch=batch, epsilon=1.0, delta=DELTA)
    plans = []
    for first in range(0, records, batch):
        taken = min(batch, records - first)
        plans.append(planner.forget(chain, records=taken, epsilon=1.0, delta=DELTA))
        chain = planner.after(chain, plans[-1], records=taken)
    assert found.chain == chain
    assert (found.runs, found.steps) == (len(plans), sum(plan.steps for plan in plans))
    assert found.longest == max(plan.steps for plan in plans)
    assert found.relearned == sum(plan.kind == "relearn" for plan in plans)
