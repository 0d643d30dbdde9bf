"""The JSON that goes over HTTP, as pydantic models; unknown fields are refused."""

import datetime
from typing import Annotated, Any, Generic, Literal, TypeVar

from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field, FiniteFloat

from app.access.service import Scope
from app.deletion.deadlines import Regulation
from app.unlearning.planner import EXPECTED_REQUESTS

T = TypeVar("T")
Positive = Annotated[FiniteFloat, Field(gt=0)]
Text = Annotated[str, Field(pattern="^[^\\x00]*$")]  # PostgreSQL stores no NUL
Name = Annotated[Text, Field(min_length=1, max_length=200)]
Moment = Annotated[
    AwareDatetime,
    Field(ge=datetime.datetime(1970, 1, 2, tzinfo=datetime.UTC), le=datetime.datetime(9000, 1, 1, tzinfo=datetime.UTC)),
    AfterValidator(lambda moment: moment.astimezone(datetime.UTC)),
]
Ground = Literal[
    "not_necessary", "consent_withdrawn", "objection", "unlawful_processing", "legal_obligation", "child_services"
]


class Body(BaseModel):
    model_config = ConfigDict(extra="forbid")


class PageOut(BaseModel, Generic[T]):
    items: list[T]
    next_cursor: str | None


class ApiKeyIn(Body):
    name: Name
    scopes: Annotated[list[Scope], Field(min_length=1)]


class ApiKeyOut(BaseModel):
    id: str
    name: str
    scopes: list[str]
    created_at: datetime.datetime
    revoked_at: datetime.datetime | None


class NewApiKeyOut(ApiKeyOut):
    key: str = Field(description="Shown once; only its hash is kept.")


class DatasetOut(BaseModel):
    id: str
    name: str
    num_records: int = Field(description="Rows that are not null.")
    num_slots: int = Field(description="Rows at creation: public and fixed, n in every formula.")
    num_features: int = Field(description="Encoded features, without the bias.")
    num_classes: int
    classes: list[str]
    num_subjects: int
    revision: int = Field(description="Batches of erasures so far.")
    digest: str = Field(description="Keyed digest of the rows as they are now.")
    schema_: dict[str, Any] | None = Field(serialization_alias="schema")
    created_at: datetime.datetime


class SubjectOut(BaseModel):
    num_records: int


class TargetIn(Body):
    epsilon: Positive = 1.0
    delta: Annotated[float, Field(gt=0, lt=1)] | None = Field(None, description="Default: num_slots^-1.1.")


class BatchingIn(Body):
    max_requests: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = Field(
        None, description="Run as soon as so many requests wait. Default: no limit but the time."
    )
    max_wait_seconds: Annotated[int, Field(ge=0, le=30 * 86400)] = Field(
        0, description="Let a request wait so long for others, but never into the last week before it is due."
    )


class ModelIn(Body):
    name: Name
    dataset_id: str
    objective: Literal["logistic_regression"] = "logistic_regression"
    mechanism: Literal["langevin"] = "langevin"
    l2: Positive | None = None
    noise_scale: Positive | None = None
    step_size: Positive | None = None
    radius: Positive | None = None
    learn_steps: Annotated[int, Field(ge=1)] | None = None
    target: TargetIn = Field(default_factory=TargetIn)
    evaluation_dataset_id: str | None = None
    ranks: Annotated[int, Field(ge=1, le=64)] = Field(
        1, description="Processes that share each run, every one with its part of the rows (a block of 4096 at least)."
    )
    batching: BatchingIn = Field(default_factory=BatchingIn)


class ProgressOut(BaseModel):
    steps_done: int
    steps_total: int


class MechanismOut(BaseModel):
    objective: str
    num_slots: int
    num_classes: int
    l2: float
    strong_convexity: float
    smoothness: float
    gradient_bound: float
    step_size: float
    contraction: float
    noise_scale: float
    step_variance: float
    radius: float
    grid: float
    num_parameters: int
    learn_steps: int


class GuaranteeOut(BaseModel):
    notion: str
    adjacency: str
    mu: float
    epsilon: float
    delta: float
    reference_process: str


class BatchingOut(BaseModel):
    max_requests: int | None
    max_wait_seconds: int


class TargetOut(BaseModel):
    epsilon: float
    delta: float


class ModelOut(BaseModel):
    id: str
    name: str
    dataset_id: str
    evaluation_dataset_id: str | None
    objective: str
    status: str = Field(description="learning, live, unlearning or failed")
    live_version: int | None
    progress: ProgressOut | None
    mechanism: MechanismOut
    target: TargetOut
    ranks: int
    batching: BatchingOut
    guarantee: list[GuaranteeOut] | None = Field(description="Of the live version, for everybody.")
    metrics: dict[str, Any]
    error_code: str | None
    created_at: datetime.datetime


class VersionOut(BaseModel):
    model_id: str
    number: int
    status: str = Field(description="live, retired or destroyed")
    run_id: str
    weights_sha256: str
    metrics: dict[str, Any]
    published_at: datetime.datetime
    destroyed_at: datetime.datetime | None


class PredictionsIn(Body):
    records: Annotated[list[dict[str, Any] | list[FiniteFloat]], Field(min_length=1, max_length=10_000)]


class PredictionOut(BaseModel):
    label: str
    probabilities: dict[str, float]


class PredictionsOut(BaseModel):
    version: int
    predictions: list[PredictionOut]


class DeletionRequestIn(Body):
    subject_id: Annotated[str, Field(min_length=1, max_length=500)]
    dataset_ids: Annotated[list[str], Field(min_length=1, max_length=1000)] | None = None
    regulation: Regulation = Regulation.GDPR
    ground: Ground | None = None
    submitted_at: Moment | None = None
    external_id: Name | None = None
    metadata: Annotated[dict[Text, Text], Field(max_length=50)] = Field(default_factory=dict)


class EstimateModelOut(BaseModel):
    model_id: str
    kind: str
    steps: int


class EstimateOut(BaseModel):
    steps: int
    models: list[EstimateModelOut]


class RequestModelOut(BaseModel):
    model_id: str
    status: str
    run_id: str | None
    version: int | None
    certificate_id: str | None


class DeletionRequestOut(BaseModel):
    id: str
    status: str
    outcome: str | None
    subject_ref: str
    regulation: str
    ground: str | None
    external_id: str | None
    metadata: dict[str, str]
    submitted_at: datetime.datetime
    due_at: datetime.datetime
    extended_due_at: datetime.datetime | None
    created_at: datetime.datetime
    completed_at: datetime.datetime | None
    estimate: EstimateOut | None = Field(description="What the request will take, while it is waiting.")
    models: list[RequestModelOut]


class RequestEventOut(BaseModel):
    at: datetime.datetime
    status: str
    detail: str | None


class CertificateOut(BaseModel):
    id: str
    request_id: str
    model_id: str
    version: int
    issued_at: datetime.datetime
    jws: str = Field(description="The signed statement: a compact JWS, Ed25519. This is what is verified.")
    statement: dict[str, Any] = Field(description="What the JWS says, decoded for reading.")


class CertificatesOut(BaseModel):
    request_id: str
    certificates: list[CertificateOut]


class CertificateIn(Body):
    jws: Annotated[str, Field(min_length=1, max_length=10_000_000)]


class CertificateVerdictOut(BaseModel):
    valid: bool
    key_id: str
    guarantees: list[GuaranteeOut]
    statement: dict[str, Any]


class RunOut(BaseModel):
    id: str
    kind: str
    status: str
    dataset_id: str
    model_id: str | None
    steps_done: int
    steps_total: int
    records: int
    reason: str
    worker: str
    started_at: datetime.datetime
    finished_at: datetime.datetime | None
    error_code: str | None


class LedgerEntryOut(BaseModel):
    sequence: int
    body: dict[str, Any]
    previous_hash: str
    hash: str


class LedgerOut(BaseModel):
    items: list[LedgerEntryOut]
    next_cursor: str | None


class NextRequestOut(BaseModel):
    kind: str
    steps: int
    epsilon_without_steps: float = Field(description="unlearning epsilon if the rows were nulled and nothing ran")


class ReleasesLeftOut(BaseModel):
    epsilon: float = Field(description="The `adaptive` budget: of the query, or the model's target")
    delta: float
    steps_per_release: int = Field(description="What forgetting one more record takes now")
    records: int = Field(description="Of the person, in every version of every model of the dataset so far")
    count: int | None = Field(description="Versions of this model that still fit; null: the budget is exceeded already")


class ResetOut(BaseModel):
    steps: int
    guarantee: GuaranteeOut


class AccountOut(BaseModel):
    model_id: str
    version: int
    influence: float
    noise_variance: float
    mu: float
    guarantees: list[GuaranteeOut]
    releases: int
    next_request: NextRequestOut
    releases_left: ReleasesLeftOut
    reset: ResetOut | None = Field(description="What it takes until no start matters, for repair; null if too much")


class PreviewIn(Body):
    model_id: str
    num_records: Annotated[int, Field(ge=1, le=2**31 - 1)] = 1
    epsilon: Positive | None = None
    delta: Annotated[float, Field(gt=0, lt=1)] | None = None
    expected_requests: Annotated[int, Field(ge=1, le=100)] = Field(
        EXPECTED_REQUESTS, description="Further requests of as many records each, for the comparison of options"
    )


class OptionOut(BaseModel):
    kind: str = Field(description="unlearn (now) | batch (wait for the expected requests) | relearn")
    steps: int
    steps_per_request: float = Field(description="If this and the expected requests are all handled so")
    epsilon: float = Field(description="`unlearning`, once its run is done")
    reason: str


class PreviewOut(BaseModel):
    kind: str
    steps: int
    reason: str
    epsilon_without_steps: float
    guarantees: list[GuaranteeOut]
    options: list[OptionOut] = Field(description="Cheapest per request first")


class PointOut(BaseModel):
    step: int
    run: int
    influence: float
    noise_variance: float
    epsilon: float = Field(description="`unlearning` of all deletions so far")
    epsilon_of_one: float = Field(description="What deleting one record here would leave of it if no step followed")


class TrajectoryOut(BaseModel):
    model_id: str
    target: TargetOut
    points: list[PointOut]


class StatementOut(BaseModel):
    model_id: str
    certificate_id: str
    version: int
    signed: list[GuaranteeOut]
    today: list[GuaranteeOut]


class RequestAccountOut(BaseModel):
    request_id: str
    models: list[StatementOut]


class BoundParameterOut(BaseModel):
    name: str
    kind: str
    description: str
    required: bool
    default: Any
    choices: list[str]


class BoundOut(BaseModel):
    name: str
    title: str
    reference: str
    statement: str
    assumptions: list[str]
    parameters: list[BoundParameterOut]
    outputs: dict[str, str]


class BoundIn(Body):
    params: dict[str, Any]


class HealthOut(BaseModel):
    status: str


class ReadyOut(BaseModel):
    status: str = Field(description="ready or database_not_migrated")
    queue_age_seconds: float | None = Field(None, description="How long the oldest open request has waited, or 0.")
    at_risk: int | None = Field(None, description="Open requests due within LETHE_RISK_DAYS.")
    overdue: int | None = Field(None, description="Open requests past their deadline.")
    workers: str | None = Field(
        None, description="alive, silent (no sign of life for a minute) or failing (no run gets through)"
    )
    worker_seen_at: datetime.datetime | None = Field(None, description="The last sign of life of any worker.")
