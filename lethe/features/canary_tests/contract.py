"""Operation that requests a canary test of a model."""

from lethe.contract import models, operation, problems, sets

_TESTS = operation.ResourceOperations("Models", "/v1/models/{model_id}/audit", problems.ModelUnknown)

ASK = _TESTS.of_one(
    "audit",
    "POST",
    scope=sets.Scope.MODELS_WRITE,
    gives=models.ModelOut,
    status=202,
    repeat="keyed",
    problems=(problems.ModelNotLive, problems.ModelRetired, problems.PreconditionFailed),
    does="Run a canary test: train on many canaries with the model's mechanism and forget them, separately from the "
    "model's data and versions. The result is stored in a run of kind `audit` and as the model's last canary test.",
)
