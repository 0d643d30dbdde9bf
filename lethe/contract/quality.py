"""Quality gates: what a model's versions must reach on evaluation data, and what becomes of one that does not."""

from typing import Annotated

from pydantic import Field, FiniteFloat, Strict

from lethe.contract.fields import Answer, Body, example
from lethe.contract.sets import Metric, OnBreach, RemedyKind


class QualityIn(Body):
    model_config = example(metric="auc", threshold=0.8, on_breach="hold")

    metric: Annotated[Metric, Strict(False)]
    threshold: FiniteFloat = Field(
        description="The least that is good enough; of log_loss, calibration_error, "
        "mean_absolute_error and mean_poisson_deviance, the most."
    )
    on_breach: Annotated[OnBreach, Strict(False)] = Field(
        default=OnBreach.PUBLISH_DEGRADED,
        description="publish_degraded: serve the version, and say so; hold: keep it from serving until it is released. "
        "People are forgotten either way.",
    )


class QualityOut(Answer):
    metric: Metric
    threshold: float
    on_breach: OnBreach
    value: float | None = Field(description="Of the live version; null: not measured, which misses the gate.")
    is_met: bool | None = Field(description="null: there is no version yet.")
    held: bool = Field(description="The live version misses the gate, and is kept from serving.")


class RemedyOut(Answer):
    kind: RemedyKind = Field(
        description="relearn: the same model from scratch; more_slots, l2: a new model, on a dataset with that many "
        "slots, or with that regularisation."
    )
    num_slots: int
    l2: float
    score_noise: float = Field(description="Standard deviation of the noise in the score of a row, at most.")
    learn_passes: float = Field(description="Passes over the rows that learning takes.")
    request_passes: float = Field(description="Passes that the first person's request takes then.")
    reason: str


class RemediesOut(Answer):
    model_id: str
    score_noise: float = Field(description="As in each remedy, of the model as it is.")
    noise_is_felt: bool = Field(description="So much noise costs accuracy; if not, regularisation or the rows do.")
    remedies: list[RemedyOut] = Field(description="The cheapest to learn first; from public numbers alone.")
