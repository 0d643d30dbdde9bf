"""`/accounting/datasets/{id}/plan`: what a model would cost at each epsilon, and what those there are have reached."""

import datetime

from pydantic import Field

from lethe.contract.fields import Answer, Positive, Query
from lethe.contract.models import Objective
from lethe.contract.operation import Resource, of_one
from lethe.contract.problems import DatasetUnknown, PreconditionFailed
from lethe.contract.sets import Metric, RunKind, Scope


class CostOut(Answer):
    """A model by default but for its target and `l2`, from public numbers alone."""

    epsilon: float
    delta: float
    l2: float
    noise: float = Field(
        description="Standard deviation, at most, that the noise gives to the score of a row of norm 1; of a target, "
        "in units of half its range."
    )
    learn_passes: float = Field(description="Passes over the rows to learn.")
    request_passes: float | None = Field(
        description="Passes to forget the first person by themselves; null: the target is out of reach."
    )


class MeasuredVersionOut(Answer):
    """A version, as it was measured on evaluation data."""

    model_id: str
    name: str
    version: int
    live: bool
    kind: RunKind = Field(description="Of its run: learn, unlearn or relearn.")
    epsilon: float = Field(description="The target of its model")
    l2: float
    passes: float = Field(description="Passes over the rows that its run took.")
    metric: Metric
    value: float
    published_at: datetime.datetime


class PlanOut(Answer):
    dataset_id: str
    objective: str
    costs: list[CostOut] = Field(description="By `epsilon`, then by `l2`, both ascending.")
    measured: list[MeasuredVersionOut] = Field(
        description="Versions of models of the dataset that have evaluation data, newest first, the last 100."
    )


class PlanQuery(Query):
    objective: Objective | None = Field(default=None, description="Default: as a model of the dataset has by default.")
    loss_width: Positive | None = None
    metric: Metric | None = Field(
        default=None,
        description="What versions are measured by; those of which it is not known are left out. "
        "Default: accuracy, label_accuracy or r_squared.",
    )
    l2: Positive | None = Field(
        default=None, description="Default: a quarter of the default, the default, and four times the default."
    )


PLAN = of_one(
    Resource("Accounting", "/v1/accounting").operation(
        "get_plan",
        "GET",
        "/datasets/{dataset_id}/plan",
        scope=Scope.ACCOUNTING_READ,
        query=PlanQuery,
        gives=PlanOut,
        problems=(DatasetUnknown, PreconditionFailed),
        does="What a model of the dataset would cost at targets from 1/4 to 8: noise and passes, from public numbers "
        "alone; beside it what models that are there have reached on their evaluation data. The dataset's own rows are "
        "not read: `lethe model plan FILE` tries a file out where it is.",
    )
)
