import math
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, strategies as st

from lethe.features.insight import margins
from lethe.features.insight.curve import points, thinned
from lethe.proof import accountant, calibration, conversion, guarantees, methods
from lethe.proof.accountant import Exposure, Run
from lethe.proof.errors import DomainError

DELTA = 1e-5
MECHANISM = calibration.mechanism_for(
    calibration.ModelSettings(epsilon=1.0, delta=DELTA, batch_size=2000, cool_down=1),
    num_slots=2000,
    num_classes=2,
    num_parameters=5,
)
LEARNED = Run(steps=MECHANISM.learn_steps)
CHAIN = accountant.replay(MECHANISM, [LEARNED])


def unlearned(run, *, largest=1, exposures=(), at_most=500, before=CHAIN):
    return points(before, run, largest=largest, exposures=exposures, delta=DELTA, at_most=at_most)


@given(steps=st.integers(1, 10**6), at_most=st.integers(2, 500))
def test_thinning_keeps_the_ends(steps, at_most):
    """A thinned run starts at step 0 and ends at the run's last step. Its steps increase, and it has at most the given
    number of points."""
    found = thinned(steps, at_most=at_most)
    assert (found[0], found[-1]) == (0, steps)
    assert all(before < after for before, after in pairwise(found))
    assert len(found) <= at_most
    assert steps >= at_most or found == list(range(steps + 1))


def test_a_curve_needs_two_points():
    """A curve of fewer than two points is refused."""
    with pytest.raises(DomainError):
        thinned(5, at_most=1)


@given(steps=st.integers(1, 3000), records=st.integers(1, 50), at_most=st.integers(2, 40))
def test_the_end_matches_the_certificate(steps, records, at_most):
    """The last point of a run matches the run's ledger entry and certificate to the last digit."""
    run = Run(steps=steps, records=records)
    last = unlearned(run, largest=records, at_most=at_most)[-1]
    chain = accountant.advance(CHAIN, run)
    posted = {g.notion: g for g in guarantees.of_chain(chain, last_run=run, delta=DELTA)}
    assert (last.influence, last.noise_variance, last.presence) == (chain.influence, chain.variance, chain.presence)
    assert last.epsilon.unlearning == posted["unlearning"].epsilon
    assert last.epsilon.release == posted["release"].epsilon
    evidence = guarantees.Evidence(
        mechanism=MECHANISM,
        history=(LEARNED, run),
        records=records,
        steps_present=LEARNED.steps,
        exposures={},
        delta=DELTA,
    )
    [deletion] = [g for g in evidence.guarantees() if g.notion == "deletion"]
    assert last.epsilon.deletion == deletion.epsilon


@pytest.mark.slow
@given(records=st.integers(1, 50), at_most=st.integers(2, 300))
def test_residual_influence_only_falls(records, at_most):
    """After a deletion, the deleted records' residual influence falls with every step, while the budget spent by the
    remaining records rises."""
    found = unlearned(Run(steps=600, records=records), largest=records, at_most=at_most)
    left = [point.epsilon.deletion for point in found]
    assert left == sorted(left, reverse=True)
    together = [point.epsilon.unlearning for point in found]
    # No other record was ever deleted.
    assert together == left
    for spent in ([p.epsilon.release for p in found], [p.epsilon.adaptive for p in found]):
        assert spent == sorted(spent)


def test_influence_only_rises_while_learning():
    """During training, the epsilon of one record grows from 0 to its closed-form value."""
    found = points(accountant.started(MECHANISM), LEARNED, largest=None, exposures=(), delta=DELTA, at_most=100)
    first, last = found[0], found[-1]
    assert (first.epsilon_of_one, first.epsilon.release, first.epsilon.adaptive, first.influence) == (0, 0, 0, 0)
    grown = [point.epsilon_of_one for point in found]
    assert grown == sorted(grown)
    assert all(point.epsilon.deletion is None and point.epsilon.unlearning == 0 for point in found)
    c = MECHANISM.contraction
    closed = MECHANISM.step_size * MECHANISM.gradient_bound / MECHANISM.num_slots / (1 - c)
    assert last.presence == pytest.approx(closed * (1 - c**LEARNED.steps), rel=1e-9)
    mu = last.presence / math.sqrt(last.noise_variance) + MECHANISM.rounding_mu
    assert last.epsilon_of_one == pytest.approx(conversion.gdp_epsilon(mu=mu, delta=DELTA), rel=1e-9)


def test_each_point_matches_a_separate_run():
    """The point after step k equals the end of a run planned with exactly k steps, including the rounding in the last
    step."""
    found = unlearned(Run(steps=30, records=2), largest=2)
    for point in found[1:]:
        alone = unlearned(Run(steps=point.step, records=2), largest=2)[-1]
        assert replace(alone, step=point.step) == point


def test_a_deletion_starts_with_full_influence():
    """At step 0 a deleted record still has its full influence."""
    first = unlearned(Run(steps=30, records=3), largest=3)[0]
    assert first.influence == 3 * CHAIN.presence
    without = margins.least_epsilon(CHAIN, records=3, steps=0, delta=DELTA)
    assert first.epsilon.unlearning == first.epsilon.deletion == without
    assert first.epsilon.release == 0


def test_adaptive_composes_earlier_releases():
    """At each point, `adaptive` composes the earlier releases with the part of the current run up to that point."""
    before = Exposure(mechanism=MECHANISM, records=1, releases=((LEARNED.steps, 1),))
    found = unlearned(Run(steps=40, records=1), exposures=(before,))
    assert found[0].epsilon.adaptive == conversion.gdp_epsilon(mu=methods.adaptive_mu([before]), delta=DELTA)
    both = Exposure(mechanism=MECHANISM, records=1, releases=((40, 1), (LEARNED.steps, 1)))
    assert found[-1].epsilon.adaptive == conversion.gdp_epsilon(mu=methods.adaptive_mu([both]), delta=DELTA)


def test_a_person_erased_before_learning_has_no_influence():
    """A person who was erased before the model was trained has no influence at any step."""
    found = points(
        accountant.started(MECHANISM), replace(LEARNED, records=4), largest=2, exposures=(), delta=DELTA, at_most=20
    )
    assert {point.epsilon.deletion for point in found} == {0.0}
    assert {point.influence for point in found} == {0.0}
