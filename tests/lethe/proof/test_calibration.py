import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, strategies as st

from benchmarks import schedules
from benchmarks.paper.noise import least_noise
from lethe.proof import accountant, calibration, conversion
from lethe.proof.accountant import Run
from lethe.proof.errors import DomainError, InfeasibleError, PreconditionError
from lethe.proof.losses import Objective
from lethe.proof.mechanism import Adjacency
from tests.lethe.proof.mnist_mechanism import MNIST, TARGET, converged, replaced

# --- defaults --------------------------------------------------------------------------------------------------------


def test_default_regulariser_depends_on_epsilon_and_size():
    """The default regulariser for n0 slots is 2/n0 at epsilon 1, proportionally larger for stricter targets, 1/n0 for
    loose targets, and 2.5e-4 for large datasets."""
    assert calibration.default_l2(1, 1.0) == 2.0
    assert calibration.default_l2(1000, 1.0) == 2e-3
    assert calibration.default_l2(1000, 0.25) == 8e-3
    assert calibration.default_l2(1000, 2.0) == calibration.default_l2(1000, 9.0) == 1e-3
    assert calibration.default_l2(10**9, 1.0) == 2.5e-4
    assert calibration.default_l2(1000, 0.25, Objective.HUBER_REGRESSION) == 1e-3


@given(
    num_slots=st.integers(1, 10**8),
    classes=st.integers(2, 20),
    epsilon=st.floats(0.01, 20),
    log_delta=st.floats(-20, -0.5),
)
def test_defaults_match_their_documentation(num_slots, classes, epsilon, log_delta):
    """The defaults are a step size of 2/(L + m), a radius of M/m, batches of a 200th of the rows, a cool-down of two
    passes, and enough training steps to forget the start. The noise meets the target if that does not cost accuracy;
    otherwise, mu is at most twice the target."""
    delta = math.exp(log_delta)
    made = calibration.mechanism_for(
        calibration.ModelSettings(epsilon=epsilon, delta=delta), num_slots=num_slots, num_classes=classes
    )
    m, smoothness = made.strong_convexity, made.smoothness
    assert m == calibration.default_l2(num_slots, epsilon)
    assert made.contraction == pytest.approx((smoothness - m) / (smoothness + m), rel=1e-12)
    assert made.radius == pytest.approx(made.gradient_bound / m)
    batches = made.num_batches
    assert made.batch_size == calibration.default_batch_size(num_slots)
    assert batches == 1 or 100 <= made.batch_size <= max(100, num_slots / 200 + 1)
    longest = min(max(400, batches // 3), 1024)
    assert made.cool_down == min(2 * batches if batches > 1 else 1, longest, made.learn_steps)
    gap = 1 - made.contraction
    spread = math.sqrt(made.step_variance / (gap * (2 - gap)))
    stationary = made.sensitivity(Adjacency.ZERO_OUT) / (1 - (1 - gap) ** batches) / spread
    headroom = stationary / conversion.gdp_mu(epsilon=epsilon, delta=delta)
    assert spread > 0.1 * (1 - 1e-9)
    if headroom > 1 + 1e-6:
        assert headroom < 2 + 1e-6
        assert spread == pytest.approx(0.35) or headroom == pytest.approx(2, rel=1e-6)
    else:
        assert spread < 0.35 * (1 + 1e-9)
        assert spread == pytest.approx(0.1) or headroom == pytest.approx(1, rel=1e-6)
    assert made.learn_steps >= batches
    assert made.contraction**made.learn_steps <= 1e-6
    assert made.learn_steps == batches or made.contraction ** (made.learn_steps - 1) > 1e-6


def test_given_settings_are_used():
    """Settings that the caller gives are used unchanged."""
    asked = {"l2": 0.1, "step_size": 1.5, "noise_scale": 0.7, "radius": 3.0, "learn_steps": 12}
    made = calibration.mechanism_for(
        calibration.ModelSettings(epsilon=1.0, delta=1e-3, **asked), num_slots=50, num_classes=3
    )
    assert {name: getattr(made, name) for name in asked} == asked


@pytest.mark.parametrize(
    ("asked", "error"),
    [
        ({"num_slots": 0}, DomainError),
        ({"num_classes": 1}, DomainError),
        ({"l2": 0.0}, DomainError),
        ({"l2": math.nan}, DomainError),
        ({"epsilon": -1.0}, DomainError),
        ({"delta": 0.0}, DomainError),
        ({"delta": 1.0}, DomainError),
        ({"noise_scale": 0.0}, DomainError),
        ({"learn_steps": 0}, DomainError),
        ({"step_size": 100.0}, PreconditionError),
    ],
)
def test_impossible_settings_are_refused(asked: dict[str, Any], error):
    """A setting out of range is refused, and so is a step size at which steps do not contract."""
    data = {name: asked.pop(name, value) for name, value in {"num_slots": 100, "num_classes": 2}.items()}
    settings = calibration.ModelSettings(**{"epsilon": 1.0, "delta": 1e-3} | asked)
    with pytest.raises(error):
        calibration.mechanism_for(settings, **data)


# --- minimum steps ---------------------------------------------------------------------------------------------------


@given(
    records=st.integers(1, 500),
    epsilon=st.floats(0.01, 5),
    log_noise=st.floats(-3, 0),
    before=st.lists(st.builds(Run, steps=st.integers(1, 50), records=st.integers(0, 20)), max_size=4),
)
def test_planned_steps_are_minimal(records, epsilon, log_noise, before):
    """When replayed, the planned steps meet the target for all records together, and one step fewer does not."""
    chain = converged(l2=0.0119, noise_scale=10.0**log_noise)
    for run in before:
        chain = accountant.advance(chain, run)
    target = conversion.gdp_mu(epsilon=epsilon, delta=1e-5)
    steps = calibration.least_steps(chain, records=records, epsilon=epsilon, delta=1e-5, at_most=10**6)
    after = accountant.advance(chain, Run(steps=steps, records=records))
    assert accountant.unlearning_mu(after) <= target
    assert accountant.deletion_mu(after, records=records, steps_present=chain.steps) <= target
    if steps > 1:
        short = accountant.advance(chain, Run(steps=steps - 1, records=records))
        assert accountant.unlearning_mu(short) > target


def test_the_maximum_number_of_steps_is_respected():
    """A plan can use exactly the maximum number of steps. With a maximum one step lower, it is infeasible."""
    chain = converged(l2=0.0119, noise_scale=0.03)
    steps = calibration.least_steps(chain, records=20, **TARGET, at_most=10**6)
    for at_most in (steps, steps + 1):
        assert calibration.least_steps(chain, records=20, **TARGET, at_most=at_most) == steps
    for at_most in (1, steps - 1):
        with pytest.raises(InfeasibleError, match="at most"):
            calibration.least_steps(chain, records=20, **TARGET, at_most=at_most)


@pytest.mark.parametrize(
    ("noise_scale", "replaced", "removed"), [(0.05, 49, 18), (0.1, 34, 10), (0.2, 20, 3), (0.5, 1, 1), (1.0, 1, 1)]
)
def test_a_hundred_records_take_the_known_steps(noise_scale, replaced, removed):
    """Forgetting 100 records together takes the known number of steps, whereas Chien et al. (Fig. 3c) need up to 1738
    steps."""
    l2 = 1e-6 * MNIST
    chain = converged(l2=l2, noise_scale=noise_scale)
    assert calibration.least_steps(chain, records=200, **TARGET, at_most=100) == replaced
    chain = converged(l2=l2, noise_scale=noise_scale, step_size=2 / (0.25 + 2 * l2))
    assert calibration.least_steps(chain, records=100, **TARGET, at_most=100) == removed


@pytest.mark.parametrize(
    ("batch", "epsilon", "first", "total"),
    [
        (1, 1.0, [1, 1, 1, 1, 1, 1, 1, 3, 3, 3, 4, 3, 3, 4, 3, 3, 4, 3, 3, 4], 316),
        (10, 1.0, [11, 21, 21, 21, 21, 21, 21, 21, 21, 21], 200),
        (20, 0.1, [70, 71, 71, 71, 71], 354),
    ],
)
def test_a_hundred_deletions_take_the_known_steps(batch, epsilon, first, total):
    """Forgetting 100 records in batches, each of which meets the target compared with retraining, takes the known
    number of steps."""
    steps = replaced(converged(l2=0.0119, noise_scale=0.03), batch=batch, epsilon=epsilon)
    assert steps[: len(first)] == first
    assert sum(steps) == total


@pytest.mark.parametrize(("batch", "total"), [(5, 245), (10, 200), (20, 150)])
def test_figure_3b_takes_the_known_steps(batch, total):
    """The deletions of Chien et al. (Fig. 3b) take the known numbers of steps, whereas their bound needs 26530, 11756
    and 6806."""
    assert sum(replaced(converged(l2=1e-6 * MNIST, noise_scale=0.03), batch=batch, epsilon=1.0)) == total


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 50.0])
def test_planned_steps_are_minimal_after_the_noise_decreased(epsilon):
    """Even after the noise has decreased, the planned number of steps reaches the target, and one step fewer does
    not."""
    chain = converged(l2=0.0119, noise_scale=0.3)
    chain = accountant.advance(chain, Run(steps=1, records=1))
    quieter = replace(chain.mechanism, noise_scale=0.03)
    chain = accountant.advance(chain, Run(steps=1, mechanism=quieter))
    target = conversion.gdp_mu(epsilon=epsilon, delta=1e-5)
    steps = calibration.least_steps(chain, records=1, epsilon=epsilon, delta=1e-5, at_most=10**6)
    reached = [
        accountant.unlearning_mu(accountant.advance(chain, Run(steps=k, records=1))) for k in (steps, steps - 1) if k
    ]
    assert reached[0] <= target
    assert all(mu > target for mu in reached[1:])


# --- a sequence of batches -------------------------------------------------------------------------------------------


@given(
    batches=st.lists(st.integers(0, 50), max_size=12),
    epsilon=st.floats(0.05, 5),
    log_noise=st.floats(-2.5, -0.5),
)
def test_every_version_of_a_schedule_meets_the_target(batches, epsilon, log_noise):
    """When replayed, each run of a schedule reaches the target, and one step fewer would miss it."""
    chain = converged(l2=0.0119, noise_scale=10.0**log_noise)
    target = conversion.gdp_mu(epsilon=epsilon, delta=1e-5)
    schedule = schedules.schedule(chain, batches=batches, epsilon=epsilon, delta=1e-5, at_most=10**6)
    for steps, records in zip(schedule, batches, strict=True):
        if steps > 1:
            short = accountant.advance(chain, Run(steps=steps - 1, records=records))
            assert accountant.unlearning_mu(short) > target
        chain = accountant.advance(chain, Run(steps=steps, records=records))
        assert accountant.unlearning_mu(chain) <= target


@given(requests=st.integers(1, 24), epsilon=st.floats(0.05, 5), log_noise=st.floats(-2.5, -0.5))
def test_combining_requests_never_costs_more(requests, epsilon, log_noise):
    """One run for all requests takes no more steps than one run for every four requests, and this takes no more steps
    than one run per request."""
    chain = converged(l2=0.0119, noise_scale=10.0**log_noise)

    def cost(batches: list[int]) -> int:
        return sum(schedules.schedule(chain, batches=batches, epsilon=epsilon, delta=1e-5, at_most=10**6))

    batches, rest = divmod(requests, 4)
    assert cost([requests]) <= cost([4] * batches + [rest] * bool(rest)) <= cost([1] * requests)


def test_batches_cost_less_than_single_runs():
    """Eight requests take 1,115 steps one by one, 549 in two batches and 354 at once."""
    settings = calibration.ModelSettings(epsilon=1.0, delta=1e-5, l2=1e-3)
    made = calibration.mechanism_for(settings, num_slots=1000, num_classes=2)
    chain = accountant.replay(made, [Run(steps=made.learn_steps)])
    batches = ([1] * 8, [4] * 2, [8])
    costs = [sum(schedules.schedule(chain, batches=b, epsilon=1.0, delta=1e-5, at_most=10**6)) for b in batches]
    assert costs == [1115, 549, 354]


def test_an_empty_schedule_is_free_and_a_long_one_is_refused():
    """A schedule without batches takes no steps, and a schedule is refused if one of its batches would exceed the
    maximum."""
    chain = converged(l2=0.0119, noise_scale=0.03)
    assert schedules.schedule(chain, batches=[], **TARGET, at_most=1) == []
    with pytest.raises(InfeasibleError, match="at most 5 steps"):
        schedules.schedule(chain, batches=[1, 100], **TARGET, at_most=5)


# --- minimum noise ---------------------------------------------------------------------------------------------------


@given(records=st.integers(1, 500), steps=st.integers(1, 300), epsilon=st.floats(0.01, 10), log_noise=st.floats(-3, 3))
def test_returned_noise_is_minimal(records, steps, epsilon, log_noise):
    """The returned noise meets the target, but noise that is smaller by one part in 10^12 does not, whatever noise the
    search starts from."""
    mechanism = converged(l2=0.0119, noise_scale=10.0**log_noise).mechanism
    target = conversion.gdp_mu(epsilon=epsilon, delta=1e-5)
    asked = {"records": records, "steps": steps, "epsilon": epsilon, "delta": 1e-5}
    noise = least_noise(mechanism, **asked)

    def mu(noise_scale: float) -> float:
        chain = accountant.replay(replace(mechanism, noise_scale=noise_scale), [Run(steps=mechanism.learn_steps)])
        return accountant.unlearning_mu(accountant.advance(chain, Run(steps=steps, records=records)))

    assert mu(noise) <= target < mu(noise * (1 - 1e-12))
    assert least_noise(mechanism, **asked | {"steps": steps + 1}) < noise
    assert least_noise(mechanism, **asked | {"records": records + 1}) > noise


@pytest.mark.parametrize(
    ("epsilon", "replaced", "removed"),
    [
        (0.05, 0.06598, 0.03299),
        (0.1, 0.03600, 0.01800),
        (0.5, 0.00861, 0.00431),
        (1.0, 0.00465, 0.00232),
        (2.0, 0.00253, 0.00126),
        (5.0, 0.00116, 0.00058),
    ],
)
def test_minimum_noise_for_one_deletion_is_the_known_value(epsilon, replaced, removed):
    """Forgetting one record in one step needs the known noise, whereas Chien et al. (Table 3) need between
    0.0021 and 0.1872."""
    mechanism = converged(l2=1e-6 * MNIST, noise_scale=1.0).mechanism
    for records, noise in ((2, replaced), (1, removed)):
        found = least_noise(mechanism, records=records, steps=1, epsilon=epsilon, delta=1 / MNIST)
        assert found == pytest.approx(noise, abs=6e-6)


def test_noise_below_float_precision_is_refused():
    """Noise that is too small relative to the radius is refused, and so is a search for the noise needed for zero
    records."""
    mechanism = converged(l2=0.0119, noise_scale=1.0).mechanism
    with pytest.raises(PreconditionError, match="noise_resolvable"):
        least_noise(mechanism, records=1, steps=10_000, epsilon=1.0, delta=1e-5)
    with pytest.raises(DomainError):
        least_noise(mechanism, records=0, steps=1, epsilon=1.0, delta=1e-5)
