"""Models: how each learns and is judged, the settings behind its guarantees, and its versions."""

import datetime
from typing import Annotated, Any, Literal

from pydantic import Field, FiniteFloat, Strict

from lethe.contract import certificates, operation, problems, runs
from lethe.contract.fields import WHOLE, Answer, Body, Delta, Name, PageOut, Paging, Positive, example, optional
from lethe.contract.sets import Metric, ModelDanger, ModelOrder, ModelStatus, OnBreach, Scope, VersionStatus, WaitReason


class LinearisationOut(Answer):
    """Weights in which a tangent model is linear, and the scaling of each row's Jacobian in them."""

    layers: list[str] = Field(description="Names of the network weights that the model updates.")
    rank: int = Field(description="Rank of the learned update of each weight; 0: the full weight is learned.")
    seed: int = Field(description="Seed of the fixed factors of low-rank updates; unused if rank is 0.")
    least_norm: float = Field(description="Smallest norm by which the Jacobian of a row is divided.")
    offset: bool = Field(description="True if the scores of the network itself are added.")


class PublicNetworkOut(Answer):
    """Public network on which a model is based. The guarantees do not cover what the network itself learned."""

    sha256: str = Field(description="SHA-256 (hex) of the ONNX file.")
    licence: str = Field(description="Licence of the network.")
    opset: int = Field(description="Version of the ONNX operator set.")
    dp_ledger: str | None = Field(description="Location of its own differential-privacy ledger; null if none.")
    linearisation: LinearisationOut | None = Field(description="Linearised weights (tangent model); null for encoders.")


def _unless_none(description: str) -> Any:
    """Return a field that answers leave out if it is None, such as a constant that only langevin has."""
    return Field(default=None, description=description, exclude_if=lambda value: value is None)


class MechanismOut(Answer):
    objective: str = Field(description="Objective that the model minimises.")
    num_slots: int = Field(description="Number of slots of the dataset: public and fixed.")
    num_classes: int = Field(description="Number of classes or labels; 1 for a target.")
    loss_width: float | None = _unless_none("Width of the loss, for objectives that have one.")
    network: PublicNetworkOut | None = _unless_none(
        "Public network whose features the rows are or whose tangent the model is; absent without one."
    )
    second_moment: float | None = _unless_none(
        "Stated bound on the largest eigenvalue of each batch's second moment; absent without one."
    )
    class_weights: list[float] | None = _unless_none(
        "Weights of the classes' losses, in the order of the classes, the largest 1; absent if none were stated."
    )
    weight_bound: float | None = _unless_none(
        "Public upper bound on row weights; a row's loss is scaled by weight / bound. Absent without weights."
    )
    l2: float = Field(description="L2 regularisation.")
    strong_convexity: float | None = _unless_none("Strong convexity m of the objective: l2.")
    smoothness: float | None = _unless_none("Smoothness L of the objective.")
    gradient_bound: float | None = _unless_none("Bound M on the gradient norm of any record's loss.")
    step_size: float | None = _unless_none("Step size eta before the cool-down.")
    contraction: float | None = _unless_none("Lipschitz constant c of a noiseless step, below 1.")
    noise_scale: float = Field(description="Noise scale sigma.")
    step_variance: float | None = _unless_none("Noise variance per coordinate and step: 2 step_size noise_scale^2.")
    radius: float | None = _unless_none("Radius R of the ball to which parameters are projected.")
    grid: float = Field(description="Grid g to which parameters may be rounded; 0 for none.")
    num_parameters: int = Field(description="Number of parameters.")
    learn_steps: int = Field(description="Number of steps of learning from scratch.")
    batch_size: int = Field(description="Minimum number of slots in a batch.")
    num_batches: int = Field(description="Number of batches, read in turn.")
    cool_down: int | None = _unless_none("Number of last steps of each run over which the step size falls.")
    settings: dict[str, Any] | None = _unless_none(
        "Settings that only the model's method has, by name; absent for langevin."
    )


class QualityIn(Body):
    model_config = example(metric="auc", threshold=0.8, on_breach="hold")

    metric: Annotated[Metric, Strict(False)] = Field(description="Metric that the gate checks.")
    threshold: FiniteFloat = Field(
        description="Smallest value that passes; for log_loss, calibration_error, mean_absolute_error and "
        "mean_poisson_deviance, the largest."
    )
    on_breach: Annotated[OnBreach, Strict(False)] = Field(
        default=OnBreach.PUBLISH_DEGRADED,
        description="Treatment of a version that misses the gate. publish_degraded: serve it, marked as degraded; "
        "hold: keep it from serving until it is released. People are forgotten either way.",
    )


class QualityOut(Answer):
    metric: Metric = Field(description="Metric that the gate checks.")
    threshold: float = Field(description="Smallest value that passes, or the largest for metrics where less is better.")
    on_breach: OnBreach = Field(description="Treatment of a version that misses the gate.")
    value: float | None = Field(description="Value of the live version; null if not measured, which misses the gate.")
    is_met: bool | None = Field(description="True if the live version passes; null before the first version.")
    held: bool = Field(description="True if the live version misses the gate and is kept from serving.")


Objective = Literal[
    "logistic_regression",
    "multilabel_logistic_regression",
    "smoothed_hinge",
    "huber_regression",
    "least_squares",
    "poisson_regression",
]


class TargetIn(Body):
    epsilon: Positive = Field(default=1.0, description="Target for the epsilon of `unlearning`, in nats.")
    delta: Delta | None = optional("Delta of the target. Default: num_slots^-1.1.")


class BatchingIn(Body):
    max_requests: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = optional(
        "Number of waiting requests that starts a run. Default: only max_wait_seconds starts it."
    )
    max_wait_seconds: Annotated[int, Field(ge=0, le=30 * 86400)] = Field(
        default=0, description="Maximum seconds for which a request waits for others; ends a week before its deadline."
    )


class AuditIn(Body):
    lanes: Annotated[int, Field(ge=0, le=4096, multiple_of=2)] = Field(
        default=256, description="Coordinates, half of them with a canary, that take part in every run; 0: no test."
    )
    chains: Annotated[int, Field(ge=1, le=64)] = Field(
        default=16, description="Number by which `lanes` is multiplied for a requested canary test."
    )


class TangentIn(Body):
    """Weights of a public network that the model updates, to first order."""

    network_id: str = Field(description="ID of a network whose inputs are the features of the dataset.")
    layers: Annotated[list[str], Field(min_length=1, max_length=10_000, fail_fast=True)] = Field(
        description="Names of the network weights that the model updates."
    )
    rank: Annotated[int, Field(ge=0, le=2**31 - 1)] = Field(
        default=0,
        description="Rank of the learned update of each weight, its other factor being drawn at random; 0: learn the "
        "full weight.",
    )
    seed: Annotated[int, Field(ge=0, le=2**63 - 1)] = Field(default=0, description="Seed of the drawn factors.")
    least_norm: Positive = Field(default=1e-6, description="Smallest norm by which the Jacobian of a row is divided.")
    offset: bool = Field(default=True, description="Add the scores of the network itself.")


class ModelIn(Body):
    model_config = example(name="churn", dataset_id="ds_6f1c", l2=0.01, target={"epsilon": 1.0})

    name: Name = Field(description="Name of the model.")
    dataset_id: str = Field(description="ID of the dataset to learn from.")
    objective: Objective | None = optional(
        "Objective to minimise. Default: logistic_regression for classes, multilabel_logistic_regression "
        "for records with several labels, huber_regression for a target, poisson_regression for counts."
    )
    method: Annotated[str, Field(pattern="^[a-z_]{1,40}$"), WHOLE] = Field(
        default="langevin",
        description="How the model learns and forgets. langevin: noisy gradient steps from the live version; "
        "objective_perturbation: each version is learned from scratch with new noise. Refused if not installed.",
    )
    mechanism: Literal["langevin"] | None = optional("Earlier name of `method` langevin.")
    loss_width: Positive | None = optional(
        "Width of the loss. huber_regression: residual at which the loss becomes linear, for a target scaled to -1 to "
        "1. smoothed_hinge: width of its bend. poisson_regression: score at which the rate reaches its bound, the "
        "largest count; at a score of 0 the rate is exp(-width) of that."
    )
    l2: Positive | None = optional("L2 regularisation. Default: by number of slots and target.")
    noise_scale: Positive | None = optional("Noise scale sigma. Default: by the target.")
    step_size: Positive | None = optional("Step size eta. Default: 2 / (smoothness + l2).")
    radius: Positive | None = optional("Radius of the parameter ball. Default: derived from l2 and loss.")
    learn_steps: Annotated[int, Field(ge=1)] | None = optional(
        "Steps of learning from scratch. Default: until at most 1e-6 of the initial distance is left."
    )
    batch_size: Annotated[int, Field(ge=1)] | None = optional("Minimum number of rows that a step reads.")
    cool_down: Annotated[int, Field(ge=1)] | None = optional(
        "Number of last steps of a run over which the step size falls. Default: at most two passes."
    )
    second_moment: Annotated[float, Field(gt=0, le=1)] | None = optional(
        "Public bound on the largest eigenvalue of the second moment of each batch's rows. Learning takes "
        "about that share of the steps, fails if a batch exceeds it, and rows can no longer be added."
    )
    class_weights: dict[str, Positive] | None = optional(
        "Weights of the losses of rows by class name, 1 for other classes. All are divided by the "
        "largest, so that no row counts more than without weights."
    )
    target: TargetIn = Field(default_factory=TargetIn, description="Target that forgetting reaches.")
    tangent: TangentIn | None = optional("Network weights to update. Default: a linear model.")
    evaluation_dataset_id: str | None = optional("ID of the dataset on which versions are measured.")
    batching: BatchingIn = Field(default_factory=BatchingIn, description="Rules by which requests wait for each other.")
    audit: AuditIn = Field(default_factory=AuditIn, description="Canary test of every run.")
    quality: QualityIn | None = optional("Quality gate of every version. Default: none.")


class ProgressOut(Answer):
    run_id: str = Field(description="ID of the run.")
    steps_done: int = Field(description="Number of steps done so far.")
    steps_total: int = Field(description="Number of steps planned.")
    seconds_left: float | None = Field(description="Estimated seconds left; null if unknown.")
    expected_at: datetime.datetime | None = Field(description="Estimated time at which the run ends; null if unknown.")


class BatchingOut(Answer):
    max_requests: int | None = Field(description="Number of waiting requests that starts a run; null for no limit.")
    max_wait_seconds: int = Field(description="Seconds that a request may wait for others.")


class AuditingOut(Answer):
    lanes: int = Field(description="Coordinates, half of them with a canary, in every run; 0: no test.")
    chains: int = Field(description="Number by which `lanes` is multiplied for a requested canary test.")
    asked_at: datetime.datetime | None = Field(description="Time of the pending request for a canary test, or null.")
    last: runs.AuditOut | None = Field(description="Canary test of the last tested run; null if none.")
    last_run_id: str | None = Field(description="ID of the last tested run; null if none.")


class WaitOut(Answer):
    """Requests that wait for the same reason."""

    reason: WaitReason = Field(description="Reason why the requests wait.")
    requests: int = Field(description="Number of requests that wait for this reason.")
    until: datetime.datetime | None = Field(description="Latest time at which the wait ends; null if unknown.")


class WaitingOut(Answer):
    """People with open requests that the live version has not forgotten yet."""

    people: int = Field(description="Number of people who wait.")
    requests: int = Field(description="Number of requests that wait.")
    first_due_at: datetime.datetime | None = Field(description="Earliest deadline of the requests; null if none waits.")
    reasons: list[WaitOut] = Field(description="Reasons for waiting, most frequent first.")


class ModelOut(Answer):
    id: str = Field(description="ID of the model.")
    name: str = Field(description="Name of the model.")
    dataset_id: str = Field(description="ID of the dataset that the model learns from.")
    evaluation_dataset_id: str | None = Field(description="ID of the dataset for measuring versions; null if none.")
    objective: str = Field(description="Objective that the model minimises.")
    method: str = Field(description="Name of the method by which the model learns and forgets.")
    status: ModelStatus = Field(
        description="Status of the model: learning, live, unlearning, relearning, testing (a canary test or rehearsal "
        "is running), degraded, held, failed, cancelled or retired."
    )
    live_version: int | None = Field(description="Number of the live version; null if none.")
    progress: ProgressOut | None = Field(description="Progress of the current run; null if none.")
    mechanism: MechanismOut = Field(description="Settings and constants of the training, frozen at creation.")
    target: certificates.TargetOut = Field(description="Target that forgetting reaches.")
    batching: BatchingOut = Field(description="Rules by which requests wait for each other.")
    audit: AuditingOut = Field(description="Canary test of its runs, and the last result.")
    guarantee: list[certificates.GuaranteeOut] | None = Field(
        description="`unlearning` of erased rows, which excludes people in `waiting`, and `release` of a record still "
        "present; null before the first version."
    )
    waiting: WaitingOut | None = Field(
        description="People whose rows are not erased yet; null without a live version, or if the key lacks "
        "accounting:read."
    )
    metrics: dict[str, Any] = Field(
        description="Metrics on the evaluation dataset (docs/quality.md); `evaluated_on` is its number of rows."
    )
    quality: QualityOut | None = Field(description="Quality gate and its result; null without a gate.")
    error_code: str | None = Field(description="Error code of the last failure; null if none.")
    created_at: datetime.datetime = Field(description="Time of creation.")
    retired_at: datetime.datetime | None = Field(description="Time of retirement; null while in service.")
    destroyed_at: datetime.datetime | None = Field(description="Time of destruction of the weights; null while held.")


class VersionOut(Answer):
    model_id: str = Field(description="ID of the model.")
    number: int = Field(description="Number of the version, from 1.")
    status: VersionStatus = Field(description="Status of the version: live, retired or destroyed.")
    degraded: bool = Field(description="True if the version missed the quality gate by which it was last judged.")
    held: bool = Field(description="True if the version is kept from serving because it missed the gate.")
    run_id: str = Field(description="ID of the run that made the version.")
    weights_sha256: str = Field(description="SHA-256 (hex) of the file of weights.")
    metrics: dict[str, Any] = Field(description="Metrics on the evaluation dataset, as in the model.")
    published_at: datetime.datetime = Field(description="Time of publication.")
    destroyed_at: datetime.datetime | None = Field(description="Time of destruction of the weights; null while held.")


class ModelsQuery(Paging):
    name: Name | None = optional("Only models whose name contains this text, ignoring case.")
    dataset_id: str | None = optional("Only models that learn from this dataset.")
    order: ModelOrder = Field(
        default=ModelOrder.NEWEST,
        description="Order of the list. risk: models in service only, by the earliest deadline of waiting requests, "
        "then by highest epsilon relative to the target, then by most failed runs. Needs accounting:read.",
    )
    danger: ModelDanger | None = optional(
        "Only models in service with this risk, as the overview counts them. waiting: they carry people who asked to "
        "be forgotten; failed: could not be learned; audit_refused: failed the last canary test; degraded, held: "
        "missed their quality gate. Needs accounting:read."
    )


MODELS = operation.ResourceOperations("Models", "/v1/models", problems.ModelUnknown)

CREATE = MODELS.operation(
    "create_model",
    "POST",
    scope=Scope.MODELS_WRITE,
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
    does="Freeze the model's mechanism and learn it in the background; `GET /models/{id}` shows the progress.",
)
LIST = MODELS.operation(
    "list_models",
    "GET",
    scope=Scope.MODELS_READ,
    query=ModelsQuery,
    gives=PageOut[ModelOut],
    does="List all models, newest first, or the models in service by urgency.",
)
GET = MODELS.of_one(
    "get_model",
    "GET",
    "/{model_id}",
    scope=Scope.MODELS_READ,
    gives=ModelOut,
    does="Return the progress, guarantees and mechanism of a model.",
)
RELEARN = MODELS.of_one(
    "relearn",
    "POST",
    "/{model_id}/relearn",
    scope=Scope.MODELS_WRITE,
    gives=ModelOut,
    status=202,
    repeat="keyed",
    problems=(problems.ModelRetired,),
    does="Relearn from scratch on the current data; the live version stays in service meanwhile.\n\nDo not use this to "
    "redraw the noise: certificates do not cover versions that are selected by their results.",
)
RETIRE = MODELS.of_one(
    "retire_model",
    "DELETE",
    "/{model_id}",
    scope=Scope.MODELS_WRITE,
    gives=ModelOut,
    repeat="idempotent",
    problems=(problems.ModelInUse,),
    does="Retire a model permanently and destroy its weights; 409 while requests wait for it. Its versions, exports, "
    "ledger and certificates stay on record. Repeating the call is a no-op.",
)
VERSIONS = MODELS.of_one(
    "list_versions",
    "GET",
    "/{model_id}/versions",
    scope=Scope.MODELS_READ,
    query=Paging,
    gives=PageOut[VersionOut],
    does="List all versions of a model, newest first.",
)
VERSION = MODELS.of_two(
    "get_version",
    "GET",
    "/{model_id}/versions/{number}",
    scope=Scope.MODELS_READ,
    gives=VersionOut,
    problems=(problems.VersionUnknown,),
    does="Return the status of a version and the SHA-256 of its weights.",
)
WEIGHTS = MODELS.of_two(
    "get_weights",
    "GET",
    "/{model_id}/versions/{number}/weights",
    scope=Scope.MODELS_READ,
    gives=bytes,
    problems=(problems.VersionUnknown, problems.WeightsDestroyed, problems.ModelHeld),
    does="Return the live version as safetensors: one tensor `parameters`, a row per class or label (one row for two "
    "classes or a target), bias last. The export is recorded, because an exported copy is never unlearned.",
)
