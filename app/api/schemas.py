"""The JSON that goes over HTTP, as pydantic models; unknown fields are refused."""

import datetime
from typing import Annotated, Any, Generic, Literal, Self, TypeVar

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    FiniteFloat,
    Strict,
    model_validator,
)

from app.deletion.deadlines import ClockState
from app.deletion.review import RejectionGround
from app.unlearning.planner import EXPECTED_REQUESTS
from lethe.contract.problems import DamageKind
from lethe.proof import conversion
from lethe.theorems.sweep import MOST_POINTS, Scale

T = TypeVar("T")
Positive = Annotated[FiniteFloat, Field(gt=0)]
Text = Annotated[str, Field(pattern="^[^\\x00]*$")]  # PostgreSQL stores no NUL
Name = Annotated[Text, Field(min_length=1, max_length=200)]


def is_written_out(moment: Any) -> Any:
    """pydantic reads numbers as seconds too, which the OpenAPI document forbids."""
    if not (isinstance(moment, str) and moment[4:5] == "-"):
        raise ValueError("expected RFC 3339, such as 2026-01-31T12:00:00Z")
    return moment


Moment = Annotated[
    AwareDatetime,
    Strict(False),
    BeforeValidator(is_written_out),
    Field(ge=datetime.datetime(1970, 1, 2, tzinfo=datetime.UTC), le=datetime.datetime(9000, 1, 1, tzinfo=datetime.UTC)),
    AfterValidator(lambda moment: moment.astimezone(datetime.UTC)),
]
Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$", max_length=64)]
RegulationName = Annotated[str, Field(pattern="^[a-z][a-z0-9_]{1,30}$")]
Explanation = Annotated[Text, Field(min_length=1, max_length=2000)]
Ground = Literal[
    "not_necessary", "consent_withdrawn", "objection", "unlawful_processing", "legal_obligation", "child_services"
]


class Body(BaseModel):
    """Of the JSON types that are asked for: "1" and true are no numbers.

    Patterns are Python's: the other engine keeps what was on the stack when it first met one, words of callers too.
    """

    model_config = ConfigDict(extra="forbid", strict=True, regex_engine="python-re")


def _example(**body: Any) -> ConfigDict:
    """A body as `/docs` shows it."""
    return ConfigDict(json_schema_extra={"examples": [body]})


class PageOut(BaseModel, Generic[T]):
    items: list[T]
    next_cursor: str | None


class DamageOut(BaseModel):
    """The first thing that was found not to be as on record."""

    at: datetime.datetime
    kind: DamageKind
    rows: str = Field(description="The dataset, or the addition whose rows wait.")
    block: int | None = Field(description="Which 4096 of them; null: all.")


class AdaptiveBudgetOut(BaseModel):
    epsilon: float
    delta: float


class DatasetOut(BaseModel):
    id: str
    name: str
    num_records: int = Field(description="Rows that are not null.")
    num_slots: int = Field(description="Rows at creation: public and fixed, n in every formula.")
    num_features: int = Field(description="Encoded features, without the bias.")
    num_classes: int
    classes: list[str]
    num_subjects: int
    revision: int = Field(description="Batches of erasures and of added rows so far.")
    digest: str = Field(
        description="Names the rows as they are now. It is made of random numbers: nobody can compute it from rows."
    )
    damage: DamageOut | None = Field(description="What was found damaged: no run touches the dataset. Null: nothing.")
    adaptive_budget: AdaptiveBudgetOut | None = Field(
        description="What all versions of all models together may ever tell about one row, to people who read them all."
    )
    schema_: dict[str, Any] | None = Field(serialization_alias="schema")
    created_at: datetime.datetime
    retired_at: datetime.datetime | None = Field(description="Nothing is learned from it any more.")
    destroyed_at: datetime.datetime | None = Field(description="Nothing is left of the rows of what was retired.")


class NewDatasetOut(DatasetOut):
    num_suppressed: int = Field(description="Rows left out: of people who asked to be forgotten.")


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


class AuditIn(Body):
    lanes: Annotated[int, Field(ge=0, le=4096, multiple_of=2)] = Field(
        256, description="Coordinates with and without a canary that take part in every run; 0: no audit."
    )
    chains: Annotated[int, Field(ge=1, le=64)] = Field(
        16, description="How many times as many an audit has that is asked for."
    )


class ModelIn(Body):
    model_config = _example(name="churn", dataset_id="ds_6f1c", l2=0.01, target={"epsilon": 1.0})

    name: Name
    dataset_id: str
    objective: Literal["logistic_regression"] = "logistic_regression"
    mechanism: Literal["langevin"] = "langevin"
    l2: Positive | None = None
    noise_scale: Positive | None = None
    step_size: Positive | None = None
    radius: Positive | None = None
    learn_steps: Annotated[int, Field(ge=1)] | None = None
    batch_size: Annotated[int, Field(ge=1)] | None = Field(None, description="Rows that a step reads, at least.")
    cool_down: Annotated[int, Field(ge=1)] | None = Field(
        None, description="The last steps of a run, over which the step size falls."
    )
    target: TargetIn = Field(default_factory=TargetIn)
    evaluation_dataset_id: str | None = None
    batching: BatchingIn = Field(default_factory=BatchingIn)
    audit: AuditIn = Field(default_factory=AuditIn)


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
    batch_size: int
    num_batches: int
    cool_down: int


class GuaranteeOut(BaseModel):
    notion: str
    adjacency: str
    mu: float
    epsilon: float
    delta: float
    reference_process: str
    best_attacker_accuracy: float = Field(
        description="Phi(mu/2), rounded up: how often the best attacker is right about which of two equally likely "
        "worlds they see, this one or the reference process."
    )

    @model_validator(mode="before")
    @classmethod
    def _follows_from_mu(cls, stated: Any) -> Any:
        return stated | {"best_attacker_accuracy": conversion.gdp_balanced_accuracy(mu=stated["mu"])}


class BatchingOut(BaseModel):
    max_requests: int | None
    max_wait_seconds: int


class GuessesOut(BaseModel):
    true_positives: int = Field(description="Lanes with a canary that were said to have one.")
    members: int
    false_positives: int
    nonmembers: int


class AuditOut(BaseModel):
    """What the lanes of a run showed. One canary stands for `records` worst-case records, so that few lanes tell."""

    model_config = ConfigDict(json_schema_serialization_defaults_required=True)  # `visits` is always said

    lanes: int
    steps_before: int = Field(description="Steps with the canaries, before the run; 0: they were there during the run.")
    steps: int
    records: int
    guesses: GuessesOut
    squares: float = Field(
        description="Of what was not foreseen, normalised, groups' means apart: chi-squared, with as many degrees of "
        "freedom as `lanes` less those of `visits`."
    )
    drift: float = Field(description="Along where the lanes came from: standard normal.")
    visits: float | None = Field(
        default=None,
        description="Of the means of groups of lanes, which batches that are not read in turn would move: chi-squared, "
        "a sixteenth of `lanes` degrees of freedom, from 1 to 64. null: the audit is from before it was looked at.",
    )
    notion: str = Field(description="deletion: of canaries that were forgotten; release: of canaries still there.")
    mu: float = Field(description="Certified, for one record (zero_out).")
    epsilon: float
    mu_lower_bound: float = Field(
        description="Proved from the guesses, for one record; never above mu in a run that was published."
    )
    epsilon_lower_bound: float
    error: float = Field(description="The probability at most with which a run that is right reports a false bound.")
    findings: list[str] = Field(
        description="Of guarantee, noise, forgetting and schedule, what is not as it should be."
    )


class AuditingOut(BaseModel):
    lanes: int
    chains: int
    asked_at: datetime.datetime | None = Field(description="When an audit was asked for that is not done.")
    last: AuditOut | None = Field(description="Of the last run that was audited.")
    last_run_id: str | None


class TargetOut(BaseModel):
    epsilon: float
    delta: float


class ModelOut(BaseModel):
    id: str
    name: str
    dataset_id: str
    evaluation_dataset_id: str | None
    objective: str
    status: str = Field(description="learning, live, unlearning, failed, cancelled or retired")
    live_version: int | None
    progress: ProgressOut | None
    mechanism: MechanismOut
    target: TargetOut
    batching: BatchingOut
    audit: AuditingOut
    guarantee: list[GuaranteeOut] | None = Field(description="Of the live version, for everybody.")
    metrics: dict[str, Any]
    error_code: str | None
    created_at: datetime.datetime
    retired_at: datetime.datetime | None = Field(description="It learns and forgets no more.")
    destroyed_at: datetime.datetime | None = Field(description="Nothing is left of the weights of what was retired.")


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
    model_config = _example(records=[{"age": 39, "work": "private"}])

    records: Annotated[list[dict[str, Any] | list[FiniteFloat]], Field(min_length=1, max_length=10_000)]


class PredictionOut(BaseModel):
    label: str
    probabilities: dict[str, float]


class PredictionsOut(BaseModel):
    version: int
    predictions: list[PredictionOut]


MOST_ALIASES = 50


class SubjectIn(Body):
    """Whom a call is about: their id, or its hash where that is all the caller has."""

    subject_id: Annotated[str, Field(min_length=1, max_length=500)] | None = None
    subject_sha256: Sha256 | None = Field(
        None, description="SHA-256 of the subject id (UTF-8, in the form of the tenant's rule), instead of the id."
    )

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.subject_id is None) == (self.subject_sha256 is None):
            raise ValueError("expected either subject_id or subject_sha256")
        return self


class DeletionRequestIn(SubjectIn):
    model_config = _example(subject_id="customer-4711", regulation="gdpr", ground="consent_withdrawn")

    aliases: Annotated[list[Annotated[str, Field(min_length=1, max_length=500)]], Field(max_length=MOST_ALIASES)] = (
        Field(default_factory=list, description="Other subject ids of the same person, all of them forgotten too.")
    )
    dataset_ids: Annotated[list[Name], Field(min_length=1, max_length=1000)] | None = None
    regulation: RegulationName = Field("gdpr", description="gdpr, ccpa, other, or one of the tenant's policy.")
    ground: Ground | None = None
    submitted_at: Moment | None = None
    external_id: Name | None = None
    metadata: Annotated[dict[Name, Annotated[Text, Field(max_length=2000)]], Field(max_length=50)] = Field(
        default_factory=dict, description="The caller's own words: kept, shown again, and never looked at."
    )
    refers_to: Name | None = Field(None, description="An ended request about the same subject that this one follows.")
    callback_url: Annotated[Text, Field(max_length=2048)] | None = Field(
        None, description="Where to report what becomes of the request."
    )
    identity_verified: bool = Field(
        True, description="False: the request waits in review, its clock paused where the regulation lets it pause."
    )
    identity_statement: Annotated[Text, Field(max_length=16_000)] | None = Field(
        None, description="A JWT of a registered issuer about the subject, good for one request."
    )


class RejectionIn(Body):
    model_config = _example(ground="legal_claims", explanation="We need the records for a claim that is before court.")

    ground: Annotated[RejectionGround, Strict(False)]
    explanation: Explanation = Field(description="For the person: why they are not forgotten.")


class ExtensionIn(Body):
    model_config = _example(reason="Very many people have asked at the same time.")

    reason: Explanation = Field(description="For the person: why it takes longer.")


class PauseIn(Body):
    reason: Literal["identity"]


MOST_AT_ONCE = 10_000
"""Requests in one batch."""


class BatchIn(Body):
    model_config = _example(requests=[{"subject_id": "customer-4711"}, {"subject_id": "customer-4712"}])

    requests: Annotated[
        list[Any],
        Field(
            min_length=1,
            max_length=MOST_AT_ONCE,
            json_schema_extra={"items": {"$ref": "#/components/schemas/DeletionRequestIn"}},
        ),
    ]


class BatchItemOut(BaseModel):
    index: int
    line: int | None = Field(None, description="In a CSV file.")
    status: int = Field(description="202, or the status that a call with this request alone would have had.")
    id: str | None = None
    external_id: str | None = None
    request_status: str | None = None
    code: str | None = None
    detail: str | None = None
    errors: list[dict[str, str]] | None = None


class BatchOut(BaseModel):
    accepted: int
    refused: int
    items: list[BatchItemOut]


class EstimateModelOut(BaseModel):
    model_id: str
    kind: str
    steps: int


class EstimateOut(BaseModel):
    steps: int
    models: list[EstimateModelOut]


class RequestModelOut(BaseModel):
    model_id: str
    status: str = Field(
        description="pending, running, completed, cancelled, destroyed (nothing is left of the model), or "
        "nothing_published (it never had a version)."
    )
    run_id: str | None
    version: int | None
    certificate_id: str | None


class ClockOut(BaseModel):
    state: ClockState
    deadline: datetime.datetime = Field(description="due_at, or extended_due_at once there is one.")
    paused_since: datetime.datetime | None
    days_left: int | None = Field(description="Whole days until the deadline, below 0 once it has passed.")


class RejectionOut(BaseModel):
    ground: str
    explanation: str | None


class DeletionRequestOut(BaseModel):
    """For a caller without accounting:read, outcome, estimate and models are empty whatever is held."""

    id: str
    status: str
    outcome: str | None = Field(
        description="forgotten; nothing_held; target_widened: the rows are erased, but a model's target is weaker than "
        "epsilon 8 or delta 1/n, which is not called forgotten."
    )
    subject_ref: str
    alias_refs: list[str] = Field(description="Of the aliases, one each.")
    regulation: str
    ground: str | None
    external_id: str | None
    metadata: dict[str, str]
    submitted_at: datetime.datetime
    due_at: datetime.datetime
    extended_due_at: datetime.datetime | None
    extension_reason: str | None
    clock: ClockOut
    held_until: datetime.datetime | None = Field(description="No worker takes it before: so long it can be cancelled.")
    rejection: RejectionOut | None
    source: str | None
    refers_to: str | None
    created_at: datetime.datetime
    completed_at: datetime.datetime | None
    kept: str = Field(
        description="details: everything; request: no longer external_id, metadata, callback_url, reasons and "
        "explanations; trace: no longer whom it was about either. The tenant's policy says how long."
    )
    estimate: EstimateOut | None = Field(description="What the request will take, while it is waiting.")
    models: list[RequestModelOut]


class RequestEventOut(BaseModel):
    at: datetime.datetime
    status: str
    detail: str | None
    actor: str = Field(description="The API key that did it, or lethe.")


class CertificateOut(BaseModel):
    id: str
    request_id: str
    model_id: str
    version: int
    issued_at: datetime.datetime
    jws: str = Field(description="The signed statement: a compact JWS, Ed25519. This is what is verified.")
    statement: dict[str, Any] = Field(description="What the JWS says, decoded for reading.")


class JointOut(BaseModel):
    """All models that carried a person, together: where their noise is independent, mu^2 adds up. mu, epsilon, delta
    and best_attacker_accuracy are of `deletion`."""

    models: list[str]
    mu: float
    epsilon: float
    delta: float
    best_attacker_accuracy: float
    guarantees: list[GuaranteeOut] = Field(description="unlearning, deletion and adaptive, each of all these models.")


class AbsenceOut(BaseModel):
    """That nothing was held: signed, and verified as a certificate is."""

    jws: str
    statement: dict[str, Any]


class CertificatesOut(BaseModel):
    request_id: str
    certificates: list[CertificateOut]
    joint: JointOut | None = Field(description="Null until every model has forgotten.")
    nothing_held: AbsenceOut | None = Field(description="Of a request that held nothing.")


class CertificateIn(Body):
    jws: Annotated[str, Field(min_length=1, max_length=10_000_000)]
    max_epsilon: Positive | None = Field(
        None, description="Refuse a certificate whose guarantees of forgetting (unlearning, deletion) are weaker."
    )
    max_delta: Annotated[float, Field(gt=0, lt=1)] | None = Field(None, description="Likewise.")


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
    repeated: int = Field(description="Runs before it that ended for the same reason, and are not kept.")
    audit: AuditOut | None


class LedgerEntryOut(BaseModel):
    sequence: int
    body: dict[str, Any]
    previous_hash: str
    hash: str


class LedgerOut(BaseModel):
    items: list[LedgerEntryOut]
    next_cursor: str | None


class LedgerVerdictOut(BaseModel):
    model_id: str
    valid: bool
    fault: str | None = Field(description="The entry and the part of it that do not follow; null if all do.")
    entries: int | None = Field(description="That were recomputed; null if one of them does not follow.")
    not_recomputed: int | None = Field(
        description="Entries of an earlier format, which were there at the upgrade: their hashes hold, their numbers"
        " are not recomputed."
    )
    head: str | None = Field(
        description="Hash of the last entry: whoever keeps it elsewhere can tell a cut ledger; null if there is none."
    )


class NextRequestOut(BaseModel):
    kind: str
    steps: int
    epsilon_without_steps: float = Field(description="unlearning epsilon if the rows were nulled and nothing ran")


class ReleasesLeftOut(BaseModel):
    epsilon: float = Field(description="The `adaptive` budget: of the query, the dataset's, or the model's target")
    delta: float
    steps_per_release: int = Field(description="What forgetting one more record takes now")
    records: int = Field(description="Of the person, in every version of every model of the dataset so far")
    count: int | None = Field(description="Versions of this model that still fit; null: the budget is exceeded already")


class ResetOut(BaseModel):
    steps: int
    guarantee: GuaranteeOut


class NextRunOut(BaseModel):
    kind: str
    steps: int
    reason: str
    records: int = Field(description="That it would forget")


class LargeRequestOut(BaseModel):
    request_id: str
    records: int


class ModelBudgetOut(BaseModel):
    model_id: str
    version: int | None
    target: TargetOut
    releases: int = Field(description="Versions published so far, destroyed ones among them")
    mu: float = Field(description="What they add to the `adaptive` mu of the dataset: squares add up")
    releases_left: ReleasesLeftOut | None = Field(description="null before the first version")
    room: int | None = Field(
        description="Records that can be forgotten together before learning again is no dearer; null before the first"
        " version"
    )
    next_run: NextRunOut | None = Field(description="What would run now, for all who wait; null if nobody does")
    relearning: list[LargeRequestOut] = Field(
        description="Open requests that leave no choice but to learn again, each by itself; the 100 largest"
    )


class DatasetAccountOut(BaseModel):
    dataset_id: str
    used: GuaranteeOut | None = Field(
        description="`adaptive` of one record that fed every version of every model so far; null before there are any"
    )
    models: list[ModelBudgetOut]


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
    model_config = _example(model_id="mdl_6f1c", num_records=3)

    model_id: str
    num_records: Annotated[int, Field(ge=1, le=2**31 - 1)] = 1
    epsilon: Positive | None = None
    delta: Annotated[float, Field(gt=0, lt=1)] | None = None
    steps: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = Field(
        None, description="The other way round: what so many steps would reach. Default: as few as reach the target."
    )
    batch: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = Field(
        None, description="Records per run, for `schedule`, in at most 100 runs. Default: all in one."
    )
    expected_requests: Annotated[int, Field(ge=1, le=100)] = Field(
        EXPECTED_REQUESTS, description="Further requests of as many records each, for the comparison of options"
    )


class StatementOut(BaseModel):
    model_id: str
    certificate_id: str
    version: int
    signed: list[GuaranteeOut] = Field(
        description="Empty for a certificate of an earlier format, which cannot be verified any more."
    )
    today: list[GuaranteeOut]


class RequestAccountOut(BaseModel):
    request_id: str
    models: list[StatementOut]
    joint: JointOut | None = Field(
        description="Of all models that carried the person, as it was signed; null until every one has forgotten."
    )


class BoundIn(Body):
    model_config = _example(params={"mu": 0.5, "delta": 1e-5})

    params: dict[str, Any]


class SweepIn(BoundIn):
    model_config = _example(params={"delta": 1e-5}, over="mu", low=0.01, high=10.0, scale="log")

    over: Name = Field(description="The parameter that varies: a real or an integer.")
    low: FiniteFloat
    high: FiniteFloat
    points: Annotated[int, Field(ge=2, le=MOST_POINTS)] = 50
    scale: Scale = "linear"


class HealthOut(BaseModel):
    status: str


class ReadyOut(BaseModel):
    status: str = Field(description="ready, full (calls are refused) or database_not_migrated")
    queue_age_seconds: float | None = Field(
        None, description="How long the oldest request has waited for a worker, or 0."
    )
    at_risk: int | None = Field(None, description="Open requests due within LETHE_RISK_DAYS.")
    overdue: int | None = Field(None, description="Open requests past their deadline.")
    workers: str | None = Field(
        None, description="alive, silent (no sign of life for a minute) or failing (no run gets through)"
    )
    worker_seen_at: datetime.datetime | None = Field(None, description="The last sign of life of any worker.")
    tombstones: str | None = Field(
        None, description="whole, damaged (nobody is erased), or unverified (not looked at for two hours)"
    )
