"""Operation that returns predictions for records."""

from typing import Annotated, Any

from pydantic import Field, FiniteFloat

from lethe.contract import fields, models, problems, sets

_Vector = Annotated[list[FiniteFloat], Field(fail_fast=True)]
"""Numbers of a record. Only the first fault is listed, because a body may contain millions of numbers."""


class TangentServedElsewhere(problems.Conflict, title="The gateway does not run the network of this model"):
    template = "Model {model_id} goes through a network, which the gateway does not run: serve it with lethe.mlflow."


class PredictionsIn(fields.LargeBody):
    MAX_MEMBERS = fields.LargeBody.MAX_BYTES
    """Maximum for vectors of numbers, in which every second byte may be a comma."""

    model_config = fields.example(records=[{"age": 39, "work": "private"}])

    records: Annotated[list[dict[str, Any] | _Vector], Field(min_length=1, max_length=10_000)] = Field(
        description="Records: objects keyed by column name, or vectors of numbers if there is no schema."
    )


class PredictionOut(fields.Answer):
    label: str = Field(description="Predicted class.")
    probabilities: dict[str, float] | None = Field(description="Probability of each class; null for smoothed_hinge.")


class LabelsOut(fields.Answer):
    labels: list[str] = Field(description="Labels whose probability is above 1/2.")
    probabilities: dict[str, float] = Field(description="Probability of each label.")


class ValueOut(fields.Answer):
    value: float = Field(description="Predicted value in the target's units and within its range.")


class PredictionsOut(fields.Answer):
    version: int = Field(description="Number of the version that made the predictions.")
    predictions: list[PredictionOut] | list[LabelsOut] | list[ValueOut] = Field(
        description="One prediction per record: a class, a set of labels, or a value."
    )


PREDICT = models.MODELS.of_one(
    "predict",
    "POST",
    "/{model_id}/predictions",
    scope=sets.Scope.MODELS_READ,
    takes=PredictionsIn,
    gives=PredictionsOut,
    repeat="idempotent",
    problems=(
        problems.ModelNotLive,
        problems.ModelRetired,
        problems.ModelHeld,
        problems.InputInvalid,
        TangentServedElsewhere,
    ),
    does="Make predictions with the live version. Records are objects keyed by column name, or vectors if the dataset "
    "has no schema.",
)
