"""A budget for `adaptive`: what it covers, what it bounds, and what it refuses."""

import math
from typing import Any

import pytest
from hypothesis import given, strategies as st

from lethe.proof import budget, conversion, methods
from lethe.proof.accountant import Exposure
from lethe.proof.budget import Budget, Budgeted
from lethe.proof.errors import DomainError, PreconditionError
from lethe.proof.losses import Objective
from lethe.proof.mechanism import Mechanism

MECHANISM = Mechanism(
    objective=Objective.LOGISTIC_REGRESSION,
    num_slots=1000,
    num_classes=2,
    l2=0.05,
    step_size=2.0,
    noise_scale=0.1,
    radius=20.0,
    learn_steps=50,
)
ONE = Budget(epsilon=6.0, delta=1e-5)


def fed(*releases: tuple[int, int], records: int = 1) -> Exposure:
    return Exposure(mechanism=MECHANISM, records=records, releases=releases)


@given(steps=st.integers(1, 90), records=st.integers(1, 10**6), spent=st.integers(0, 50))
def test_the_largest_number_of_versions_fits(steps: int, records: int, spent: int) -> None:
    """A budget covers versions until their mu for one record exceeds the budget, however many records a person has."""
    published = {"a": fed((50, 1), records=records)}
    more = {"b": fed((steps, spent + 1), records=records)}
    of_one = methods.adaptive_mu([fed((50, 1)), fed((steps, spent + 1))])
    assert ONE.covers(published | more) == (of_one <= ONE.mu)


@given(epsilon=st.floats(1e-3, 50), delta=st.floats(1e-12, 0.5))
def test_a_budget_implies_its_epsilon_and_delta(epsilon: float, delta: float) -> None:
    """The mu of a budget guarantees the budget's epsilon and delta."""
    mu = Budget(epsilon=epsilon, delta=delta).mu
    assert conversion.gdp_delta(mu=mu, epsilon=epsilon) <= delta * (1 + 1e-9)


def test_budgets_bound_the_joint_mu() -> None:
    """If all models have budgets, `adaptive` combines the datasets' budgets, each multiplied by the person's number of
    records in that dataset, however many versions were published."""
    exposures = {"a": fed((50, 1), records=3), "b": fed((9, 2), records=3), "c": fed((50, 1))}
    other = Budget(epsilon=3.0, delta=1e-5)
    budgets = {"x": Budgeted(budget=ONE, models=("a", "b")), "y": Budgeted(budget=other, models=("c",))}
    found = budget.adaptive(exposures, budgets)
    assert found.bounded
    assert found.mu == pytest.approx(math.hypot(3 * ONE.mu, other.mu), rel=1e-15)
    assert found.mu >= methods.adaptive_mu(list(exposures.values()))


def test_a_model_without_a_budget_is_unbounded() -> None:
    """If any model has no budget, `adaptive` returns the sum over all versions and `bounded` is False."""
    exposures = {"a": fed((50, 1)), "b": fed((9, 2))}
    found = budget.adaptive(exposures, {"x": Budgeted(budget=ONE, models=("a",))})
    assert (found.bounded, found.mu) == (False, methods.adaptive_mu(list(exposures.values())))
    assert not budget.adaptive({}, {}).bounded


@pytest.mark.parametrize(
    "budgets",
    [
        {"x": Budgeted(budget=ONE, models=("a",)), "y": Budgeted(budget=ONE, models=("a",))},
        {"x": Budgeted(budget=ONE, models=("a", "b"))},
        {"x": Budgeted(budget=Budget(epsilon=0.1, delta=1e-5), models=("a",))},
    ],
    ids=["a model under two", "a model that was not fed", "one that is exceeded"],
)
def test_exceeded_budgets_certify_nothing(budgets: dict[str, Budgeted]) -> None:
    """`adaptive` rejects overlapping, exceeded or unrelated budgets."""
    with pytest.raises(PreconditionError):
        budget.adaptive({"a": fed((50, 1))}, budgets)


@pytest.mark.parametrize("models", [(), ("a", "a")])
def test_a_budget_names_its_models_once(models: tuple[str, ...]) -> None:
    """A budget must name at least one model and must not name a model twice."""
    with pytest.raises(PreconditionError):
        Budgeted(budget=ONE, models=models)


@pytest.mark.parametrize("of", [{"epsilon": 0.0}, {"epsilon": math.nan}, {"delta": 0.0}, {"delta": 1.0}])
def test_invalid_budgets_are_refused(of: dict[str, Any]) -> None:
    """An epsilon that is not positive, or a delta that is not a probability, is refused."""
    with pytest.raises(DomainError):
        Budget(**{"epsilon": 1.0, "delta": 1e-5} | of)
