"""The accountant of objective perturbation: closed forms, invariants, and refusals."""

import json
import math

import mpmath
import pytest
from hypothesis import given, settings, strategies as st

from lethe.features.objective import accountant
from lethe.features.objective.accountant import Releases
from lethe.features.objective.calibration import choose
from lethe.features.objective.mechanism import ObjectivePerturbation
from lethe.proof.conversion import gdp_delta, gdp_epsilon
from lethe.proof.errors import DomainError, InfeasibleError, PreconditionError
from lethe.proof.losses import Objective
from lethe.proof.mechanism import Adjacency
from tests.features.objective.quadrature import mechanism

strengths = st.floats(0.3, 30)
noises = st.floats(1, 10)
STRICT = 1 + 1e-6
"""Two bounds computed on different grids may differ by this factor."""


def adaptive(made: ObjectivePerturbation, versions: int, delta: float = 1e-5, records: int = 1) -> float:
    return accountant.adaptive_epsilon([Releases(mechanism=made, versions=versions, records=records)], delta=delta)


@pytest.mark.parametrize(("strength", "noise_scale", "epsilon"), [(8.0, 4.0, 1.0), (0.5, 1.0, 2.0), (100.0, 10.0, 0.3)])
def test_delta_of_two_classes_matches_the_closed_form(strength, noise_scale, epsilon):
    """The delta of one version agrees with delta_Gauss(1 / sigma; epsilon - log(1 + 1 / (4 Lambda))), computed to forty
    digits, except for the solver's small contribution."""
    made = mechanism(l2=strength, noise_scale=noise_scale)
    with mpmath.workdps(40):
        mu, inner = 1 / mpmath.mpf(noise_scale), epsilon - mpmath.log(1 + 1 / (4 * mpmath.mpf(strength)))
        exact = mpmath.ncdf(-inner / mu + mu / 2) - mpmath.exp(inner) * mpmath.ncdf(-inner / mu - mu / 2)
    bound = accountant.tail(made).delta(epsilon)
    assert float(exact) <= bound <= float(exact) * (1 + 1e-6)
    assert accountant.delta(made, epsilon=epsilon) <= float(exact) * (1 + 1e-3) + 1e-11


def test_kappa_of_softmax_is_attained_by_equal_probabilities():
    """The determinant bound for C classes equals the value for a single record with equal probabilities 1 / C."""
    made = mechanism(num_classes=4, l2=0.7)
    with mpmath.workdps(30):
        spread = mpmath.eye(4) / 4 - mpmath.ones(4) / 16
        exact = mpmath.log(mpmath.det(mpmath.mpf(0.7) * mpmath.eye(4) + spread) / mpmath.mpf(0.7) ** 4)
    assert accountant.log_determinant(made) == pytest.approx(float(exact), rel=1e-12)
    assert accountant.log_determinant(made) >= float(exact)


def test_replaced_records_move_by_the_stated_distance():
    """With two classes, a replaced record can move the gradient by 2 in one way and by 1 in two ways. With C classes,
    it can move the gradient by the maximum, sqrt(8), in C - 1 ways."""
    two = accountant.tail(mechanism(), adjacency=Adjacency.REPLACE)
    assert [round(math.exp(count)) for count, _ in two.vertices] == [2, 1]
    assert [mu for _, mu in two.vertices] == [pytest.approx(0.5), pytest.approx(1.0)]
    ten = accountant.tail(mechanism(num_classes=10), adjacency=Adjacency.REPLACE)
    assert [round(math.exp(count)) for count, _ in ten.vertices] == [18, 72, 9]
    assert [mu for _, mu in ten.vertices] == [pytest.approx(math.sqrt(k) / 2) for k in (2, 6, 8)]


@pytest.mark.soak
@settings(max_examples=12, deadline=None)
@given(strength=strengths, noise_scale=noises, factor=st.floats(1.01, 3), versions=st.integers(1, 20))
def test_epsilon_is_monotone_in_every_parameter(strength, noise_scale, factor, versions):
    """Epsilon falls as sigma and Lambda increase, rises with the number of versions, records and labels, and is larger
    for replacement than for deletion."""
    made = mechanism(l2=strength, noise_scale=noise_scale)
    base = adaptive(made, versions)
    assert adaptive(mechanism(l2=strength, noise_scale=factor * noise_scale), versions) <= base * STRICT
    assert adaptive(mechanism(l2=factor * strength, noise_scale=noise_scale), versions) <= base * STRICT
    assert adaptive(made, versions + 1) >= base / STRICT
    assert adaptive(made, versions, records=2) >= base / STRICT
    assert accountant.epsilon(made, delta=1e-5, adjacency=Adjacency.REPLACE) >= accountant.epsilon(made, delta=1e-5)


@pytest.mark.slow
@settings(max_examples=12, deadline=None)
@given(strength=strengths, noise_scale=noises, versions=st.integers(1, 50), epsilon=st.floats(0.01, 5))
def test_gaussian_envelope_lies_above_the_convolution(strength, noise_scale, versions, epsilon):
    """The Gaussian curve at the computed mu of several versions is an upper bound on their convolved curve, and this mu
    always exceeds the mu of the noise alone."""
    made = mechanism(l2=strength, noise_scale=noise_scale)
    published = [Releases(mechanism=made, versions=versions)]
    mu = accountant.adaptive_mu(published)
    assert accountant.adaptive_delta(published, epsilon=epsilon) <= gdp_delta(epsilon=epsilon, mu=mu)
    alone = math.sqrt(versions) / noise_scale
    assert alone < mu < alone * (1 + 1.3 * noise_scale * accountant.log_determinant(made)) + 1e-5
    curve = accountant._adaptive(published, 0.0)
    assert curve(epsilon) <= gdp_delta(epsilon=epsilon, mu=mu) * 1.001 + 1e-9


@pytest.mark.slow
@settings(max_examples=8, deadline=None)
@given(strength=strengths, noise_scale=noises, delta=st.floats(1e-9, 0.1))
def test_epsilon_inverts_delta(strength, noise_scale, delta):
    """At the returned epsilon, delta is at most the requested delta. At a slightly smaller epsilon, delta is larger."""
    made = mechanism(l2=strength, noise_scale=noise_scale)
    epsilon = accountant.epsilon(made, delta=delta)
    assert accountant.delta(made, epsilon=epsilon) <= delta * (1 + 1e-9)
    if epsilon > 1e-3:
        assert accountant.delta(made, epsilon=epsilon * (1 - 1e-3)) > delta


def test_chains_compose_with_versions():
    """A Langevin chain composes with the versions like a Gaussian mechanism: at large Lambda, its squared mu and theirs
    add up."""
    made = mechanism(l2=1e6, noise_scale=4.0)
    both = accountant.adaptive_epsilon([Releases(mechanism=made, versions=4)], delta=1e-5, mu=0.6)
    assert gdp_epsilon(mu=math.hypot(0.5, 0.6), delta=1e-5) <= both
    assert both == pytest.approx(gdp_epsilon(mu=math.hypot(0.5, 0.6), delta=1e-5), rel=1e-3)


def test_each_label_costs_as_much_as_a_version():
    """A model with C labels costs the same as C versions of a two-class model."""
    labels = mechanism(objective=Objective.MULTILABEL_LOGISTIC_REGRESSION, num_classes=5)
    assert accountant.epsilon(labels, delta=1e-5) == pytest.approx(adaptive(mechanism(), 5), rel=1e-4)


def test_solver_tolerance_increases_every_epsilon():
    """A coarser solver tolerance increases the deletion, release and adaptive epsilons. A tolerance that would increase
    them too much is refused."""
    fine, coarse = (mechanism(tolerance=tolerance) for tolerance in (1e-7, 0.05))
    assert accountant.deletion_mu(coarse) == pytest.approx(0.1, rel=1e-6)
    assert accountant.deletion_mu(fine) < 1e-6
    for adjacency in Adjacency:
        assert accountant.epsilon(coarse, delta=1e-5, adjacency=adjacency) > 1.05 * accountant.epsilon(
            fine, delta=1e-5, adjacency=adjacency
        )
    assert adaptive(coarse, 9) > 1.05 * adaptive(fine, 9)
    with pytest.raises(PreconditionError, match="solver_resolvable"):
        mechanism(tolerance=0.2)


def test_epsilon_is_zero_before_the_first_version():
    """Epsilon is 0 before the first version is published."""
    assert accountant.adaptive_epsilon([], delta=1e-5) == 0
    assert adaptive(mechanism(), 0) == 0


@pytest.mark.parametrize("objective", [one for one in Objective if not one.is_logistic])
def test_losses_without_a_proof_are_refused(objective):
    """Every loss except the logistic losses is refused, because the guarantee has not been proved for it."""
    classes = 1 if objective.is_regression else 2
    with pytest.raises(PreconditionError, match=f"loss_proved.*not proved for {objective}"):
        mechanism(objective=objective, num_classes=classes)


def test_numbers_out_of_range_are_refused():
    """Settings, numbers of records and targets outside the computable range are refused."""
    for changed in ({"noise_scale": 1e9}, {"l2": 1e-9}, {"max_iterations": 10**6}, {"num_classes": 1}):
        with pytest.raises(DomainError):
            mechanism(**changed)
    with pytest.raises(InfeasibleError):
        accountant.epsilon(mechanism(), delta=1e-5, records=1001)
    with pytest.raises(InfeasibleError):
        choose(num_slots=100, num_columns=4, num_classes=2, epsilon=1e-5, delta=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("classes", [2, 10])
def test_chosen_mechanism_meets_its_target(classes):
    """The chosen mechanism's `adaptive` epsilon is at most the target and close to it, and its `deletion` epsilon is 0
    at the same delta."""
    delta = 3000**-1.1
    made = choose(num_slots=3000, num_columns=30, num_classes=classes, epsilon=2.0, delta=delta, versions=3)
    assert 0.99 * 2.0 <= adaptive(made, 3, delta) <= 2.0
    assert adaptive(made, 4, delta) > 2.0
    assert gdp_epsilon(mu=accountant.deletion_mu(made), delta=delta) == 0
    assert ObjectivePerturbation.from_json(json.loads(json.dumps(made.to_json()))) == made


def test_malformed_documents_are_refused():
    """A mechanism document is refused if a field is missing, unknown or of the wrong type."""
    stated = mechanism().to_json()
    for changed in ({"l2": 1}, {"sigma": 1.0}, {"objective": "probit"}):
        with pytest.raises(PreconditionError, match="mechanism_of_format"):
            ObjectivePerturbation.from_json(stated | changed)
    with pytest.raises(PreconditionError, match="mechanism_of_format"):
        ObjectivePerturbation.from_json({name: value for name, value in stated.items() if name != "tolerance"})
