"""Models: how each is trained and evaluated, the settings behind its guarantees, and its versions."""

import datetime
from typing import Annotated, Any, Literal

from pydantic import Field, FiniteFloat, Strict

from lethe.contract import certificates, operation, problems, runs, sets
from lethe.contract.fields import WHOLE, Answer, Body, Delta, Name, PageOut, Paging, Positive, example, optional


class LinearisationOut(Answer):
    """Weights in which a tangent model is linear, and how each row's Jacobian with respect to them is scaled."""

    layers: list[str] = Field(description="Names of the network's weights that the model updates.")
    rank: int = Field(description="Rank of each weight's trained update; 0 if the full weight is trained.")
    seed: int = Field(description="Seed of the fixed factors of low-rank updates; not used if rank is 0.")
    least_norm: float = Field(description="Lower bound on the norm by which a row's Jacobian is divided.")
    offset: bool = Field(description="True if the network's own scores are added to the model's.")


class PublicNetworkOut(Answer):
    """Public network on which a model is based. The guarantees do not cover the network's own training data."""

    sha256: str = Field(description="SHA-256 (hex) of the ONNX file.")
    licence: str = Field(description="Licence of the network.")
    opset: int = Field(description="Version of the ONNX operator set.")
    dp_ledger: str | None = Field(description="Location of the network's differential-privacy ledger; null if none.")
    linearisation: LinearisationOut | None = Field(description="Linearised weights; null if not a tangent model.")


def _unless_none(description: str) -> Any:
    """Return a field that responses omit if it is None, such as a constant that only the langevin mechanism has."""
    return Field(default=None, description=description, exclude_if=lambda value: value is None)


class MechanismOut(Answer):
    objective: str = Field(description="Objective that the model minimises.")
    num_slots: int = Field(description="Number of slots in the dataset; public and constant.")
    num_classes: int = Field(description="Number of classes or labels; 1 for a numeric target.")
    loss_width: float | None = _unless_none("Width of the loss; absent if the objective has none.")
    network: PublicNetworkOut | None = _unless_none(
        "Public network that computes the features or that the tangent model linearises; absent if no network is used."
    )
    second_moment: float | None = _unless_none(
        "Stated bound on the largest eigenvalue of each batch's second moment; absent if none was stated."
    )
    class_weights: list[float] | None = _unless_none(
        "Weights of the classes' losses, in class order, the largest being 1; absent if none were stated."
    )
    weight_bound: float | None = _unless_none(
        "Public upper bound on row weights; a row's loss is scaled by weight / bound. Absent if rows have no weights."
    )
    l2: float = Field(description="Strength of the L2 regularisation.")
    strong_convexity: float | None = _unless_none("Strong convexity m of the objective (l2); absent if not used.")
    smoothness: float | None = _unless_none("Smoothness L of the objective; absent if the method does not use it.")
    gradient_bound: float | None = _unless_none("Bound M on the gradient norm of a record's loss; absent if not used.")
    step_size: float | None = _unless_none("Step size eta before the cool-down; absent if not used.")
    contraction: float | None = _unless_none("Lipschitz constant c < 1 of a step without noise; absent if not used.")
    noise_scale: float = Field(description="Noise scale sigma.")
    step_variance: float | None = _unless_none("Noise variance per step and coordinate: 2 step_size noise_scale^2.")
    radius: float | None = _unless_none("Radius R of the ball onto which parameters are projected; absent if not used.")
    grid: float = Field(description="Spacing g of the grid to which parameters may be rounded; 0 for no grid.")
    num_parameters: int = Field(description="Number of trained parameters.")
    learn_steps: int = Field(description="Number of steps for training from scratch.")
    batch_size: int = Field(description="Minimum number of slots per batch.")
    num_batches: int = Field(description="Number of batches, which are read in cyclic order.")
    cool_down: int | None = _unless_none("Number of final steps of each run over which the step size decreases.")
    settings: dict[str, Any] | None = _unless_none(
        "Settings specific to the model's method, keyed by name; absent for langevin."
    )


class QualityIn(Body):
    model_config = example(metric="auc", threshold=0.8, on_breach="hold")

    metric: Annotated[sets.Metric, Strict(False)] = Field(description="Metric that the quality gate checks.")
    threshold: FiniteFloat = Field(
        description="Minimum value that passes; for log_loss, calibration_error, mean_absolute_error and "
        "mean_poisson_deviance, the maximum."
    )
    on_breach: Annotated[sets.OnBreach, Strict(False)] = Field(
        default=sets.OnBreach.PUBLISH_DEGRADED,
        description="What happens to a version that fails the gate. publish_degraded: it is served, marked as "
        "degraded; hold: it is not served until it is released. People are forgotten in both cases.",
    )


class QualityOut(Answer):
    metric: sets.Metric = Field(description="Metric that the quality gate checks.")
    threshold: float = Field(description="Minimum value that passes, or the maximum for metrics where lower is better.")
    on_breach: sets.OnBreach = Field(description="What happens to a version that fails the gate.")
    value: float | None = Field(description="Live version's value; null if not measured, in which case the gate fails.")
    is_met: bool | None = Field(description="True if the live version passes the gate; null before the first version.")
    held: bool = Field(description="True if the live version fails the gate and is therefore not served.")


Objective = Literal[
    "logistic_regression",
    "multilabel_logistic_regression",
    "smoothed_hinge",
    "huber_regression",
    "least_squares",
    "poisson_regression",
]


class TargetIn(Body):
    epsilon: Positive = Field(default=1.0, description="Target value for the epsilon of `unlearning`, in nats.")
    delta: Delta | None = optional("Target value for delta. Default: num_slots^-1.1.")


class BatchingIn(Body):
    max_requests: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = optional(
        "Number of waiting requests that triggers a run. Default: only max_wait_seconds triggers runs."
    )
    max_wait_seconds: Annotated[int, Field(ge=0, le=30 * 86400)] = Field(
        default=0, description="Maximum seconds a request waits to share a run, but only until a week before it is due."
    )


class AuditIn(Body):
    lanes: Annotated[int, Field(ge=0, le=4096, multiple_of=2)] = Field(
        default=256, description="Number of coordinates tested in every run, half with a canary; 0 disables tests."
    )
    chains: Annotated[int, Field(ge=1, le=64)] = Field(
        default=16, description="Factor by which `lanes` is multiplied when a canary test is requested."
    )


class TangentIn(Body):
    """Weights of a public network that the model updates, to first order."""

    network_id: str = Field(description="ID of the public network. Its inputs must be the features of the dataset.")
    layers: Annotated[list[str], Field(min_length=1, max_length=10_000, fail_fast=True)] = Field(
        description="Names of the network's weights that the model updates."
    )
    rank: Annotated[int, Field(ge=0, le=2**31 - 1)] = Field(
        default=0,
        description="Rank of each weight's trained update: one factor is trained, the other drawn at random. 0: train "
        "the full weight.",
    )
    seed: Annotated[int, Field(ge=0, le=2**63 - 1)] = Field(default=0, description="Seed for drawing random factors.")
    least_norm: Positive = Field(default=1e-6, description="Minimum norm by which the Jacobian of a row is divided.")
    offset: bool = Field(default=True, description="True to add the network's own scores to the model's.")


class ModelIn(Body):
    model_config = example(name="churn", dataset_id="ds_6f1c", l2=0.01, target={"epsilon": 1.0})

    name: Name = Field(description="Name of the model.")
    dataset_id: str = Field(description="ID of the dataset to train on.")
    objective: Objective | None = optional(
        "Objective to minimise. Default: logistic_regression for classes, multilabel_logistic_regression for records "
        "with several labels, huber_regression for a numeric target, poisson_regression for counts."
    )
    method: Annotated[str, Field(pattern="^[a-z_]{1,40}$"), WHOLE] = Field(
        default="langevin",
        description="Method of training and forgetting. langevin: noisy gradient steps from the live version; "
        "objective_perturbation: every version is trained from scratch with new noise. Refused if not installed.",
    )
    mechanism: Literal["langevin"] | None = optional("Earlier name of the field `method`.")
    loss_width: Positive | None = optional(
        "Width of the loss. huber_regression: residual at which the loss becomes linear, for a target scaled to -1 to "
        "1. smoothed_hinge: width of the smoothed corner. poisson_regression: score at which the predicted rate "
        "reaches its bound, the largest count; a score of 0 predicts exp(-width) times that bound."
    )
    l2: Positive | None = optional("Strength of the L2 regularisation. Default: derived from num_slots and target.")
    noise_scale: Positive | None = optional("Noise scale sigma. Default: derived from the target.")
    step_size: Positive | None = optional("Step size eta. Default: 2 / (smoothness + l2).")
    radius: Positive | None = optional("Radius of the parameter ball. Default: derived from l2 and the loss.")
    learn_steps: Annotated[int, Field(ge=1)] | None = optional(
        "Steps for training from scratch. Default: enough to reach 1e-6 of the initial distance to the minimiser."
    )
    batch_size: Annotated[int, Field(ge=1)] | None = optional("Minimum number of rows that a step reads.")
    cool_down: Annotated[int, Field(ge=1)] | None = optional(
        "Number of final steps of a run over which the step size decreases. Default: at most two passes."
    )
    second_moment: Annotated[float, Field(gt=0, le=1)] | None = optional(
        "Public bound on the largest eigenvalue of the second moment of each batch's rows. Training then takes about "
        "that fraction of the usual steps, but fails if a batch exceeds the bound, and no more rows can be added."
    )
    class_weights: dict[str, Positive] | None = optional(
        "Loss weights by class name; 1 for classes not named. All are divided by the largest weight, so that no row "
        "counts more than without weights."
    )
    target: TargetIn = Field(default_factory=TargetIn, description="Privacy target that forgetting must meet.")
    tangent: TangentIn | None = optional("Network weights to update. Default: train a linear model instead.")
    evaluation_dataset_id: str | None = optional("ID of the dataset to measure versions on. Default: no measurements.")
    batching: BatchingIn = Field(default_factory=BatchingIn, description="Rules for combining requests into one run.")
    audit: AuditIn = Field(default_factory=AuditIn, description="Canary test applied to every run.")
    quality: QualityIn | None = optional("Quality gate for every version. Default: no gate.")


class ProgressOut(Answer):
    run_id: str = Field(description="ID of the run.")
    steps_done: int = Field(description="Number of steps completed so far.")
    steps_total: int = Field(description="Number of steps planned.")
    seconds_left: float | None = Field(description="Estimated seconds until the end of the run; null if unknown.")
    expected_at: datetime.datetime | None = Field(description="Estimated end of the run; null if unknown.")


class BatchingOut(Answer):
    max_requests: int | None = Field(description="Number of waiting requests that triggers a run; null if not set.")
    max_wait_seconds: int = Field(description="Maximum seconds that a request waits to share a run.")


class AuditingOut(Answer):
    lanes: int = Field(description="Number of coordinates tested in every run, half with a canary; 0 disables tests.")
    chains: int = Field(description="Factor by which `lanes` is multiplied when a canary test is requested.")
    asked_at: datetime.datetime | None = Field(description="Time at which a pending test was requested; null if none.")
    last: runs.AuditOut | None = Field(description="Result of the most recent canary test; null if none has been run.")
    last_run_id: str | None = Field(description="ID of the most recently tested run; null if no run has been tested.")


class WaitOut(Answer):
    """Requests waiting for the same reason."""

    reason: sets.WaitReason = Field(description="Reason why the requests are waiting.")
    requests: int = Field(description="Number of requests that are waiting for this reason.")
    until: datetime.datetime | None = Field(description="Latest time at which the wait ends; null if unknown.")


class WaitingOut(Answer):
    """People with open requests that the live version has not forgotten yet."""

    people: int = Field(description="Number of people whose requests are waiting.")
    requests: int = Field(description="Number of requests that are waiting.")
    first_due_at: datetime.datetime | None = Field(description="Earliest deadline of a waiting request; null if none.")
    reasons: list[WaitOut] = Field(description="Number of requests by reason for waiting, most frequent first.")


class ModelOut(Answer):
    id: str = Field(description="ID of the model.")
    name: str = Field(description="Name of the model.")
    dataset_id: str = Field(description="ID of the dataset that the model is trained on.")
    evaluation_dataset_id: str | None = Field(description="ID of the dataset to measure versions on; null if none.")
    objective: str = Field(description="Objective that the model minimises.")
    method: str = Field(description="Name of the method used to train the model and to forget records.")
    status: sets.ModelStatus = Field(
        description="Status of the model: learning, live, unlearning, relearning, testing (a canary test or rehearsal "
        "is in progress), degraded, held, failed, cancelled or retired."
    )
    live_version: int | None = Field(description="Number of the live version; null if there is none.")
    progress: ProgressOut | None = Field(description="Progress of the current run; null if no run is in progress.")
    mechanism: MechanismOut = Field(description="Training settings and constants, fixed when the model was created.")
    target: certificates.TargetOut = Field(description="Privacy target that forgetting must meet.")
    batching: BatchingOut = Field(description="Rules for combining requests into one run.")
    audit: AuditingOut = Field(description="Canary test of the model's runs and its latest result.")
    guarantee: list[certificates.GuaranteeOut] | None = Field(
        description="Guarantees of the live version: `unlearning` for erased rows, except rows of people in `waiting`, "
        "and `release` for a remaining record; null before the first version."
    )
    waiting: WaitingOut | None = Field(
        description="People with open requests whose rows have not been erased yet; null without a live version, and "
        "for callers without accounting:read."
    )
    metrics: dict[str, Any] = Field(
        description="Metrics on the evaluation dataset (docs/quality.md); `evaluated_on` is its number of rows."
    )
    quality: QualityOut | None = Field(description="Quality gate and its result; null if the model has no gate.")
    error_code: str | None = Field(description="Error code of the last failure; null if none since the last success.")
    created_at: datetime.datetime = Field(description="Time at which the model was created.")
    retired_at: datetime.datetime | None = Field(description="Time at which the model was retired; null until then.")
    destroyed_at: datetime.datetime | None = Field(description="Time when the weights were destroyed; null until then.")


class VersionOut(Answer):
    model_id: str = Field(description="ID of the model.")
    number: int = Field(description="Number of the version, from 1.")
    status: sets.VersionStatus = Field(description="Status of the version: live, retired or destroyed.")
    degraded: bool = Field(description="True if the version failed the quality gate when it was last checked.")
    held: bool = Field(description="True if the version is not served because it failed the gate.")
    run_id: str = Field(description="ID of the run that produced the version.")
    weights_sha256: str = Field(description="SHA-256 (hex) of the weights file.")
    metrics: dict[str, Any] = Field(description="Metrics of the version on the evaluation dataset (docs/quality.md).")
    published_at: datetime.datetime = Field(description="Time at which the version was published.")
    destroyed_at: datetime.datetime | None = Field(description="Time when the weights were destroyed; null until then.")


class ModelsQuery(Paging):
    name: Name | None = optional("Only models whose name contains this text, ignoring case.")
    dataset_id: str | None = optional("Only models that are trained on this dataset.")
    order: sets.ModelOrder = Field(
        default=sets.ModelOrder.NEWEST,
        description="Sort order. risk: models in service only, held ones first, then by earliest deadline of waiting "
        "requests, highest epsilon relative to the target, and most failed runs. Needs accounting:read.",
    )
    danger: sets.ModelDanger | None = optional(
        "Only models in service with this risk, as counted in the overview. waiting: people in the training data are "
        "waiting to be forgotten; failed: training failed; audit_refused: the last canary test failed; degraded, held: "
        "the quality gate failed. Needs accounting:read."
    )


MODELS = operation.ResourceOperations("Models", "/v1/models", problems.ModelUnknown)

CREATE = MODELS.operation(
    "create_model",
    "POST",
    scope=sets.Scope.MODELS_WRITE,
    takes=ModelIn,
    gives=ModelOut,
    status=202,
    repeat="keyed",
    problems=(
        problems.DatasetUnknown,
        problems.DatasetRetired,
        problems.NetworkUnknown,
        problems.AdaptiveBudgetSpent,
        problems.PreconditionFailed,
        problems.TargetUnreachable,
        problems.TargetTooWeak,
        problems.EvaluationOverlaps,
    ),
    does="Create a model, fix its mechanism, and train it in the background; `GET /models/{id}` shows the progress.",
)
LIST = MODELS.operation(
    "list_models",
    "GET",
    scope=sets.Scope.MODELS_READ,
    query=ModelsQuery,
    gives=PageOut[ModelOut],
    does="List all models, newest first, or only the models in service, most urgent first.",
)
GET = MODELS.of_one(
    "get_model",
    "GET",
    "/{model_id}",
    scope=sets.Scope.MODELS_READ,
    gives=ModelOut,
    does="Return a model's progress, guarantees and mechanism.",
)
RELEARN = MODELS.of_one(
    "relearn",
    "POST",
    "/{model_id}/relearn",
    scope=sets.Scope.MODELS_WRITE,
    gives=ModelOut,
    status=202,
    repeat="keyed",
    problems=(problems.ModelRetired,),
    does="Retrain a model from scratch on the current data. Until then, the live version stays in service.\n\nDo not "
    "use this to redraw the noise: certificates do not cover versions that are selected by their results.",
)
RETIRE = MODELS.of_one(
    "retire_model",
    "DELETE",
    "/{model_id}",
    scope=sets.Scope.MODELS_WRITE,
    gives=ModelOut,
    repeat="idempotent",
    problems=(problems.ModelInUse,),
    does="Retire a model permanently and destroy its weights. Returns 409 while requests are waiting for it. Its "
    "versions, exports, ledger and certificates stay on record. Repeating the call is a no-op.",
)
VERSIONS = MODELS.of_one(
    "list_versions",
    "GET",
    "/{model_id}/versions",
    scope=sets.Scope.MODELS_READ,
    query=Paging,
    gives=PageOut[VersionOut],
    does="List all versions of a model, newest first.",
)
VERSION = MODELS.of_two(
    "get_version",
    "GET",
    "/{model_id}/versions/{number}",
    scope=sets.Scope.MODELS_READ,
    gives=VersionOut,
    problems=(problems.VersionUnknown,),
    does="Return a version's status and the SHA-256 of its weights.",
)
WEIGHTS = MODELS.of_two(
    "get_weights",
    "GET",
    "/{model_id}/versions/{number}/weights",
    scope=sets.Scope.MODELS_READ,
    gives=bytes,
    problems=(problems.VersionUnknown, problems.WeightsDestroyed, problems.ModelHeld),
    does="Return the live version as safetensors: one tensor `parameters` with one row per class or label (one row for "
    "two classes or a target), bias last. The export is recorded, because the copy cannot be unlearned.",
)
