"""Runs of workers, and the results of their canary tests."""

import datetime

from pydantic import ConfigDict, Field

from lethe.contract.fields import Answer, PageOut, Paging, optional
from lethe.contract.operation import ResourceOperations
from lethe.contract.problems import RunNotCancellable, RunUnknown
from lethe.contract.sets import RunKind, RunOrder, RunStatus, Scope


class GuessesOut(Answer):
    true_positives: int = Field(description="Number of lanes with a canary that were guessed to have one.")
    members: int = Field(description="Number of lanes with a canary.")
    false_positives: int = Field(description="Number of lanes without a canary that were guessed to have one.")
    nonmembers: int = Field(description="Number of lanes without a canary.")


class AuditOut(Answer):
    """Result of a run's canary test. One canary stands for `records` worst-case records, so that few lanes suffice."""

    # `visits` is always present.
    model_config = ConfigDict(json_schema_serialization_defaults_required=True)

    lanes: int = Field(description="Number of lanes: coordinates that no row touches, half of them with a canary.")
    steps_before: int = Field(description="Steps with the canaries before the run; 0 if present during the run.")
    steps: int = Field(description="Number of steps of the run.")
    records: int = Field(description="Number of worst-case records that one canary stands for.")
    guesses: GuessesOut = Field(description="Guesses about which lanes have a canary.")
    squares: float = Field(
        description="Sum of squared normalised residuals, each less the mean of its group: chi-squared, with `lanes` "
        "minus the degrees of freedom of `visits`, if the noise is correct."
    )
    drift: float = Field(description="Residuals along the lanes' starting points; standard normal in a faultless run.")
    visits: float | None = optional(
        "Sum of squared means of groups of lanes, which batches read out of turn would move: chi-squared, "
        "with a sixteenth of `lanes` degrees of freedom, from 1 to 64. Null for canary tests without this part."
    )
    notion: str = Field(description="Guarantee tested: deletion (canaries forgotten) or release (canaries present).")
    mu: float = Field(description="Certified mu of one record (zero_out).")
    epsilon: float = Field(description="Epsilon in nats that mu implies at the delta of the target.")
    mu_lower_bound: float = Field(
        description="Lower bound on mu, proved by guesses about canaries; at most mu if the run is published."
    )
    epsilon_lower_bound: float = Field(description="Epsilon in nats that mu_lower_bound proves at the same delta.")
    error: float = Field(description="Largest probability with which a faultless run reports a false lower bound.")
    findings: list[str] = Field(description="Faults found: guarantee, noise, forgetting or schedule; empty if none.")


class RunOut(Answer):
    id: str = Field(description="ID of the run.")
    kind: RunKind = Field(description="Kind of the run.")
    status: RunStatus = Field(description="Status of the run.")
    dataset_id: str = Field(description="ID of the dataset.")
    model_id: str | None = Field(description="ID of the model; null for a run on rows alone.")
    steps_done: int = Field(description="Number of steps done so far.")
    steps_total: int = Field(description="Number of steps planned.")
    records: int = Field(description="Number of records that the run forgets.")
    reason: str = Field(description="Explanation of the kind and number of steps.")
    worker: str = Field(description="Name of the worker.")
    started_at: datetime.datetime = Field(description="Time at which a worker claimed the run.")
    finished_at: datetime.datetime | None = Field(description="Time at which the run ended; null while it is running.")
    seconds_left: float | None = Field(
        description="Estimated seconds left, by the run's own pace and past runs; null once ended or if unknown."
    )
    expected_at: datetime.datetime | None = Field(description="Estimated end; null if seconds_left is null.")
    error_code: str | None = Field(description="Error code; null if the run did not fail.")
    repeated: int = Field(description="Number of earlier runs that ended for the same reason and are not kept.")
    audit: AuditOut | None = Field(description="Result of the canary test; null if the run had none.")


class RunQuery(Paging):
    model_id: str | None = optional("Only runs of this model.")
    status: RunStatus | None = optional("Only runs with this status.")
    unresolved: bool = Field(default=False, description="Only failed or abandoned runs without a later success.")
    order: RunOrder = Field(default=RunOrder.NEWEST, description="Order by start.")


_RUNS = ResourceOperations("Runs", "/v1/runs", RunUnknown)

LIST = _RUNS.operation(
    "list_runs",
    "GET",
    scope=Scope.MODELS_READ,
    query=RunQuery,
    gives=PageOut[RunOut],
    does="List runs, newest first by default; filters by model and status apply together.",
)
GET = _RUNS.of_one(
    "get_run",
    "GET",
    "/{run_id}",
    scope=Scope.MODELS_READ,
    gives=RunOut,
    does="Return the progress of a run, or how it ended.",
)
CANCEL = _RUNS.of_one(
    "cancel_run",
    "POST",
    "/{run_id}/cancel",
    scope=Scope.MODELS_WRITE,
    gives=RunOut,
    problems=(RunNotCancellable,),
    does="Stop a run that learns, tests or rehearses, and discard its results; 409 for a run that has ended or "
    "that serves a deletion request. A model without a version is `cancelled` then: relearn or retire it.",
)
