"""Operations on the quality gates of existing models."""

from pydantic import Field

from lethe.contract import fields, models, problems, sets


class RemedyKind(sets.ClosedSet):
    """Change that can improve a model's quality."""

    RELEARN = "relearn"
    """Retrain the same model from scratch."""
    MORE_SLOTS = "more_slots"
    L2 = "l2"


class ModelChangeIn(fields.Body):
    model_config = fields.example(quality={"metric": "auc", "threshold": 0.8, "on_breach": "hold"})

    quality: models.QualityIn = Field(description="New quality gate of the model, replacing any existing one.")


class RemedyOut(fields.Answer):
    kind: RemedyKind = Field(
        description="relearn: retrain the same model from scratch; more_slots: train a new model on a dataset with "
        "`num_slots` slots; l2: train a new model with regularisation `l2`."
    )
    num_slots: int = Field(description="Number of slots in the dataset with this remedy.")
    l2: float = Field(description="Strength of the L2 regularisation with this remedy.")
    score_noise: float = Field(description="Upper bound on the standard deviation of the noise in a row's score.")
    learn_passes: float = Field(description="Number of passes over the rows needed for training.")
    request_passes: float = Field(description="Number of passes over the rows needed for the first request.")
    reason: str = Field(description="Explanation of why the remedy may help.")


class RemediesOut(fields.Answer):
    model_id: str = Field(description="ID of the model.")
    score_noise: float = Field(
        description="Upper bound on the standard deviation of the noise in a row's score, for the current model."
    )
    noise_is_felt: bool = Field(description="True if the noise costs accuracy; false if l2 or a lack of rows does.")
    remedies: list[RemedyOut] = Field(description="Remedies derived only from public numbers, cheapest to train first.")


UPDATE = models.MODELS.of_one(
    "update_model",
    "PATCH",
    "/{model_id}",
    scope=sets.Scope.MODELS_WRITE,
    takes=ModelChangeIn,
    gives=models.ModelOut,
    repeat="idempotent",
    problems=(problems.ModelRetired, problems.PreconditionFailed),
    does="Set or replace a model's quality gate and check its live version against it immediately.",
)
REMOVE_GATE = models.MODELS.of_one(
    "remove_gate",
    "DELETE",
    "/{model_id}/gate",
    scope=sets.Scope.MODELS_WRITE,
    gives=models.ModelOut,
    repeat="idempotent",
    problems=(problems.ModelRetired,),
    does="Remove a model's quality gate. If its live version was held back, it is now served.",
)
RELEASE = models.MODELS.of_two(
    "release_version",
    "POST",
    "/{model_id}/versions/{number}/release",
    scope=sets.Scope.MODELS_WRITE,
    gives=models.ModelOut,
    repeat="idempotent",
    problems=(problems.VersionUnknown, problems.WeightsDestroyed),
    does="Serve the live version even though it fails the quality gate. The next version is checked again.",
)
REMEDIES = models.MODELS.of_one(
    "list_remedies",
    "GET",
    "/{model_id}/remedies",
    scope=sets.Scope.MODELS_READ,
    gives=RemediesOut,
    problems=(problems.ModelRetired,),
    does="List remedies that could raise a model's quality, with the cost of each, derived only from public numbers.",
)
