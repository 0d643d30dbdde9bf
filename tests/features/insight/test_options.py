"""Ways to forget, compared: each reaches the target, and the cheapest is first."""

from hypothesis import given, strategies as st

from app.features.insight import costs
from app.unlearning import planner
from app.unlearning.planner import PlanReason
from benchmarks import schedules
from tests.app.unlearning.test_planner import DELTA, learned


def test_the_options_are_compared() -> None:
    """Unlearning now, waiting for a batch, and retraining are each listed with their number of steps and a reason for
    that number. The option with the lowest cost per request comes first."""
    chain = learned()
    found = costs.options(chain, records=1, epsilon=1.0, delta=DELTA, expected_requests=4)
    assert [option.kind for option in found] == ["batch", "unlearn", "relearn"]
    batch, now, again = found

    assert now.steps == planner.forget(chain, records=1, epsilon=1.0, delta=DELTA).steps
    one_by_one = schedules.schedule(chain, batches=[1] * 5, epsilon=1.0, delta=DELTA, at_most=10**6)
    assert now.steps_per_request == sum(one_by_one) / 5
    assert (now.reason, now.facts) == (PlanReason.ONE_BY_ONE, {"requests": 5, "steps": sum(one_by_one)})

    assert batch.steps == planner.forget(chain, records=5, epsilon=1.0, delta=DELTA).steps
    assert batch.steps_per_request == batch.steps / 5
    assert (batch.reason, batch.facts["requests"]) == (PlanReason.ONE_BATCH, 5)

    assert (again.steps, again.steps_per_request, again.epsilon) == (chain.mechanism.learn_steps,) * 2 + (0.0,)
    assert again.reason == PlanReason.NO_INFLUENCE


def test_unlearning_is_not_offered_if_retraining_is_cheaper() -> None:
    """If the noise is far too small, the only options are retraining once for all requests and retraining for each
    request."""
    chain = learned(noise_scale=1e-9)
    found = costs.options(chain, records=1, epsilon=0.01, delta=1e-9, expected_requests=9)
    requests = 10
    assert [option.kind for option in found] == ["batch", "relearn"]
    assert {option.steps for option in found} == {chain.mechanism.learn_steps}
    assert [option.steps_per_request for option in found] == [
        chain.mechanism.learn_steps / requests,
        chain.mechanism.learn_steps,
    ]


def test_large_noise_makes_one_step_enough() -> None:
    """If the noise is large, a single step is enough to forget anyone, so batching only saves the overhead per run."""
    found = {
        option.kind: option
        for option in costs.options(learned(noise_scale=1.0), records=1, epsilon=1.0, delta=DELTA, expected_requests=9)
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
    """The options include the planned one, every option reaches the target, and no option costs less per request than
    waiting for a batch."""
    chain = learned(noise_scale)
    found = costs.options(chain, records=records, epsilon=epsilon, delta=DELTA, expected_requests=expected)
    by_kind = {option.kind: option for option in found}
    plan = planner.forget(chain, records=records, epsilon=epsilon, delta=DELTA)
    assert by_kind[plan.kind].steps == plan.steps  # type: ignore[index]
    assert all(option.epsilon <= epsilon * (1 + 1e-9) for option in found)
    effort = [option.steps_per_request for option in found]
    assert effort == sorted(effort)
    assert by_kind["batch"].steps_per_request <= min(effort)


@given(records=st.integers(1, 60), batch=st.integers(1, 60), noise_scale=st.floats(1e-3, 0.1))
def test_a_schedule_chains_its_plans(records: int, batch: int, noise_scale: float) -> None:
    """A schedule plans the batches one after another, each from the state after the previous batch. The last batch
    contains the remaining records."""
    chain = learned(noise_scale=noise_scale)
    found = costs.in_batches(chain, records=records, batch=batch, epsilon=1.0, delta=DELTA)
    plans = []
    for first in range(0, records, batch):
        taken = min(batch, records - first)
        plans.append(planner.forget(chain, records=taken, epsilon=1.0, delta=DELTA))
        chain = planner.after(chain, plans[-1], records=taken)
    assert found.chain == chain
    assert (found.runs, found.steps) == (len(plans), sum(plan.steps for plan in plans))
    assert found.longest == max(plan.steps for plan in plans)
    assert found.relearned == sum(plan.kind == "relearn" for plan in plans)
