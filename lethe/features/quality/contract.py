"""Operations on the quality gates of existing models."""

from pydantic import Field

from lethe.contract import fields, problems
from lethe.contract.models import MODELS, ModelOut, QualityIn
from lethe.contract.sets import ClosedSet, Scope


class RemedyKind(ClosedSet):
    """Change that can raise the quality of a model."""

    RELEARN = "relearn"
    """Learn the same model from scratch."""
    MORE_SLOTS = "more_slots"
    L2 = "l2"


class ModelChangeIn(fields.Body):
    model_config = fields.example(quality={"metric": "auc", "threshold": 0.8, "on_breach": "hold"})

    quality: QualityIn = Field(description="Quality gate of the model, which replaces any existing gate.")


class RemedyOut(fields.Answer):
    kind: RemedyKind = Field(
        description="relearn: the same model from scratch; more_slots, l2: a new model, on a dataset with that many "
        "slots or with that regularisation."
    )
    num_slots: int = Field(description="Number of slots of the dataset.")
    l2: float = Field(description="L2 regularisation.")
    score_noise: float = Field(description="Upper bound on the standard deviation of the noise in a row's score.")
    learn_passes: float = Field(description="Number of passes over the rows to learn.")
    request_passes: float = Field(description="Number of passes to forget the first person.")
    reason: str = Field(description="Explanation of why the remedy may help.")


class RemediesOut(fields.Answer):
    model_id: str = Field(description="ID of the model.")
    score_noise: float = Field(
        description="Upper bound on the standard deviation of the noise in a row's score, for the model as it is."
    )
    noise_is_felt: bool = Field(description="True if this noise costs accuracy; otherwise regularisation or rows do.")
    remedies: list[RemedyOut] = Field(description="Remedies from public numbers alone, cheapest to learn first.")


UPDATE = MODELS.of_one(
    "update_model",
    "PATCH",
    "/{model_id}",
    scope=Scope.MODELS_WRITE,
    takes=ModelChangeIn,
    gives=ModelOut,
    repeat="idempotent",
    problems=(problems.ModelRetired, problems.PreconditionFailed),
    does="Set or replace the quality gate of a model, and judge its live version by it at once.",
)
REMOVE_GATE = MODELS.of_one(
    "remove_gate",
    "DELETE",
    "/{model_id}/gate",
    scope=Scope.MODELS_WRITE,
    gives=ModelOut,
    repeat="idempotent",
    problems=(problems.ModelRetired,),
    does="Remove the quality gate of a model; a version that was held back is served.",
)
RELEASE = MODELS.of_two(
    "release_version",
    "POST",
    "/{model_id}/versions/{number}/release",
    scope=Scope.MODELS_WRITE,
    gives=ModelOut,
    repeat="idempotent",
    problems=(problems.VersionUnknown, problems.WeightsDestroyed),
    does="Serve the live version although it misses the quality gate. The next version is judged separately.",
)
REMEDIES = MODELS.of_one(
    "list_remedies",
    "GET",
    "/{model_id}/remedies",
    scope=Scope.MODELS_READ,
    gives=RemediesOut,
    problems=(problems.ModelRetired,),
    does="List remedies that could raise the quality of a model, each with its cost, from public numbers alone.",
)
