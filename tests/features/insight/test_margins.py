import math
from collections import Counter

import pytest
from hypothesis import given, strategies as st

from lethe.features.insight import margins
from lethe.proof import accountant, calibration, conversion, methods
from lethe.proof.accountant import Exposure, Run
from lethe.proof.errors import DomainError, InfeasibleError
from lethe.proof.mechanism import Adjacency
from tests.lethe.proof.mnist_mechanism import MNIST, TARGET, converged

# --- most records ----------------------------------------------------------------------------------------------------


@given(
    steps=st.integers(1, 200),
    epsilon=st.floats(0.01, 5),
    log_noise=st.floats(-3, 1),
    before=st.integers(0, 20),
)
def test_the_largest_batch_fits_and_one_more_does_not(steps, epsilon, log_noise, before):
    """A batch of the computed maximum size reaches the target in the given number of steps, but a batch with one more
    record does not. If the target is unreachable, there is no maximum size."""
    chain = converged(l2=0.0119, noise_scale=10.0**log_noise)
    chain = accountant.advance(chain, Run(steps=1, records=before))
    target = conversion.gdp_mu(epsilon=epsilon, delta=1e-5)

    def mu(records: int) -> float:
        return accountant.unlearning_mu(accountant.advance(chain, Run(steps=steps, records=records)))

    try:
        most = margins.most_records(chain, steps=steps, epsilon=epsilon, delta=1e-5)
    except InfeasibleError:
        assert mu(0) > target
        return
    assert mu(most) <= target
    assert most == MNIST or mu(most + 1) > target
    assert margins.most_records(chain, steps=steps + 1, epsilon=epsilon, delta=1e-5) >= most
    if most:
        least = calibration.least_steps(chain, records=most, epsilon=epsilon, delta=1e-5, at_most=10**6)
        assert least <= steps


@pytest.mark.parametrize("steps", [1, 10, 40, 61])
def test_the_largest_batch_matches_brute_force(steps):
    """The computed size of the largest batch equals the size found by counting up from zero."""
    chain = converged(l2=0.0119, noise_scale=0.03)
    fits = [
        calibration.least_steps(chain, records=records, **TARGET, at_most=1000) <= steps for records in range(0, 250)
    ]
    assert margins.most_records(chain, steps=steps, **TARGET) == fits.index(False) - 1


def test_the_largest_batch_can_contain_all_records():
    """If the noise is large enough to forget all records in one step, the largest batch contains all records."""
    assert margins.most_records(converged(l2=0.0119, noise_scale=1000.0), steps=1, **TARGET) == MNIST


# --- releases left ---------------------------------------------------------------------------------------------------


@given(
    records=st.integers(1, 5),
    steps=st.integers(1, 100),
    epsilon=st.floats(0.1, 50),
    published=st.lists(st.tuples(st.integers(1, 5000), st.integers(1, 10)), max_size=4, unique_by=lambda pair: pair[0]),
)
def test_the_releases_left_fit_and_one_more_does_not(records, steps, epsilon, published):
    """The remaining releases stay within the budget, one more would exceed it, and their number equals the closed form.
    An exhausted budget raises `InfeasibleError`."""
    mechanism = converged(l2=0.0119, noise_scale=0.3).mechanism
    target = conversion.gdp_mu(epsilon=epsilon, delta=1e-5)
    exposures = [Exposure(mechanism=mechanism, records=records, releases=tuple(sorted(published)))]
    asked = {"records": records, "steps": steps, "epsilon": epsilon, "delta": 1e-5}
    spent = methods.adaptive_mu(exposures)
    if spent > target:
        with pytest.raises(InfeasibleError):
            margins.releases_left(exposures, mechanism, **asked)
        return
    left = margins.releases_left(exposures, mechanism, **asked)

    def mu(more: int) -> float:
        future = Exposure(mechanism=mechanism, records=records, releases=((steps, more),))
        return methods.adaptive_mu([*exposures, future] if more else exposures)

    assert mu(left) <= target < mu(left + 1)
    each = records * accountant.release_mu(mechanism, steps=steps, adjacency=Adjacency.ZERO_OUT)
    assert left == pytest.approx((target**2 - spent**2) / each**2, abs=1 + 1e-9 * left)
    assert margins.releases_left(exposures, mechanism, **asked | {"steps": steps + 1}) <= left
    assert margins.releases_left(exposures, mechanism, **asked | {"records": records + 1}) <= left


def test_the_remaining_releases_match_brute_force():
    """The number of remaining releases equals the number found by publishing versions one by one until the budget is
    exceeded."""
    mechanism = converged(l2=0.0119, noise_scale=0.3).mechanism
    target = conversion.gdp_mu(epsilon=0.02, delta=1e-5)
    published = [5000]
    while (
        methods.adaptive_mu(
            [Exposure(mechanism=mechanism, records=1, releases=tuple(sorted(Counter(published).items())))]
        )
        <= target
    ):
        published.append(70)
    learned = [Exposure(mechanism=mechanism, records=1, releases=((5000, 1),))]
    left = margins.releases_left(learned, mechanism, records=1, steps=70, epsilon=0.02, delta=1e-5)
    assert left == len(published) - 2 > 0


# --- least epsilon ---------------------------------------------------------------------------------------------------


@given(records=st.integers(1, 100), steps=st.integers(0, 200), log_delta=st.floats(-20, -1))
def test_epsilon_after_steps_matches_the_closed_form(records, steps, log_delta):
    """Epsilon equals the closed form, falls with every step and rises with every record."""
    chain, delta = converged(l2=0.0119, noise_scale=0.03), math.exp(log_delta)
    c = chain.mechanism.contraction
    # After 5000 steps the variance is stationary.
    variance = chain.mechanism.step_variance / (1 - c**2)
    mu = records * chain.presence * c**steps / math.sqrt(variance)
    epsilon = margins.least_epsilon(chain, records=records, steps=steps, delta=delta)
    assert epsilon == pytest.approx(conversion.gdp_epsilon(mu=mu, delta=delta), rel=1e-6, abs=1e-9)
    assert margins.least_epsilon(chain, records=records, steps=steps + 1, delta=delta) <= epsilon
    assert margins.least_epsilon(chain, records=records + 1, steps=steps, delta=delta) >= epsilon


def test_epsilon_of_no_records_is_zero():
    """The epsilon of deleting no records is 0, both with and without steps."""
    chain = converged(l2=0.0119, noise_scale=0.03)
    assert [margins.least_epsilon(chain, records=0, steps=steps, delta=1e-5) for steps in (0, 1)] == [0, 0]
    for wrong in ({"records": -1, "steps": 1}, {"records": 1, "steps": -1}):
        with pytest.raises(DomainError):
            margins.least_epsilon(chain, **wrong, delta=1e-5)
