"""Runs: what workers did and are doing, and what the canary tests of runs showed."""

import datetime

from pydantic import ConfigDict, Field

from lethe.contract.choices import RunOrder
from lethe.contract.fields import Answer, PageOut, Paging
from lethe.contract.operation import Resource, of_one
from lethe.contract.problems import RunNotCancellable, RunUnknown
from lethe.contract.sets import QueueRule, RunKind, RunStatus, Scope


class GuessesOut(Answer):
    true_positives: int = Field(description="Lanes with a canary that were said to have one.")
    members: int
    false_positives: int
    nonmembers: int


class AuditOut(Answer):
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


class RunOut(Answer):
    id: str
    kind: RunKind
    status: RunStatus
    dataset_id: str
    model_id: str | None
    steps_done: int
    steps_total: int
    records: int
    reason: str
    worker: str
    started_at: datetime.datetime
    finished_at: datetime.datetime | None
    seconds_left: float | None = Field(
        description="How much longer a run under way takes, by its own pace and by the model's past runs. null: it has "
        "ended, or nothing is known yet."
    )
    expected_at: datetime.datetime | None = Field(description="When it has ended by that; null as `seconds_left`.")
    error_code: str | None
    repeated: int = Field(description="Runs before it that ended for the same reason, and are not kept.")
    audit: AuditOut | None


class RunQuery(Paging):
    model_id: str | None = None
    status: RunStatus | None = None
    unresolved: bool = Field(
        default=False, description="Only those that failed or were abandoned and that no later run made good."
    )
    order: RunOrder = RunOrder.NEWEST


class DueOut(Answer):
    """A rule by which a dataset is due."""

    rule: QueueRule
    since: datetime.datetime | None = Field(description="null: since a run that did not come to its end.")
    first_due_at: datetime.datetime | None = Field(description="The earliest deadline; null: nobody waits for it.")


class QueuedOut(Answer):
    dataset_id: str
    model_ids: list[str] = Field(description="Its models that are to run, the next first, 20 at most.")
    due: list[DueOut]
    urgent: bool = Field(description="A request is due within a week: it goes before whatever has none.")


class HourOut(Answer):
    begins_at: datetime.datetime
    published: int = Field(description="Runs that began in this hour and came to their end.")
    failed: int = Field(description="Those that failed, were abandoned or cancelled.")


class QueueOut(Answer):
    at: datetime.datetime
    next: list[QueuedOut] = Field(
        description="Datasets that are due and free, in the order in which workers take this tenant's; 100 at most "
        "by each rule."
    )
    running: list[RunOut] = Field(description="Runs under way, the newest 100.")
    hours: list[HourOut] = Field(description="The last 24 hours, the oldest first.")


_RUNS = Resource("Runs", "/v1/runs")

LIST = _RUNS.operation(
    "list_runs",
    "GET",
    scope=Scope.MODELS_READ,
    query=RunQuery,
    gives=PageOut[RunOut],
    does="Of all models or of one, whatever became of them or those of one status, newest first.",
)
GET = of_one(
    _RUNS.operation(
        "get_run",
        "GET",
        "/{run_id}",
        scope=Scope.MODELS_READ,
        gives=RunOut,
        problems=(RunUnknown,),
        does="How far a run is, or how it ended.",
    )
)
CANCEL = of_one(
    _RUNS.operation(
        "cancel_run",
        "POST",
        "/{run_id}/cancel",
        scope=Scope.MODELS_WRITE,
        gives=RunOut,
        problems=(RunUnknown, RunNotCancellable),
        does="Stop a run that learns, audits or rehearses; 409 for one that has ended, or that somebody waits for who "
        "asked to be forgotten. What it computed is thrown away. A model without a version is `cancelled` then: "
        "relearn or retire it.",
    )
)
QUEUE = Resource("Runs", "/v1").operation(
    "get_queue",
    "GET",
    "/queue",
    scope=Scope.ACCOUNTING_READ,
    gives=QueueOut,
    does="What is next and by which rule, what each worker runs, and how many runs there were in each hour of the last "
    "day. Who may not learn whether anything is held could tell it from this.",
)
