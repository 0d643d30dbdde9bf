"""Publication budgets: bounds on the `adaptive` guarantee that are fixed before anything is published.

An observer who reads versions and then chooses deletions, runs or models influences the sum over published versions. A
sum computed afterwards is no guarantee against such an observer. A bound fixed in advance is, provided that no version
is published that would exceed it: it is a privacy filter for Gaussian differential privacy (Smith and Thakurta 2022).
The statement is in `docs/mathematics/joint.md`.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, Self

from lethe.proof import accountant, conversion, errors, methods

_ROUNDING_TOLERANCE = 1e-12
"""Relative difference allowed between r times a rounded sum and the rounded sum of r times the summands."""


@dataclass(frozen=True, kw_only=True)
class Budget:
    """Publication budget of one dataset, per record, with epsilon > 0 in nats and 0 < delta < 1.

    All versions of all the dataset's models together are (epsilon, delta)-indistinguishable for one record.
    """

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        errors.require_positive(epsilon=self.epsilon)
        errors.require_fraction(delta=self.delta)

    @cached_property
    def mu(self) -> float:
        """Largest mu for which mu-GDP implies (epsilon, delta)."""
        return conversion.gdp_mu(epsilon=self.epsilon, delta=self.delta)

    def covers(self, exposures: Mapping[str, accountant.Exposure]) -> bool:
        """Return True if the published versions stay within the budget for one person's records.

        `exposures` maps the id of each of the dataset's models trained on these records to that model's versions.
        """
        records = max((exposure.records for exposure in exposures.values()), default=1)
        return methods.adaptive_mu(exposures.values()) <= records * self.mu * (1 + _ROUNDING_TOLERANCE)

    def to_json(self) -> dict[str, Any]:
        """Return the budget's fields as signed in certificates."""
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class Budgeted:
    """A dataset's budget, and the ids of the dataset's models that were trained on a person's records.

    Raises:
        PreconditionError: if no model is named, or a model is named twice.
    """

    budget: Budget
    models: tuple[str, ...]

    def __post_init__(self) -> None:
        if not self.models or len(set(self.models)) < len(self.models):
            raise errors.PreconditionError("budget_of_models", "Expected the models of a budget, each once")

    def to_json(self) -> dict[str, Any]:
        """Return the budget and its models as signed in certificates."""
        return self.budget.to_json() | {"models": list(self.models)}

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> Self:
        """Parse the result of `to_json`.

        Raises:
            LookupError: if a field is missing.
            TypeError: if a field has the wrong type.
            PrivacyError: if a value is out of range.
        """
        budget = Budget(epsilon=document["epsilon"], delta=document["delta"])
        return cls(budget=budget, models=tuple(document["models"]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Adaptive:
    """The `adaptive` guarantee: `mu` against observers who read every version.

    `bounded` is True if `mu` is a bound set in advance. Otherwise `mu` is the sum over published versions, which is
    valid only if the schedule of runs does not depend on them, and `summed` contains the exposures to these versions.
    """

    mu: float
    bounded: bool
    summed: tuple[accountant.Exposure, ...] = ()


def adaptive(exposures: Mapping[str, accountant.Exposure], budgets: Mapping[str, Budgeted]) -> Adaptive:
    """Return one person's guarantee against observers who read every version of every model trained on their records.

    `exposures` are keyed by model id, `budgets` by dataset id. If every model is under a budget, the budgets determine
    the guarantee: mu^2 is the sum over datasets of (records mu_budget)^2. Otherwise the guarantee is the sum over
    published versions (`methods.adaptive_mu`).

    Raises:
        PreconditionError: if a budget is exceeded, names a model not trained on the records, or shares a model with
            another budget.

    >>> from lethe.proof.losses import Objective
    >>> from lethe.proof.mechanism import Mechanism
    >>> m = Mechanism(objective=Objective.LOGISTIC_REGRESSION, num_slots=1000, num_classes=2, l2=0.05, step_size=2.0,
    ...               noise_scale=0.1, radius=20.0, learn_steps=50)
    >>> exposures = {"a": accountant.Exposure(mechanism=m, records=1, releases=((50, 1),))}
    >>> adaptive(exposures, {"d": Budgeted(budget=Budget(epsilon=6.0, delta=1e-5), models=("a",))}).bounded
    True
    >>> adaptive(exposures, {}).bounded
    False
    """
    budgeted_models = [model_id for budgeted in budgets.values() for model_id in budgeted.models]
    if len(set(budgeted_models)) < len(budgeted_models) or not exposures.keys() >= set(budgeted_models):
        raise errors.PreconditionError(
            "budget_of_models", "Expected models that the records fed, each under one budget"
        )
    squares = []
    for dataset_id, budgeted in budgets.items():
        published = {model_id: exposures[model_id] for model_id in budgeted.models}
        if not budgeted.budget.covers(published):
            raise errors.PreconditionError(
                "budget_kept", f"Expected what is published of {dataset_id} to keep its budget"
            )
        squares.append((max(exposure.records for exposure in published.values()) * budgeted.budget.mu) ** 2)
    if exposures and len(budgeted_models) == len(exposures):
        return Adaptive(mu=math.sqrt(math.fsum(squares)), bounded=True)
    summed = tuple(exposures.values())
    return Adaptive(mu=methods.adaptive_mu(summed), bounded=False, summed=summed)
