"""Operations on the cost of forgetting: accounts, previews, plans of models, and a model's history step by step."""

import datetime
from typing import Annotated

from pydantic import Field

from lethe.contract import problems
from lethe.contract.certificates import GuaranteeOut, JointOut, TargetOut
from lethe.contract.deletion_requests import REQUESTS
from lethe.contract.fields import Answer, Body, Delta, PageOut, Paging, Positive, Query, example, optional
from lethe.contract.models import Objective, WaitingOut
from lethe.contract.operation import ResourceOperations
from lethe.contract.sets import Metric, RunKind, Scope, WaitReason

EXPECTED_REQUESTS = 9
"""Default number of further requests: with the first one, a batch of ten."""


class PreviewIn(Body):
    model_config = example(model_id="mdl_6f1c", num_records=3)

    model_id: str = Field(description="ID of the model.")
    num_records: Annotated[int, Field(ge=1, le=2**31 - 1, description="Number of records to forget.")] = 1
    epsilon: Positive | None = optional("Epsilon to reach, in nats. Default: the model's target.")
    delta: Delta | None = optional("Delta to reach. Default: the model's target.")
    steps: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = optional(
        "Number of steps whose effect to preview. Default: the minimum that reaches the target."
    )
    batch: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = optional(
        "Number of records per run in `schedule`, for at most 100 runs. Default: all records in one run."
    )
    expected_requests: Annotated[int, Field(ge=1, le=100)] = Field(
        default=EXPECTED_REQUESTS,
        description="Number of further requests, each with `num_records` records, for which `options` are compared.",
    )


_SECONDS = "Estimated seconds from claim to publication, by the model's past runs; null before its first version."


class OptionOut(Answer):
    kind: str = Field(description="Way to forget: unlearn (now), batch (wait for the expected requests) or relearn.")
    steps: int = Field(description="Number of steps of the option's run.")
    steps_per_request: float = Field(
        description="Mean steps per request if all expected requests are handled in this way."
    )
    epsilon: float = Field(description="Epsilon of `unlearning`, in nats, after the option's run.")
    seconds: float | None = Field(description=_SECONDS)
    reason: str = Field(description="Explanation of the number of steps of this option.")


class ScheduleOut(Answer):
    """Schedule that forgets `batch` records at a time and reaches the target before the next batch."""

    batch: int = Field(description="Number of records per run.")
    runs: int = Field(description="Number of runs of the schedule.")
    relearned: int = Field(description="Number of runs that relearn because unlearning would be no cheaper.")
    steps: int = Field(description="Number of steps of all runs together.")
    longest: int = Field(description="Number of steps of the longest run.")
    seconds: float | None = Field(description=_SECONDS)
    epsilon: float = Field(description="Epsilon of `unlearning`, in nats, after the last run.")


class PaceOut(Answer):
    seconds_per_run: float = Field(description="Constant part of the seconds of a run.")
    seconds_per_step: float = Field(description="Seconds per step of a run.")
    runs: int = Field(description="Number of measured runs; at most the last 20.")


class PreviewOut(Answer):
    kind: str = Field(description="Kind of the run: unlearn or relearn.")
    steps: int = Field(description="Number of steps of the run.")
    reason: str = Field(description="Explanation of this kind and number of steps.")
    seconds: float | None = Field(description=_SECONDS)
    epsilon_without_steps: float = Field(
        description="Epsilon of `unlearning`, in nats, if rows were erased and no step ran."
    )
    guarantees: list[GuaranteeOut] = Field(description="Guarantees `unlearning` and `release` after the run.")
    schedule: ScheduleOut = Field(description="Schedule that forgets the records in batches, one run after the other.")
    options: list[OptionOut] = Field(description="Ways to forget the records, cheapest per request first.")
    pace: PaceOut | None = Field(description="Measured speed of the model's runs; null before its first version.")


_ACCOUNTING = ResourceOperations("Accounting", "/v1/accounting")

PREVIEW = _ACCOUNTING.operation(
    "preview",
    "POST",
    "/preview",
    scope=Scope.ACCOUNTING_READ,
    takes=PreviewIn,
    gives=PreviewOut,
    repeat="idempotent",
    problems=(problems.ModelUnknown, problems.ModelNotLive, problems.ModelRetired),
    does="Preview the run that forgets `num_records` more records to a target, or the effect of a number of steps, "
    "and its alternatives. Nothing is changed.",
)


class DatasetToEraseOut(Answer):
    dataset_id: str = Field(description="ID of the dataset.")
    rows: int = Field(description="Number of rows to erase.")


class ModelToForgetOut(Answer):
    """Part of one model. `kind`, `steps`, `passes` and `seconds` are those of a run for this request alone."""

    model_id: str = Field(description="ID of the model.")
    name: str = Field(description="Name of the model.")
    version: int | None = Field(
        description="Number of the live version, which will be replaced and destroyed; null if none."
    )
    rows: int = Field(description="Number of rows of the person in the model's dataset.")
    kind: RunKind | None = Field(description="Kind of a run for this request alone; null without a version.")
    steps: int | None = Field(description="Number of steps of a run for this request alone; null without a version.")
    passes: float | None = Field(
        description="Number of passes over all rows of a run for this request alone; null without a version."
    )
    seconds: float | None = Field(
        description="Estimated seconds of a run for this request alone; null if no run was measured."
    )
    reason: WaitReason | None = Field(description="Reason why the request waits for this model; null if unknown.")
    waiting: int = Field(description="Number of requests that wait for the same reason.")
    batch: int | None = Field(
        description="Number of requests that complete a batch; null if only the time limits the wait."
    )
    until: datetime.datetime | None = Field(description="Latest end of the wait; null if unknown.")


class RequestPreviewOut(Answer):
    request_id: str = Field(description="ID of the request.")
    is_open: bool = Field(
        description="True until a run claims the request or the request ends; then both lists are empty."
    )
    datasets: list[DatasetToEraseOut] = Field(description="Rows to erase, by dataset.")
    models: list[ModelToForgetOut] = Field(description="Models that have to forget.")


PREVIEW_REQUEST = REQUESTS.of_one(
    "preview_deletion_request",
    "GET",
    "/{request_id}/preview",
    scope=Scope.ACCOUNTING_READ,
    gives=RequestPreviewOut,
    does="Preview an undecided or waiting request: the rows it would erase now, the versions it would replace, "
    "the cost in passes and seconds, and why it waits. Nothing is changed.",
)


DAYS, WEEKS = 30, 12
"""Number of days ahead and of weeks back that a summary covers."""


class DueOnDayOut(Answer):
    day: datetime.date = Field(description="Day in the time zone of the policy.")
    requests: int = Field(description="Requests due that day; list them by clock=running, due_from, due_before.")


class WeekOut(Answer):
    starts: datetime.date = Field(description="Monday of the week.")
    received: int = Field(description="Requests submitted in the week; list them by received_from, received_before.")
    completed: int = Field(description="Requests completed in the week; list them by completed_from, completed_before.")


class CompletionOut(Answer):
    """Times to completion of the requests completed in `weeks`: whole days from submitted_at to completed_at."""

    requests: int = Field(description="Number of requests completed in `weeks`.")
    median_days: int | None = Field(description="Median of days to completion; null if none completed.")
    p90_days: int | None = Field(description="90th percentile of days to completion; null if none completed.")
    share_in_time: float | None = Field(description="Share completed before deadline, 0 to 1; null if none completed.")


class SummaryOut(Answer):
    at: datetime.datetime = Field(description="Time of the summary.")
    time_zone: str = Field(description="Time zone of the policy, to which days and weeks refer.")
    overdue: int = Field(
        description="Number of open requests past their deadline and not paused before it; list them by clock=overdue."
    )
    paused: int = Field(description="Number of open requests paused before their deadline; list them by clock=paused.")
    due: list[DueOnDayOut] = Field(description=f"Requests due on each of the next {DAYS} days, today first.")
    later: int = Field(description="Number of requests due later; list them by clock=running and due_from.")
    weeks: list[WeekOut] = Field(description=f"Requests of each of the last {WEEKS} weeks, the current one last.")
    completion: CompletionOut = Field(description="Times to completion of the requests completed in `weeks`.")


SUMMARY = ResourceOperations("Deletion requests", "/v1").operation(
    "summarise_deletion_requests",
    "GET",
    "/deletion-requests:summary",
    scope=Scope.REQUESTS_READ,
    gives=SummaryOut,
    does="Count the requests due on each of the next days, received and completed in each of the last weeks, and "
    "their times to completion. Every count equals that of the list with the named filters. Callers who may not learn "
    "whether anything is held see requests completed at their report time, as everywhere.",
)


class CostOut(Answer):
    """Cost of a model with default settings except for target and `l2`, from public numbers alone."""

    epsilon: float = Field(description="Epsilon of the target, in nats.")
    delta: float = Field(description="Delta of the target.")
    l2: float = Field(description="L2 regularisation.")
    noise: float = Field(
        description="Upper bound on the standard deviation of the noise in the score of a row of norm 1; for a "
        "target, in units of half its range."
    )
    learn_passes: float = Field(description="Number of passes over the rows that learning takes.")
    request_passes: float | None = Field(
        description="Number of passes that forgetting the first person alone takes; null if the target is out of reach."
    )


class MethodPlanOut(Answer):
    """Default model by one method at the default target, from public numbers alone. Accuracy is not known from them."""

    method: str = Field(description="Name of the method.")
    refused: str | None = Field(description="Reason why the method cannot learn this; null if it can.")
    learn_passes: float | None = Field(description="Passes over the rows to learn, or their cap; null if refused.")
    request_passes: float | None = Field(
        description="Passes over the rows to forget the first person, or their cap; null if refused."
    )
    deletion: float | None = Field(description="Epsilon of `deletion` of the first person, in nats; null if refused.")
    release: float | None = Field(
        description="Epsilon of `release` of a record in the first version, in nats; null if refused."
    )
    adaptive: list[float] | None = Field(
        description="Epsilon of `adaptive` of a record in all versions, in nats, after 1, 10 and 100 requests of "
        "others with a version each; null if refused."
    )


class MeasuredVersionOut(Answer):
    """Version and its value of a metric on evaluation data."""

    model_id: str = Field(description="ID of the model.")
    name: str = Field(description="Name of the model.")
    version: int = Field(description="Number of the version.")
    live: bool = Field(description="True if the version is live.")
    kind: RunKind = Field(description="Kind of the version's run: learn, unlearn or relearn.")
    epsilon: float = Field(description="Target epsilon of the model, in nats.")
    l2: float = Field(description="L2 regularisation.")
    passes: float = Field(description="Number of passes over the rows that the version's run took.")
    metric: Metric = Field(description="Metric of `value`.")
    value: float = Field(description="Value of the metric on the evaluation dataset.")
    published_at: datetime.datetime = Field(description="Time of publication.")


class PlanOut(Answer):
    dataset_id: str = Field(description="ID of the dataset.")
    objective: str = Field(description="Objective of the planned models.")
    costs: list[CostOut] = Field(description="Costs by `epsilon`, then by `l2`, both ascending.")
    methods: list[MethodPlanOut] = Field(description="Installed methods, compared at the default target.")
    takes: str | None = Field(
        description="Method with the smallest `adaptive` after 10 requests; of methods within 1 % of it, the one with "
        "the fewest passes per request. Null if none can learn this."
    )
    measured: list[MeasuredVersionOut] = Field(
        description="Last 100 versions of the dataset's models with evaluation data, newest first."
    )


class PlanQuery(Query):
    objective: Objective | None = optional("Objective to plan for. Default: the dataset's.")
    loss_width: Positive | None = optional("Width of the loss. Default: that of the objective.")
    metric: Metric | None = optional(
        "Metric of measured versions; versions without it are left out. Default: accuracy, label_accuracy or r_squared."
    )
    l2: Positive | None = optional(
        "L2 regularisation. Default: a quarter of the default, the default, and four times the default."
    )


PLAN = _ACCOUNTING.of_one(
    "get_plan",
    "GET",
    "/datasets/{dataset_id}/plan",
    scope=Scope.ACCOUNTING_READ,
    query=PlanQuery,
    gives=PlanOut,
    problems=(problems.DatasetUnknown, problems.PreconditionFailed),
    does="Return the cost of models of the dataset at targets from 1/4 to 8, in noise and passes, from public numbers "
    "alone, together with the metrics that existing models have reached on evaluation data. Rows of the dataset are "
    "not read: `lethe model plan FILE` tries out a local file.",
)


class EpsilonsOut(Answer):
    """Epsilons by notion, each rounded up; they must not be added."""

    unlearning: float = Field(description="Joint epsilon of all people deleted since the chain began, in nats.")
    deletion: float | None = Field(
        description="Epsilon of the person with most records in this run, in nats; null if the run forgets no one."
    )
    adaptive: float = Field(description="Epsilon of one record still present, to readers of every version, in nats.")
    release: float = Field(description="Epsilon of one record still present, given the previous version, in nats.")


class PointOut(Answer):
    step: int = Field(description="Number of steps since the run began; at 0 the records to forget are null.")
    influence: float = Field(description="Influence W of all people deleted since the chain began.")
    presence: float = Field(description="Influence W of one record still present.")
    noise_variance: float = Field(description="Variance V of the noise per coordinate.")
    epsilon: EpsilonsOut = Field(description="Epsilon by notion.")
    epsilon_of_one: float = Field(
        description="Epsilon of `deletion`, in nats, if one remaining record became null at this last step."
    )


class SegmentOut(Answer):
    """Run behind one ledger entry, which is also one release."""

    sequence: int = Field(description="Position of the ledger entry.")
    version: int = Field(description="Number of the version.")
    kind: RunKind = Field(description="Kind of the run.")
    run_id: str = Field(description="ID of the run.")
    revision: int = Field(description="Revision of the dataset.")
    recorded_at: datetime.datetime = Field(description="Time of the ledger entry.")
    steps_before: int = Field(
        description="Number of steps of the model before this run, where its points begin in a plot."
    )
    steps: int = Field(description="Number of steps of the run.")
    records: int = Field(description="Number of records that were erased for the run.")
    requests: int = Field(description="Number of requests that the run served.")
    largest: int | None = Field(
        description="Maximum number of forgotten records of one person; null if the run served no request."
    )
    guarantees: list[GuaranteeOut] = Field(description="Guarantees recorded in the ledger, which the last point shows.")
    adaptive: GuaranteeOut | None = Field(
        description="`adaptive` guarantee of the person with most forgotten records, over every version of the "
        "dataset's models that the person fed; null if the run served no request."
    )
    exports: int = Field(description="Number of exports of the version's weights.")
    points: list[PointOut] = Field(description="Points of the curve, in the order of steps.")


class TrajectoryOut(PageOut[SegmentOut]):
    model_id: str = Field(description="ID of the model.")
    target: TargetOut = Field(description="Target of forgetting.")
    items: list[SegmentOut] = Field(description="Runs of the page, newest first.")


class TrajectoryQuery(Paging):
    points: Annotated[int, Field(ge=2, le=500, description="Maximum number of points per run.")] = 50


TRAJECTORY = _ACCOUNTING.of_one(
    "get_trajectory",
    "GET",
    "/models/{model_id}/trajectory",
    scope=Scope.ACCOUNTING_READ,
    query=TrajectoryQuery,
    gives=TrajectoryOut,
    problems=(problems.ModelUnknown, problems.InputInvalid),
    does="Return influence and epsilon after each step of learning and of every deletion since, from the ledger "
    "alone: the statement of a certificate if the run had been planned to end there. At most `points` per run, "
    "densest where they change most, and 10,000 in all; newest run first.",
)


class NextRequestOut(Answer):
    kind: str = Field(description="Kind of the run that would forget one more record: unlearn or relearn.")
    steps: int = Field(description="Number of steps of the run that would forget one more record.")
    epsilon_without_steps: float = Field(
        description="Epsilon of `unlearning`, in nats, if the record were erased and no step followed."
    )


class ReleasesLeftOut(Answer):
    epsilon: float = Field(
        description="Epsilon of the `adaptive` budget (nats): of the query, else the dataset's, else the model's "
        "target."
    )
    delta: float = Field(description="Delta of the budget: of the query, else the dataset's, else the model's target.")
    steps_per_release: int = Field(description="Number of steps that forgetting one more record takes now.")
    records: int = Field(description="Number of the person's records, in every version of all the dataset's models.")
    count: int | None = Field(
        description="Number of versions left within the budget if only this model publishes; null if it is exceeded."
    )


class ResetOut(Answer):
    steps: int = Field(description="Minimum number of steps after which `reset` meets the model's target.")
    guarantee: GuaranteeOut = Field(description="`reset` guarantee after these steps.")


class NextRunOut(Answer):
    kind: str = Field(description="Kind of the run: learn, unlearn or relearn.")
    steps: int = Field(description="Number of steps of the run.")
    reason: str = Field(description="Explanation of this kind and number of steps.")
    records: int = Field(description="Number of records that the run would forget.")


class LargeRequestOut(Answer):
    request_id: str = Field(description="ID of the deletion request.")
    records: int = Field(description="Number of rows of the person in the model's dataset.")


class ModelBudgetOut(Answer):
    model_id: str = Field(description="ID of the model.")
    version: int | None = Field(description="Number of the live version; null before the first version.")
    target: TargetOut = Field(description="Target of the model's `unlearning` guarantee.")
    releases: int = Field(description="Number of versions published so far, including destroyed and lost ones.")
    mu: float = Field(description="`adaptive` mu of one record over these versions; squares of all models add up.")
    releases_left: ReleasesLeftOut | None = Field(
        description="Number of versions that still fit; null before the first."
    )
    room: int | None = Field(
        description="Maximum records forgotten together in fewer steps than relearning; null before the first version."
    )
    next_run: NextRunOut | None = Field(description="Run that would serve waiting requests now; null if none waits.")
    relearning: list[LargeRequestOut] = Field(description="Open requests that each force relearning, the largest 100.")


class DatasetAccountOut(Answer):
    dataset_id: str = Field(description="ID of the dataset.")
    used: GuaranteeOut | None = Field(
        description="`adaptive` guarantee of one record in every version of every model; null without versions."
    )
    models: list[ModelBudgetOut] = Field(description="Account of each model of the dataset.")


class AccountOut(Answer):
    model_id: str = Field(description="ID of the model.")
    version: int = Field(description="Number of the live version.")
    influence: float = Field(
        description="Influence W: bound on the parameter shift by all edits so far, each at its worst position."
    )
    noise_variance: float = Field(description="Variance V of the noise in each coordinate of the live version.")
    mu: float = Field(description="Mu of `unlearning`, counting rows erased since the live version was published.")
    guarantees: list[GuaranteeOut] = Field(
        description="`unlearning` of erased rows, without people in `waiting`, and `release` of a record present."
    )
    waiting: WaitingOut = Field(description="People with open requests whose rows are not erased yet.")
    releases: int = Field(description="Number of versions of the model on record, including destroyed ones.")
    next_request: NextRequestOut = Field(description="Run that forgetting one more record would take.")
    releases_left: ReleasesLeftOut = Field(description="Number of versions that still fit an `adaptive` budget.")
    reset: ResetOut | None = Field(description="Run after which initial weights no longer matter; null if too long.")


class StatementOut(Answer):
    model_id: str = Field(description="ID of the model.")
    certificate_id: str = Field(description="ID of the certificate.")
    version: int = Field(description="Number of the version that the certificate covers.")
    signed: list[GuaranteeOut] = Field(description="Guarantees that the certificate states.")
    today: list[GuaranteeOut] = Field(description="The same guarantees, recomputed for the current live version.")


class RequestAccountOut(Answer):
    request_id: str = Field(description="ID of the deletion request.")
    models: list[StatementOut] = Field(description="One statement per certificate of the request.")
    joint: JointOut | None = Field(
        description="Guarantee over all models that carried the person, except models destroyed before they forgot; "
        "null if there is none or one must still forget."
    )


class AccountQuery(Query):
    adaptive_epsilon: Annotated[
        Positive | None,
        Field(description="Epsilon of the budget, in nats. Default: the dataset's, else the model's target."),
    ] = None
    adaptive_delta: Annotated[
        float | None,
        Field(gt=0, lt=1, description="Delta of the budget. Default: the dataset's, else the model's target."),
    ] = None


MODEL = _ACCOUNTING.of_one(
    "get_account",
    "GET",
    "/models/{model_id}",
    scope=Scope.ACCOUNTING_READ,
    query=AccountQuery,
    gives=AccountOut,
    problems=(problems.ModelUnknown, problems.ModelNotLive, problems.ModelRetired),
    does="Return the guarantees of the live version, the cost of forgetting one more record, and the number of "
    "further versions that a remaining person can feed before the `adaptive` guarantee exceeds a budget.",
)
DELETION_REQUEST = _ACCOUNTING.of_one(
    "get_request_account",
    "GET",
    "/deletion-requests/{request_id}",
    scope=Scope.ACCOUNTING_READ,
    gives=RequestAccountOut,
    problems=(problems.RequestUnknown, problems.CertificateDamaged),
    does="Return the guarantees signed for a request, the same guarantees for the current live versions, and the "
    "joint guarantee over all models.",
)
DATASET = _ACCOUNTING.of_one(
    "get_dataset_account",
    "GET",
    "/datasets/{dataset_id}",
    scope=Scope.ACCOUNTING_READ,
    query=AccountQuery,
    gives=DatasetAccountOut,
    problems=(problems.DatasetUnknown,),
    does="Return the `adaptive` guarantee of one record that fed every version of every model, the number of versions "
    "that still fit a budget, and the open requests that force relearning.",
)
