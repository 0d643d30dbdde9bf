"""Workers' runs, and the results of their canary tests."""

import datetime

from pydantic import ConfigDict, Field

from lethe.contract import fields, operation, problems, sets


class GuessesOut(fields.Answer):
    true_positives: int = Field(description="Number of lanes with a canary that were correctly guessed to have one.")
    members: int = Field(description="Number of lanes with a canary.")
    false_positives: int = Field(description="Number of lanes without a canary that were wrongly guessed to have one.")
    nonmembers: int = Field(description="Number of lanes without a canary.")


class AuditOut(fields.Answer):
    """Result of a run's canary test. One canary represents `records` worst-case records, so that few lanes suffice."""

    # `visits` is always present.
    model_config = ConfigDict(json_schema_serialization_defaults_required=True)

    lanes: int = Field(description="Number of lanes: coordinates that no row affects, half of which have a canary.")
    steps_before: int = Field(description="Number of earlier steps that trained on the canaries; 0 if this run does.")
    steps: int = Field(description="Number of steps in the run.")
    records: int = Field(description="Number of worst-case records that each canary represents.")
    guesses: GuessesOut = Field(description="Results of guessing which lanes have a canary.")
    squares: float = Field(
        description="Sum of squared normalised residuals, each less its group's mean. If the noise is correct, it is "
        "chi-squared; its degrees of freedom are `lanes` minus those of `visits`."
    )
    drift: float = Field(description="Residuals projected onto the lanes' starts; standard normal in a correct run.")
    visits: float | None = fields.optional(
        "Sum of the lane groups' squared means, which shift if batches are read out of order. In a correct run: "
        "chi-squared with `lanes`/16 degrees of freedom (1 to 64). Null for tests without this statistic."
    )
    notion: str = Field(description="Guarantee tested: deletion (canaries forgotten) or release (canaries present).")
    mu: float = Field(description="Certified mu for one record (zero_out).")
    epsilon: float = Field(description="Epsilon in nats implied by mu at the target's delta.")
    mu_lower_bound: float = Field(
        description="Lower bound on mu proved by guessing canaries; at most mu if the run is published."
    )
    epsilon_lower_bound: float = Field(description="Epsilon in nats implied by mu_lower_bound at the same delta.")
    error: float = Field(description="Maximum probability that a correct run reports a false lower bound.")
    findings: list[str] = Field(description="Faults detected: guarantee, noise, forgetting or schedule; empty if none.")


class RunOut(fields.Answer):
    id: str = Field(description="ID of the run.")
    kind: sets.RunKind = Field(description="Kind of the run.")
    status: sets.RunStatus = Field(description="Status of the run.")
    dataset_id: str = Field(description="ID of the dataset.")
    model_id: str | None = Field(description="ID of the model; null if the run concerns only the dataset's rows.")
    steps_done: int = Field(description="Number of steps done so far.")
    steps_total: int = Field(description="Total number of steps planned.")
    records: int = Field(description="Number of records to be forgotten in this run.")
    reason: str = Field(description="Explanation of why the run has this kind and number of steps.")
    worker: str = Field(description="Name of the worker that claimed the run.")
    started_at: datetime.datetime = Field(description="Time at which the worker claimed the run.")
    finished_at: datetime.datetime | None = Field(description="Time at which the run ended; null while it is running.")
    seconds_left: float | None = Field(
        description="Estimated seconds left, based on this and past runs; null if unknown or the run has ended."
    )
    expected_at: datetime.datetime | None = Field(description="Estimated end of the run; null if seconds_left is null.")
    error_code: str | None = Field(description="Code of the error; null if the run did not fail.")
    repeated: int = Field(description="Number of preceding runs that ended for the same reason and were not stored.")
    audit: AuditOut | None = Field(description="Result of the run's canary test; null if the run was not tested.")


class RunQuery(fields.Paging):
    model_id: str | None = fields.optional("Only runs of this model.")
    status: sets.RunStatus | None = fields.optional("Only runs with this status.")
    unresolved: bool = Field(default=False, description="Only failed or abandoned runs not followed by a success.")
    order: sets.RunOrder = Field(default=sets.RunOrder.NEWEST, description="Sort order, by start time.")


_RUNS = operation.ResourceOperations("Runs", "/v1/runs", problems.RunUnknown)

LIST = _RUNS.operation(
    "list_runs",
    "GET",
    scope=sets.Scope.MODELS_READ,
    query=RunQuery,
    gives=fields.PageOut[RunOut],
    does="List runs, newest first by default. If given, the model and status filters must both match.",
)
GET = _RUNS.of_one(
    "get_run", "GET", "/{run_id}", scope=sets.Scope.MODELS_READ, gives=RunOut, does="Return a run's progress or result."
)
CANCEL = _RUNS.of_one(
    "cancel_run",
    "POST",
    "/{run_id}/cancel",
    scope=sets.Scope.MODELS_WRITE,
    gives=RunOut,
    problems=(problems.RunNotCancellable,),
    does="Stop a training, canary test or rehearsal run and discard its results. Returns 409 if the run has ended or "
    "serves a deletion request. A model without a version is then `cancelled`: relearn or retire it.",
)
