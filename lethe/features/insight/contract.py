"""Operations on the cost of forgetting: accounts, previews, model plans, and a model's step-by-step history."""

import datetime
from typing import Annotated

from pydantic import Field

from lethe.contract import deletion_requests, fields, operation, problems
from lethe.contract.certificates import GuaranteeOut, JointOut, TargetOut
from lethe.contract.models import Objective, WaitingOut
from lethe.contract.sets import Metric, RunKind, Scope, WaitReason

EXPECTED_REQUESTS = 9
"""Default number of further requests; together with the first request they make a batch of ten."""


class PreviewIn(fields.Body):
    model_config = fields.example(model_id="mdl_6f1c", num_records=3)

    model_id: str = Field(description="ID of the model.")
    num_records: Annotated[int, Field(ge=1, le=2**31 - 1, description="Number of records to forget.")] = 1
    epsilon: fields.Positive | None = fields.optional("Target epsilon, in nats. Default: the model's target.")
    delta: fields.Delta | None = fields.optional("Target delta. Default: the model's target.")
    steps: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = fields.optional(
        "Number of steps to preview. Default: the minimum that reaches the target."
    )
    batch: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = fields.optional(
        "Number of records per run in `schedule`, which can have at most 100 runs. Default: all records in one run."
    )
    expected_requests: Annotated[int, Field(ge=1, le=100)] = Field(
        default=EXPECTED_REQUESTS,
        description="Number of further requests, each with `num_records` records, over which `options` are compared.",
    )


_SECONDS = "Estimated seconds from claim to publication, from the model's past runs; null before its first version."


class OptionOut(fields.Answer):
    kind: str = Field(description="Way to forget: unlearn (now), batch (wait for expected requests) or relearn.")
    steps: int = Field(description="Number of steps of this option's run.")
    steps_per_request: float = Field(
        description="Mean number of steps per request if all expected requests are handled this way."
    )
    epsilon: float = Field(description="Epsilon of the `unlearning` guarantee after this option's run, in nats.")
    seconds: float | None = Field(description=_SECONDS)
    reason: str = Field(description="Explanation of this option's number of steps.")


class ScheduleOut(fields.Answer):
    """Schedule that forgets `batch` records at a time and reaches the target before the next batch starts."""

    batch: int = Field(description="Number of records per run.")
    runs: int = Field(description="Number of runs in the schedule.")
    relearned: int = Field(description="Number of runs that relearn because unlearning would be no cheaper.")
    steps: int = Field(description="Total number of steps in all runs.")
    longest: int = Field(description="Number of steps of the longest run.")
    seconds: float | None = Field(description=_SECONDS)
    epsilon: float = Field(description="Epsilon of `unlearning` after the last run, in nats.")


class PaceOut(fields.Answer):
    seconds_per_run: float = Field(description="Fixed overhead of a run in seconds.")
    seconds_per_step: float = Field(description="Additional seconds per step.")
    runs: int = Field(description="Number of runs measured; at most the last 20.")


class PreviewOut(fields.Answer):
    kind: str = Field(description="Kind of run needed: unlearn or relearn.")
    steps: int = Field(description="Number of steps in the run.")
    reason: str = Field(description="Explanation of why this kind and number of steps are needed.")
    seconds: float | None = Field(description=_SECONDS)
    epsilon_without_steps: float = Field(
        description="Epsilon of `unlearning`, in nats, if the rows were erased and no steps were taken."
    )
    guarantees: list[GuaranteeOut] = Field(description="`unlearning` and `release` guarantees after the run.")
    schedule: ScheduleOut = Field(description="Schedule for forgetting the records in batches, one run after another.")
    options: list[OptionOut] = Field(description="Ways to forget the records, cheapest per request first.")
    pace: PaceOut | None = Field(description="Measured speed of the model's runs; null before the first version.")


_ACCOUNTING = operation.ResourceOperations("Accounting", "/v1/accounting")

PREVIEW = _ACCOUNTING.operation(
    "preview",
    "POST",
    "/preview",
    scope=Scope.ACCOUNTING_READ,
    takes=PreviewIn,
    gives=PreviewOut,
    repeat="idempotent",
    problems=(problems.ModelUnknown, problems.ModelNotLive, problems.ModelRetired),
    does="Preview the run that would forget `num_records` more records to a given target, or the effect of a given "
    "number of steps, together with alternatives. Nothing is changed.",
)


class DatasetToEraseOut(fields.Answer):
    dataset_id: str = Field(description="ID of the dataset.")
    rows: int = Field(description="Number of rows to erase.")


class ModelToForgetOut(fields.Answer):
    """One model's part in a request. `kind`, `steps`, `passes` and `seconds` describe a run for this request alone."""

    model_id: str = Field(description="ID of the model.")
    name: str = Field(description="Name of the model.")
    version: int | None = Field(
        description="Number of the live version, which will be replaced and destroyed; null if there is none."
    )
    rows: int = Field(description="Number of the person's rows in the model's dataset.")
    kind: RunKind | None = Field(description="Kind of run for this request alone; null if there is no live version.")
    steps: int | None = Field(description="Number of steps for this request alone; null if no version is live.")
    passes: float | None = Field(
        description="Number of passes over all rows for this request alone; null if there is no live version."
    )
    seconds: float | None = Field(
        description="Estimated seconds for this request alone; null if no run has been measured."
    )
    reason: WaitReason | None = Field(description="Reason why the request is waiting for this model; null if unknown.")
    waiting: int = Field(description="Number of requests that are waiting for this reason.")
    batch: int | None = Field(
        description="Number of waiting requests that triggers a run; null if only the waiting time does."
    )
    until: datetime.datetime | None = Field(description="Latest time at which the wait ends; null if unknown.")


class RequestPreviewOut(fields.Answer):
    request_id: str = Field(description="ID of the request.")
    is_open: bool = Field(description="True until the request ends or a run claims it; then both lists are empty.")
    datasets: list[DatasetToEraseOut] = Field(description="Number of rows to erase in each dataset.")
    models: list[ModelToForgetOut] = Field(description="Models that must forget the person.")


PREVIEW_REQUEST = deletion_requests.REQUESTS.of_one(
    "preview_deletion_request",
    "GET",
    "/{request_id}/preview",
    scope=Scope.ACCOUNTING_READ,
    gives=RequestPreviewOut,
    does="Preview a request that is undecided or waiting: the rows it would erase now, the versions it would replace, "
    "the cost in passes and seconds, and why it is waiting. Nothing is changed.",
)


DAYS, WEEKS = 30, 12
"""Number of days ahead and number of weeks back covered by a summary."""


class DueOnDayOut(fields.Answer):
    day: datetime.date = Field(description="Day, in the time zone of the tenant's policy.")
    requests: int = Field(description="Requests due on the day (filters: clock=running, due_from, due_before).")


class WeekOut(fields.Answer):
    starts: datetime.date = Field(description="Monday on which the week starts.")
    received: int = Field(description="Requests submitted in the week (filters: received_from, received_before).")
    completed: int = Field(description="Requests completed in the week (filters: completed_from, completed_before).")


class CompletionOut(fields.Answer):
    """Times to completion of the requests completed during `weeks`, in whole days from submitted_at to completed_at."""

    requests: int = Field(description="Number of requests completed during `weeks`.")
    median_days: int | None = Field(description="Median number of days to completion; null if none was completed.")
    p90_days: int | None = Field(description="90th percentile of days to completion; null if none was completed.")
    share_in_time: float | None = Field(description="Fraction completed before the deadline; null if none completed.")


class SummaryOut(fields.Answer):
    at: datetime.datetime = Field(description="Time at which the summary was computed.")
    time_zone: str = Field(description="Time zone of the tenant's policy, in which days and weeks are counted.")
    overdue: int = Field(
        description="Number of open requests that passed their deadline while not paused; filter by clock=overdue."
    )
    paused: int = Field(description="Number of open requests paused before their deadline; filter by clock=paused.")
    due: list[DueOnDayOut] = Field(description=f"Requests due on each of the next {DAYS} days, starting today.")
    later: int = Field(description="Number of requests due later; filter by clock=running and due_from.")
    weeks: list[WeekOut] = Field(description=f"Requests in each of the last {WEEKS} weeks, the current week last.")
    completion: CompletionOut = Field(description="Completion times of the requests completed during `weeks`.")


SUMMARY = operation.ResourceOperations("Deletion requests", "/v1").operation(
    "summarise_deletion_requests",
    "GET",
    "/deletion-requests:summary",
    scope=Scope.REQUESTS_READ,
    gives=SummaryOut,
    does="Count the requests due on each of the next days and those received and completed in each of the last weeks, "
    "with their completion times. Every count equals the length of the list with the stated filters. For callers who "
    "are not allowed to know whether data is held, requests count as completed at their report time.",
)


class CostOut(fields.Answer):
    """Cost of a model with default settings except for target and `l2`, computed from public numbers alone."""

    epsilon: float = Field(description="Target epsilon, in nats.")
    delta: float = Field(description="Target delta.")
    l2: float = Field(description="Strength of the L2 regularisation.")
    noise: float = Field(
        description="Upper bound on the standard deviation of the noise in the score of a row of norm 1; for a numeric "
        "target, as a multiple of half its range."
    )
    learn_passes: float = Field(description="Number of passes over the rows needed for training.")
    request_passes: float | None = Field(
        description="Number of passes needed to forget the first person alone; null if the target cannot be reached."
    )


class MethodPlanOut(fields.Answer):
    """Plan for one method at the default target, computed from public numbers alone; it does not predict accuracy."""

    method: str = Field(description="Name of the method.")
    refused: str | None = Field(description="Reason why the method cannot train such a model; null if it can.")
    learn_passes: float | None = Field(description="Number of passes for training, up to a cap; null if refused.")
    request_passes: float | None = Field(
        description="Number of passes over the rows to forget the first person, up to a cap; null if refused."
    )
    deletion: float | None = Field(description="Epsilon of `deletion` for the first person, in nats; null if refused.")
    release: float | None = Field(
        description="Epsilon of `release` for a record in the first version, in nats; null if the method is refused."
    )
    adaptive: list[float] | None = Field(
        description="Epsilon of `adaptive`, in nats, for a record in every version, after 1, 10 and 100 requests about "
        "other people, if one version is published per request; null if the method is refused."
    )


class MeasuredVersionOut(fields.Answer):
    """A version's value of one metric, measured on evaluation data."""

    model_id: str = Field(description="ID of the model.")
    name: str = Field(description="Name of the model.")
    version: int = Field(description="Number of the version.")
    live: bool = Field(description="True if this is the live version.")
    kind: RunKind = Field(description="Kind of run that produced the version: learn, unlearn or relearn.")
    epsilon: float = Field(description="Target epsilon of the model, in nats.")
    l2: float = Field(description="Strength of the L2 regularisation.")
    passes: float = Field(description="Number of passes over the rows in the version's run.")
    metric: Metric = Field(description="Name of the metric in `value`.")
    value: float = Field(description="Value of the metric on the evaluation dataset.")
    published_at: datetime.datetime = Field(description="Time of publication.")


class PlanOut(fields.Answer):
    dataset_id: str = Field(description="ID of the dataset.")
    objective: str = Field(description="Objective of the models being planned.")
    costs: list[CostOut] = Field(description="Costs, sorted by `epsilon` and then `l2`, both ascending.")
    methods: list[MethodPlanOut] = Field(description="Comparison of the installed methods at the default target.")
    takes: str | None = Field(
        description="Method chosen: among those whose `adaptive` epsilon after 10 requests is within 1 % of the "
        "smallest, the one with the fewest passes per request. Null if no method can train the planned models."
    )
    measured: list[MeasuredVersionOut] = Field(
        description="Last 100 measured versions of the dataset's models, newest first."
    )


class PlanQuery(fields.Query):
    objective: Objective | None = fields.optional(
        "Objective to plan for. Default: the default objective for the dataset."
    )
    loss_width: fields.Positive | None = fields.optional("Width of the loss. Default: the objective's default.")
    metric: Metric | None = fields.optional(
        "Metric in `measured`; versions without it are omitted. Default: accuracy, label_accuracy or r_squared."
    )
    l2: fields.Positive | None = fields.optional(
        "Strength of the L2 regularisation. Default: a quarter of the default, the default, and four times the default."
    )


PLAN = _ACCOUNTING.of_one(
    "get_plan",
    "GET",
    "/datasets/{dataset_id}/plan",
    scope=Scope.ACCOUNTING_READ,
    query=PlanQuery,
    gives=PlanOut,
    problems=(problems.DatasetUnknown, problems.PreconditionFailed),
    does="Return what models of the dataset would cost at target epsilons from 1/4 to 8, in noise and passes, "
    "calculated only from public numbers, together with the metrics that existing models have reached on evaluation "
    "data. The dataset's rows are not read; to try out a local file, use `lethe model plan FILE`.",
)


class EpsilonsOut(fields.Answer):
    """Epsilons of the four privacy notions, each rounded up. They must not be added together."""

    unlearning: float = Field(description="Epsilon of `unlearning` in nats for everyone deleted since the chain began.")
    deletion: float | None = Field(
        description="Epsilon of `deletion`, in nats, for the person with the most records; null if no one is forgotten."
    )
    adaptive: float = Field(description="Epsilon of `adaptive` for a remaining record and all versions, in nats.")
    release: float = Field(description="Epsilon for one remaining record, given the previous version, in nats.")


class PointOut(fields.Answer):
    step: int = Field(description="Number of steps since the run began; at 0, the records have just been erased.")
    influence: float = Field(description="Influence W of all people deleted since the chain began.")
    presence: float = Field(description="Influence W of one remaining record.")
    noise_variance: float = Field(description="Variance V of the noise in each coordinate.")
    epsilon: EpsilonsOut = Field(description="Epsilon of each privacy notion after this step.")
    epsilon_of_one: float = Field(
        description="Epsilon of `deletion`, in nats, if one remaining record were set to null after this step."
    )


class SegmentOut(fields.Answer):
    """Run that produced one ledger entry and one release."""

    sequence: int = Field(description="Position of the run's entry in the ledger.")
    version: int = Field(description="Number of the version.")
    kind: RunKind = Field(description="Kind of the run.")
    run_id: str = Field(description="ID of the run.")
    revision: int = Field(description="Revision of the dataset on which the run worked.")
    recorded_at: datetime.datetime = Field(description="Time at which the ledger entry was recorded.")
    steps_before: int = Field(
        description="Number of steps the model had taken before this run; the position of its first point in a plot."
    )
    steps: int = Field(description="Number of steps in the run.")
    records: int = Field(description="Number of records erased for the run.")
    requests: int = Field(description="Number of requests that the run served.")
    largest: int | None = Field(
        description="Largest number of records forgotten for any one person; null if the run served no request."
    )
    guarantees: list[GuaranteeOut] = Field(description="Guarantees recorded in the ledger, which match the last point.")
    adaptive: GuaranteeOut | None = Field(
        description="`adaptive` guarantee for the person with the most forgotten records, over every version of the "
        "dataset's models trained on those records; null if the run served no request."
    )
    exports: int = Field(description="Number of times the version's weights were exported.")
    points: list[PointOut] = Field(description="Points of the curve, in order of steps.")


class TrajectoryOut(fields.PageOut[SegmentOut]):
    model_id: str = Field(description="ID of the model.")
    target: TargetOut = Field(description="Target of the model's `unlearning` guarantee.")
    items: list[SegmentOut] = Field(description="Runs on this page, newest first.")


class TrajectoryQuery(fields.Paging):
    points: Annotated[int, Field(ge=2, le=500, description="Maximum number of points per run.")] = 50


TRAJECTORY = _ACCOUNTING.of_one(
    "get_trajectory",
    "GET",
    "/models/{model_id}/trajectory",
    scope=Scope.ACCOUNTING_READ,
    query=TrajectoryQuery,
    gives=TrajectoryOut,
    problems=(problems.ModelUnknown, problems.InputInvalid),
    does="Return, from the ledger alone, the influence and epsilon after each step of training and of every deletion "
    "since: what a certificate would have stated if the run had been planned to end there. Runs are listed newest "
    "first, each with at most `points` points, densest where values change most. A response has at most 10,000 points.",
)


class NextRequestOut(fields.Answer):
    kind: str = Field(description="Kind of run that would forget one more record: unlearn or relearn.")
    steps: int = Field(description="Number of steps that the run would take.")
    epsilon_without_steps: float = Field(
        description="Epsilon of `unlearning`, in nats, if the record were erased and no steps were taken."
    )


class ReleasesLeftOut(fields.Answer):
    epsilon: float = Field(
        description="Epsilon of the `adaptive` budget, in nats: from the query, or else the dataset, or else the "
        "model's target."
    )
    delta: float = Field(description="Delta of the budget: from the query, else the dataset, else the model's target.")
    steps_per_release: int = Field(description="Number of steps that it now takes to forget one more record.")
    records: int = Field(description="Assumed number of the person's records, in all versions of all models.")
    count: int | None = Field(
        description="Number of versions that still fit if only this model publishes; null if the budget is exceeded."
    )


class ResetOut(fields.Answer):
    steps: int = Field(description="Minimum number of steps after which `reset` meets the model's target.")
    guarantee: GuaranteeOut = Field(description="`reset` guarantee after `steps` steps.")


class NextRunOut(fields.Answer):
    kind: str = Field(description="Kind of run: learn, unlearn or relearn.")
    steps: int = Field(description="Number of steps in the run.")
    reason: str = Field(description="Explanation of why this kind and number of steps are needed.")
    records: int = Field(description="Number of records to be forgotten in the run.")


class LargeRequestOut(fields.Answer):
    request_id: str = Field(description="ID of the deletion request.")
    records: int = Field(description="Number of the person's rows in the model's dataset.")


class ModelBudgetOut(fields.Answer):
    model_id: str = Field(description="ID of the model.")
    version: int | None = Field(description="Number of the live version; null before the first version.")
    target: TargetOut = Field(description="Target of the model's `unlearning` guarantee.")
    releases: int = Field(description="Number of versions published so far, even if destroyed or lost in a restore.")
    mu: float = Field(description="`adaptive` mu for one record over all versions. Squares add up across models.")
    releases_left: ReleasesLeftOut | None = Field(
        description="Number of versions that still fit the budget; null before the first version."
    )
    room: int | None = Field(
        description="Maximum records that one run can unlearn in fewer steps than relearning; null without a version."
    )
    next_run: NextRunOut | None = Field(description="Run that would serve waiting requests now; null if there is none.")
    relearning: list[LargeRequestOut] = Field(description="Open requests that each need relearning; the largest 100.")


class DatasetAccountOut(fields.Answer):
    dataset_id: str = Field(description="ID of the dataset.")
    used: GuaranteeOut | None = Field(
        description="`adaptive` guarantee for one record in every version of every model; null if there is no version."
    )
    models: list[ModelBudgetOut] = Field(description="Budget of each of the dataset's models.")


class AccountOut(fields.Answer):
    model_id: str = Field(description="ID of the model.")
    version: int = Field(description="Number of the live version.")
    influence: float = Field(
        description="Influence W: bound on the parameter shift caused by all edits so far, each at its worst position."
    )
    noise_variance: float = Field(description="Variance V of the noise in each coordinate of the live version.")
    mu: float = Field(description="Mu of `unlearning`, including rows erased since the live version was published.")
    guarantees: list[GuaranteeOut] = Field(
        description="`unlearning` for erased rows (not those of people in `waiting`), `release` for any other record."
    )
    waiting: WaitingOut = Field(description="People with open requests whose rows have not been erased yet.")
    releases: int = Field(description="Number of the model's versions on record, including destroyed ones.")
    next_request: NextRequestOut = Field(description="Run that would be needed to forget one more record.")
    releases_left: ReleasesLeftOut = Field(description="Number of versions that still fit into an `adaptive` budget.")
    reset: ResetOut | None = Field(description="Run meeting the target with `reset`; null if none in LETHE_MAX_STEPS.")


class StatementOut(fields.Answer):
    model_id: str = Field(description="ID of the model.")
    certificate_id: str = Field(description="ID of the certificate.")
    version: int = Field(description="Number of the version covered by the certificate.")
    signed: list[GuaranteeOut] = Field(description="Guarantees stated in the certificate.")
    today: list[GuaranteeOut] = Field(description="Guarantees in the certificate, recomputed for the live version.")


class RequestAccountOut(fields.Answer):
    request_id: str = Field(description="ID of the deletion request.")
    models: list[StatementOut] = Field(description="Signed and current guarantees for each certificate of the request.")
    joint: JointOut | None = Field(
        description="Joint guarantee of all models trained on the person's data, except those destroyed before they "
        "forgot the person; null if there is no such model or one must still forget the person."
    )


class AccountQuery(fields.Query):
    adaptive_epsilon: Annotated[
        fields.Positive | None,
        Field(description="Epsilon of the budget, in nats. Default: the dataset's budget, or else the model's target."),
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
    does="Return the guarantees of the live version, the cost of forgetting one more record, and the number of further "
    "versions that can be trained on a remaining person's data before the `adaptive` guarantee exceeds a budget.",
)
DELETION_REQUEST = _ACCOUNTING.of_one(
    "get_request_account",
    "GET",
    "/deletion-requests/{request_id}",
    scope=Scope.ACCOUNTING_READ,
    gives=RequestAccountOut,
    problems=(problems.RequestUnknown, problems.CertificateDamaged),
    does="Return the guarantees signed for a request, the same guarantees for the current live versions, and the joint "
    "guarantee of all models.",
)
DATASET = _ACCOUNTING.of_one(
    "get_dataset_account",
    "GET",
    "/datasets/{dataset_id}",
    scope=Scope.ACCOUNTING_READ,
    query=AccountQuery,
    gives=DatasetAccountOut,
    problems=(problems.DatasetUnknown,),
    does="Return the `adaptive` guarantee for one record used in every version of every model, the number of versions "
    "that still fit a budget, and the open requests that make relearning necessary.",
)
