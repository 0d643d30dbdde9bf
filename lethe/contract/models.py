"""Learn, watch, download, predict, relearn."""

import datetime
from typing import Annotated, Any, Literal

from pydantic import Field, FiniteFloat

from lethe.contract.choices import ModelDanger, ModelOrder
from lethe.contract.fields import Answer, Body, Name, PageOut, Paging, Positive, example
from lethe.contract.guarantees import GuaranteeOut, TargetOut
from lethe.contract.mechanisms import MechanismOut
from lethe.contract.operation import Resource, of_one, of_two
from lethe.contract.problems import (
    AdaptiveBudgetSpent,
    DatasetRetired,
    DatasetUnknown,
    EvaluationOverlaps,
    IdempotencyConflict,
    InputInvalid,
    ModelHeld,
    ModelInUse,
    ModelNotLive,
    ModelRetired,
    ModelUnknown,
    NetworkUnknown,
    PreconditionFailed,
    TangentServedElsewhere,
    TargetTooWeak,
    TargetUnreachable,
    VersionUnknown,
    WeightsDestroyed,
)
from lethe.contract.quality import QualityIn, QualityOut
from lethe.contract.runs import AuditOut
from lethe.contract.sets import ModelStatus, Scope, VersionStatus, WaitReason

Objective = Literal[
    "logistic_regression",
    "multilabel_logistic_regression",
    "smoothed_hinge",
    "huber_regression",
    "least_squares",
    "poisson_regression",
]


class TargetIn(Body):
    epsilon: Positive = 1.0
    delta: Annotated[float, Field(gt=0, lt=1)] | None = Field(default=None, description="Default: num_slots^-1.1.")


class BatchingIn(Body):
    max_requests: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = Field(
        default=None, description="Run as soon as so many requests wait. Default: no limit but the time."
    )
    max_wait_seconds: Annotated[int, Field(ge=0, le=30 * 86400)] = Field(
        default=0, description="Let a request wait so long for others, but never into the last week before it is due."
    )


class AuditIn(Body):
    lanes: Annotated[int, Field(ge=0, le=4096, multiple_of=2)] = Field(
        default=256, description="Coordinates with and without a canary that take part in every run; 0: no audit."
    )
    chains: Annotated[int, Field(ge=1, le=64)] = Field(
        default=16, description="How many times as many an audit has that is asked for."
    )


class TangentIn(Body):
    """The weights of a public network that the model moves, to first order."""

    network_id: str = Field(description="A network whose input are the features of the dataset.")
    layers: Annotated[list[str], Field(min_length=1, max_length=10_000)] = Field(
        description="Names of weights that it has."
    )
    rank: Annotated[int, Field(ge=0, le=2**31 - 1)] = Field(
        default=0, description="Learn a factor of so many columns of each weight, with the other drawn; 0: all of it."
    )
    seed: Annotated[int, Field(ge=0, le=2**63 - 1)] = Field(default=0, description="Of the factors that are drawn.")
    least_norm: Positive = Field(default=1e-6, description="No row's Jacobian is divided by less.")
    offset: bool = Field(default=True, description="Add the scores of the network as it is.")


class ModelIn(Body):
    model_config = example(name="churn", dataset_id="ds_6f1c", l2=0.01, target={"epsilon": 1.0})

    name: Name
    dataset_id: str
    objective: Objective | None = Field(
        default=None,
        description="Default: logistic_regression of classes, multilabel_logistic_regression where a record "
        "has several, huber_regression of a target, poisson_regression of counts.",
    )
    mechanism: Literal["langevin"] = "langevin"
    loss_width: Positive | None = Field(
        default=None,
        description="Of huber_regression: the residual from which its loss is a line, where the target's range is from "
        "-1 to 1. Of smoothed_hinge: the width of its bend. Of poisson_regression: the score at which the rate is its "
        "bound, the most that a count may be; at a score of 0 it is exp(-width) of that.",
    )
    l2: Positive | None = None
    noise_scale: Positive | None = None
    step_size: Positive | None = None
    radius: Positive | None = None
    learn_steps: Annotated[int, Field(ge=1)] | None = None
    batch_size: Annotated[int, Field(ge=1)] | None = Field(
        default=None, description="Rows that a step reads, at least."
    )
    cool_down: Annotated[int, Field(ge=1)] | None = Field(
        default=None, description="The last steps of a run, over which the step size falls."
    )
    second_moment: Annotated[float, Field(gt=0, le=1)] | None = Field(
        default=None,
        description="A public bound on the largest eigenvalue of the second moment of each batch's rows: learning "
        "takes that share of the steps, about, is refused where a batch exceeds it, and no rows can be added any more.",
    )
    class_weights: dict[str, Positive] | None = Field(
        default=None,
        description="Of the losses of rows, by the name of their class; 1 for others. All are divided by the largest: "
        "no row counts more than it would without.",
    )
    target: TargetIn = Field(default_factory=TargetIn)
    tangent: TangentIn | None = Field(
        default=None, description="Learn to move weights of a public network; default: a linear model."
    )
    evaluation_dataset_id: str | None = None
    batching: BatchingIn = Field(default_factory=BatchingIn)
    audit: AuditIn = Field(default_factory=AuditIn)
    quality: QualityIn | None = Field(default=None, description="What every version must reach. Default: no gate.")


class ProgressOut(Answer):
    run_id: str
    steps_done: int
    steps_total: int
    seconds_left: float | None = Field(description="As of the run.")
    expected_at: datetime.datetime | None = Field(description="As of the run.")


class BatchingOut(Answer):
    max_requests: int | None
    max_wait_seconds: int


class AuditingOut(Answer):
    lanes: int
    chains: int
    asked_at: datetime.datetime | None = Field(description="When an audit was asked for that is not done.")
    last: AuditOut | None = Field(description="Of the last run that was audited.")
    last_run_id: str | None


class WaitOut(Answer):
    """Requests that wait for the same reason."""

    reason: WaitReason
    requests: int
    until: datetime.datetime | None = Field(description="When that ends at the latest; null: not known.")


class WaitingOut(Answer):
    """People who asked to be forgotten and are still in the live version like everybody else."""

    people: int
    requests: int
    first_due_at: datetime.datetime | None = Field(description="The earliest of their deadlines; null: nobody waits.")
    reasons: list[WaitOut] = Field(description="What their requests wait for, the most first.")


class ModelOut(Answer):
    id: str
    name: str
    dataset_id: str
    evaluation_dataset_id: str | None
    objective: str
    status: ModelStatus = Field(
        description="learning, live, unlearning, relearning, testing (a canary test is under way), degraded, held, "
        "failed, cancelled or retired"
    )
    live_version: int | None
    progress: ProgressOut | None
    mechanism: MechanismOut
    target: TargetOut
    batching: BatchingOut
    audit: AuditingOut
    guarantee: list[GuaranteeOut] | None = Field(
        description="Of the live version: `unlearning` and `deletion` are about those whose rows are erased, and say "
        "nothing of those in `waiting`."
    )
    waiting: WaitingOut | None = Field(
        description="Those whose rows are not erased yet. null: there is no version that could carry them, or the key "
        "has not the scope accounting:read."
    )
    metrics: dict[str, Any] = Field(description="On the evaluation dataset: docs/quality.md. `evaluated_on`: rows.")
    quality: QualityOut | None = Field(description="null: the model has no quality gate.")
    error_code: str | None
    created_at: datetime.datetime
    retired_at: datetime.datetime | None = Field(description="It learns and forgets no more.")
    destroyed_at: datetime.datetime | None = Field(description="Nothing is left of the weights of what was retired.")


class VersionOut(Answer):
    model_id: str
    number: int
    status: VersionStatus = Field(description="live, retired or destroyed")
    degraded: bool = Field(description="It misses the quality gate that it was judged by last.")
    held: bool = Field(description="It is kept from serving for that.")
    run_id: str
    weights_sha256: str
    metrics: dict[str, Any]
    published_at: datetime.datetime
    destroyed_at: datetime.datetime | None


class PredictionsIn(Body):
    model_config = example(records=[{"age": 39, "work": "private"}])

    records: Annotated[list[dict[str, Any] | list[FiniteFloat]], Field(min_length=1, max_length=10_000)]


class PredictionOut(Answer):
    label: str
    probabilities: dict[str, float] | None = Field(description="null: the objective smoothed_hinge knows none.")


class LabelsOut(Answer):
    labels: list[str] = Field(description="Those of a probability above 1/2.")
    probabilities: dict[str, float]


class ValueOut(Answer):
    value: float = Field(description="In the units of the target, within its range.")


class PredictionsOut(Answer):
    version: int
    predictions: list[PredictionOut] | list[LabelsOut] | list[ValueOut] = Field(
        description="A label each; or several labels; or, of a target, a value."
    )


class ModelsQuery(Paging):
    name: Name | None = Field(default=None, description="Only those whose name has this in it, in capitals or not.")
    dataset_id: str | None = Field(default=None, description="Only those that learn from this dataset.")
    order: ModelOrder = Field(
        default=ModelOrder.NEWEST,
        description="risk: those in service alone, by the nearest deadline of anybody who waits for them, then by most "
        "epsilon for their target, then by most failed runs. Needs the scope accounting:read.",
    )
    danger: ModelDanger | None = Field(
        default=None,
        description="Only those in service that the overview counts so: they carry people who asked, could not be "
        "learned, failed their last audit or their quality gate. Needs the scope accounting:read.",
    )


_MODELS = Resource("Models", "/v1/models")

CREATE = _MODELS.operation(
    "create_model",
    "POST",
    scope=Scope.MODELS_WRITE,
    takes=ModelIn,
    gives=ModelOut,
    status=202,
    keyed=True,
    problems=(
        DatasetUnknown,
        DatasetRetired,
        NetworkUnknown,
        AdaptiveBudgetSpent,
        PreconditionFailed,
        TargetUnreachable,
        TargetTooWeak,
        IdempotencyConflict,
        EvaluationOverlaps,
    ),
    does="Freeze the model's mechanism and learn it in the background; `GET /models/{id}` shows the progress.",
)
LIST = _MODELS.operation(
    "list_models",
    "GET",
    scope=Scope.MODELS_READ,
    query=ModelsQuery,
    gives=PageOut[ModelOut],
    does="All models, newest first; or those in service, those in most danger first.",
)
GET = of_one(
    _MODELS.operation(
        "get_model",
        "GET",
        "/{model_id}",
        scope=Scope.MODELS_READ,
        gives=ModelOut,
        problems=(ModelUnknown,),
        does="How far the model is, what it guarantees, and how it was made to learn.",
    )
)
AUDIT = of_one(
    _MODELS.operation(
        "audit",
        "POST",
        "/{model_id}/audit",
        scope=Scope.MODELS_WRITE,
        gives=ModelOut,
        status=202,
        keyed=True,
        problems=(ModelUnknown, ModelNotLive, ModelRetired, PreconditionFailed, IdempotencyConflict),
        does="Let many canaries be learned and forgotten by the model's mechanism, apart from its data and its "
        "versions; the result is that of a run of kind `audit`, and the model's last audit.",
    )
)
RELEARN = of_one(
    _MODELS.operation(
        "relearn",
        "POST",
        "/{model_id}/relearn",
        scope=Scope.MODELS_WRITE,
        gives=ModelOut,
        status=202,
        keyed=True,
        problems=(ModelUnknown, ModelRetired, IdempotencyConflict),
        does="Learn again from scratch on the data as they are now; the live version stays in service meanwhile.",
    )
)
RETIRE = of_one(
    _MODELS.operation(
        "retire_model",
        "DELETE",
        "/{model_id}",
        scope=Scope.MODELS_WRITE,
        gives=ModelOut,
        idempotent=True,
        problems=(ModelUnknown, ModelInUse),
        does="Take a model out of service for good, and destroy its weights; 409 while requests wait for it. Its "
        "versions, the copies that were handed out, its ledger and certificates stay. Doing it again changes "
        "nothing.",
    )
)
VERSIONS = of_one(
    _MODELS.operation(
        "list_versions",
        "GET",
        "/{model_id}/versions",
        scope=Scope.MODELS_READ,
        query=Paging,
        gives=PageOut[VersionOut],
        problems=(ModelUnknown,),
        does="All versions of a model, newest first.",
    )
)
VERSION = of_two(
    _MODELS.operation(
        "get_version",
        "GET",
        "/{model_id}/versions/{number}",
        scope=Scope.MODELS_READ,
        gives=VersionOut,
        problems=(ModelUnknown, VersionUnknown),
        does="Whether a version is live, retired or destroyed, and the SHA-256 of its weights.",
    )
)
WEIGHTS = of_two(
    _MODELS.operation(
        "get_weights",
        "GET",
        "/{model_id}/versions/{number}/weights",
        scope=Scope.MODELS_READ,
        gives=bytes,
        problems=(ModelUnknown, VersionUnknown, WeightsDestroyed, ModelHeld),
        does="The live version as safetensors: one tensor `parameters`, a row per class or label (one row for two "
        "classes, or for a target), bias last. That it was handed out is noted: a copy outside is never unlearned.",
    )
)
PREDICT = of_one(
    _MODELS.operation(
        "predict",
        "POST",
        "/{model_id}/predictions",
        scope=Scope.MODELS_READ,
        takes=PredictionsIn,
        gives=PredictionsOut,
        idempotent=True,
        problems=(ModelUnknown, ModelNotLive, ModelRetired, ModelHeld, InputInvalid, TangentServedElsewhere),
        does="What the live version says about records: objects by column name; vectors where there is no schema.",
    )
)
