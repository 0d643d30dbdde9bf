"""Operation that returns the work queue."""

import datetime

from pydantic import Field

from lethe.contract import fields, operation, runs, sets


class DueOut(fields.Answer):
    """Rule that makes a dataset due for a run."""

    rule: sets.QueueRule = Field(description="Rule by which the dataset needs a run.")
    since: datetime.datetime | None = Field(description="Time the rule began to apply; null after an interrupted run.")
    first_due_at: datetime.datetime | None = Field(description="Earliest deadline of a waiting request; null if none.")


class QueuedOut(fields.Answer):
    dataset_id: str = Field(description="ID of the dataset.")
    model_ids: list[str] = Field(description="IDs of the models to run next, in order, at most 20.")
    due: list[DueOut] = Field(description="Rules by which the dataset needs a run.")
    urgent: bool = Field(description="True if a request is due within a week. Such datasets come first.")


class HourOut(fields.Answer):
    begins_at: datetime.datetime = Field(description="Time at which the hour begins.")
    published: int = Field(description="Number of runs that started in this hour and were successful.")
    failed: int = Field(description="Number of runs started in this hour that failed or were abandoned or cancelled.")


class QueueOut(fields.Answer):
    at: datetime.datetime = Field(description="Time at which the response was computed.")
    next: list[QueuedOut] = Field(
        description="Datasets that need a run but have none yet, in the order workers claim them; at most 100 per rule."
    )
    running: list[runs.RunOut] = Field(description="The 100 newest runs in progress.")
    hours: list[HourOut] = Field(description="Number of runs in each of the last 24 hours, oldest first.")


QUEUE = operation.ResourceOperations("Runs", "/v1").operation(
    "get_queue",
    "GET",
    "/queue",
    scope=sets.Scope.ACCOUNTING_READ,
    gives=QueueOut,
    does="Return the datasets that are next in line and the rules by which they need a run, the runs in progress, and "
    "the number of runs in each hour of the last day. A caller could infer from them whether data is held.",
)
