import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.privacy import accountant, calibration, conversion
from app.privacy.accountant import Chain, Run
from app.privacy.errors import DomainError, InfeasibleError, PreconditionError
from app.privacy.mechanism import Adjacency, Mechanism, Objective

MNIST = 11982
TARGET = {"epsilon": 1.0, "delta": 1 / MNIST}


def converged(*, l2: float, noise_scale: float, step_size: float | None = None) -> Chain:
    """The model of Chien et al. (2024) on MNIST, two classes, after many steps."""
    mechanism = Mechanism(
        objective=Objective.LOGISTIC_REGRESSION,
        num_slots=MNIST,
        num_classes=2,
        l2=l2,
        step_size=step_size or 1 / (0.25 + l2),
        noise_scale=noise_scale,
        radius=1.0,
        learn_steps=5000,
    )
    return accountant.replay(mechanism, [Run(steps=5000)])


# --- defaults --------------------------------------------------------------------------------------------------------


def test_default_regulariser():
    """The default regulariser is 1/n0, and 2.5e-4 for large datasets."""
    assert calibration.default_l2(1) == 1.0
    assert calibration.default_l2(1000) == 1e-3
    assert calibration.default_l2(10**9) == 2.5e-4


@given(
    num_slots=st.integers(1, 10**8),
    classes=st.integers(2, 20),
    epsilon=st.floats(0.01, 20),
    log_delta=st.floats(-20, -0.5),
)
def test_defaults_are_what_they_are_said_to_be(num_slots, classes, epsilon, log_delta):
    """Step 2/(L + m), radius M/m, noise for the headroom over the target, and learning until the start is forgotten."""
    delta = math.exp(log_delta)
    made = calibration.mechanism_for(num_slots=num_slots, num_classes=classes, epsilon=epsilon, delta=delta)
    m, smoothness = made.strong_convexity, made.smoothness
    assert m == calibration.default_l2(num_slots)
    assert made.contraction == pytest.approx((smoothness - m) / (smoothness + m), rel=1e-12)
    assert made.radius == pytest.approx(made.gradient_bound / m)
    stationary = accountant.release_mu(made, steps=10**9, adjacency=Adjacency.ZERO_OUT)
    target = conversion.gdp_mu(epsilon=epsilon, delta=delta)
    assert stationary == pytest.approx(calibration.DEFAULT_HEADROOM * target, rel=1e-9)
    left = made.radius * made.contraction**made.learn_steps
    influence = made.sensitivity(Adjacency.ZERO_OUT) / (1 - made.contraction)
    assert left <= calibration.INITIAL_DISTANCE * influence * (1 + 1e-9) < left / made.contraction * (1 + 1e-8)


def test_what_is_asked_for_is_what_is_made():
    """A setting that is given is taken as it is."""
    asked = {"l2": 0.1, "step_size": 1.5, "noise_scale": 0.7, "radius": 3.0, "learn_steps": 12}
    made = calibration.mechanism_for(num_slots=50, num_classes=3, epsilon=1.0, delta=1e-3, **asked)
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
def test_what_cannot_be_is_refused(asked: dict[str, Any], error):
    """A number out of range, or a step that does not contract, is refused."""
    with pytest.raises(error):
        calibration.mechanism_for(**{"num_slots": 100, "num_classes": 2, "epsilon": 1.0, "delta": 1e-3} | asked)


# --- least steps -----------------------------------------------------------------------------------------------------


@given(
    records=st.integers(1, 500),
    epsilon=st.floats(0.01, 5),
    log_noise=st.floats(-3, 0),
    before=st.lists(st.builds(Run, steps=st.integers(1, 50), records=st.integers(0, 20)), max_size=4),
)
def test_the_least_steps_are_enough_and_one_fewer_is_not(records, epsilon, log_noise, before):
    """The steps that are planned reach the target when replayed, for everybody at once, and one fewer does not."""
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


def test_it_takes_no_more_steps_than_it_may():
    """The least number of steps may be the largest allowed; one fewer allowed is infeasible."""
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
def test_a_hundred_records_at_once(noise_scale, replaced, removed):
    """Forgetting 100 records at once takes the known number of steps, where Chien et al. (Fig. 3c) take 1738 to 1."""
    l2 = 1e-6 * MNIST
    chain = converged(l2=l2, noise_scale=noise_scale)
    assert calibration.least_steps(chain, records=200, **TARGET, at_most=100) == replaced
    chain = converged(l2=l2, noise_scale=noise_scale, step_size=2 / (0.25 + 2 * l2))
    assert calibration.least_steps(chain, records=100, **TARGET, at_most=100) == removed


def schedule(chain: Chain, *, batch: int, epsilon: float) -> list[int]:
    """The least steps for 100 deletions, one batch after another; `replace`, hence twice the records."""
    steps = []
    for _ in range(100 // batch):
        least = calibration.least_steps(chain, records=2 * batch, epsilon=epsilon, delta=1 / MNIST, at_most=1000)
        chain = accountant.advance(chain, Run(steps=least, records=2 * batch))
        steps.append(least)
    return steps


@pytest.mark.parametrize(
    ("batch", "epsilon", "first", "total"),
    [
        (1, 1.0, [1, 1, 1, 1, 1, 1, 1, 3, 3, 3, 4, 3, 3, 4, 3, 3, 4, 3, 3, 4], 316),
        (10, 1.0, [11, 21, 21, 21, 21, 21, 21, 21, 21, 21], 200),
        (20, 0.1, [70, 71, 71, 71, 71], 354),
    ],
)
def test_a_hundred_deletions_in_a_row(batch, epsilon, first, total):
    """100 deletions in batches, each brought to the target against relearning, take the known steps."""
    steps = schedule(converged(l2=0.0119, noise_scale=0.03), batch=batch, epsilon=epsilon)
    assert steps[: len(first)] == first
    assert sum(steps) == total


@pytest.mark.parametrize(("batch", "total"), [(5, 245), (10, 200), (20, 150)])
def test_the_figure_of_the_paper(batch, total):
    """The sequence of Chien et al. (Fig. 3b) takes the known steps, where their bound takes 26530, 11756 and 6806."""
    assert sum(schedule(converged(l2=1e-6 * MNIST, noise_scale=0.03), batch=batch, epsilon=1.0)) == total
