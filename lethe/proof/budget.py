"""A bound on `adaptive` that is set before anything is published, and never exceeded.

An observer who reads versions and chooses by them what happens next (whom to delete, when to run, which models to make)
chooses what the sum over published versions comes to. A sum that was taken afterwards is then no guarantee; a bound
that was set in advance is one, as long as nothing is published that would exceed it (Smith and Thakurta 2022: a filter
for Gaussian differential privacy). `docs/mathematics/joint.md` has the statement.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, Self

from lethe.proof import accountant, conversion
from lethe.proof.accountant import Exposure
from lethe.proof.errors import PreconditionError, require_fraction, require_positive

_ROUNDED = 1e-12
"""Relative: how much r times a rounded sum may exceed the rounded sum of r times the summands."""


@dataclass(frozen=True, kw_only=True)
class Budget:
    """The budget of one dataset, for one record: all versions of all models together stay (epsilon, delta); epsilon > 0
    in nats, 0 < delta < 1."""

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        require_positive(epsilon=self.epsilon)
        require_fraction(delta=self.delta)

    @cached_property
    def mu(self) -> float:
        return conversion.gdp_mu(epsilon=self.epsilon, delta=self.delta)

    def covers(self, exposures: Mapping[str, Exposure]) -> bool:
        """Return True if what is published stays within the budget, to somebody whose records fed it; `exposures`: by
        model."""
        records = max((exposure.records for exposure in exposures.values()), default=1)
        return accountant.adaptive_mu(list(exposures.values())) <= records * self.mu * (1 + _ROUNDED)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class Budgeted:
    """The budget of a dataset, and which models of it a person's records fed.

    Raises `PreconditionError` where no model is named, or one twice.
    """

    budget: Budget
    models: tuple[str, ...]

    def __post_init__(self) -> None:
        if not self.models or len(set(self.models)) < len(self.models):
            raise PreconditionError("budget_of_models", "Expected the models of a budget, each once")

    def to_json(self) -> dict[str, Any]:
        return self.budget.to_json() | {"models": list(self.models)}

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> Self:
        """Inverse of `to_json`. Raises `LookupError`, `TypeError` or `PrivacyError` on anything else."""
        budget = Budget(epsilon=document["epsilon"], delta=document["delta"])
        return cls(budget=budget, models=tuple(document["models"]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Adaptive:
    """`mu` against people who read every version. `bounded`: it was set in advance; else it is a sum taken afterwards,
    for a schedule that nobody chose by what they read."""

    mu: float
    bounded: bool


def adaptive(exposures: Mapping[str, Exposure], budgets: Mapping[str, Budgeted]) -> Adaptive:
    """The adaptive guarantee of a person, against people who read every version of every model that the person's
    records fed.

    `budgets`: of the datasets that have one. Where each of the models is under a budget, these are what holds:
    mu^2 = sum over datasets of (records mu_budget)^2. Where one is not, it is what was published.

    Raises `PreconditionError` if a budget is exceeded, names a model that the records did not feed or that is under
    another budget too.

    >>> from lethe.proof.losses import Objective
    >>> from lethe.proof.mechanism import Mechanism
    >>> m = Mechanism(objective=Objective.LOGISTIC_REGRESSION, num_slots=1000, num_classes=2, l2=0.05, step_size=2.0,
    ...               noise_scale=0.1, radius=20.0, learn_steps=50)
    >>> seen = {"a": Exposure(mechanism=m, records=1, releases=((50, 1),))}
    >>> adaptive(seen, {"d": Budgeted(budget=Budget(epsilon=6.0, delta=1e-5), models=("a",))}).bounded
    True
    >>> adaptive(seen, {}).bounded
    False
    """
    named = [model_id for budgeted in budgets.values() for model_id in budgeted.models]
    if len(set(named)) < len(named) or not exposures.keys() >= set(named):
        raise PreconditionError("budget_of_models", "Expected models that the records fed, each under one budget")
    squares = []
    for dataset_id, budgeted in budgets.items():
        seen = {model_id: exposures[model_id] for model_id in budgeted.models}
        if not budgeted.budget.covers(seen):
            raise PreconditionError("budget_kept", f"Expected what is published of {dataset_id} to keep its budget")
        squares.append((max(exposure.records for exposure in seen.values()) * budgeted.budget.mu) ** 2)
    if exposures and len(named) == len(exposures):
        return Adaptive(mu=math.sqrt(math.fsum(squares)), bounded=True)
    return Adaptive(mu=accountant.adaptive_mu(list(exposures.values())), bounded=False)
