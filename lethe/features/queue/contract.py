"""Operation on the queue of work."""

import datetime

from pydantic import Field

from lethe.contract.fields import Answer
from lethe.contract.operation import ResourceOperations
from lethe.contract.runs import RunOut
from lethe.contract.sets import QueueRule, Scope


class DueOut(Answer):
    """Rule by which a dataset is due."""

    rule: QueueRule = Field(description="Rule by which the dataset is due.")
    since: datetime.datetime | None = Field(description="Time since which the rule holds; null after a cut-off run.")
    first_due_at: datetime.datetime | None = Field(description="Earliest deadline of waiting requests; null if none.")


class QueuedOut(Answer):
    dataset_id: str = Field(description="ID of the dataset.")
    model_ids: list[str] = Field(description="IDs of the models that will run, next first, at most 20.")
    due: list[DueOut] = Field(description="Rules by which the dataset is due.")
    urgent: bool = Field(description="True if a request is due within a week; such datasets go first.")


class HourOut(Answer):
    begins_at: datetime.datetime = Field(description="Start of the hour.")
    published: int = Field(description="Number of runs that started in this hour and succeeded.")
    failed: int = Field(description="Number of runs of this hour that failed, were abandoned or cancelled.")


class QueueOut(Answer):
    at: datetime.datetime = Field(description="Time of the answer.")
    next: list[QueuedOut] = Field(
        description="Due datasets without a run, in the order in which workers claim them; at most 100 per rule."
    )
    running: list[RunOut] = Field(description="Runs in progress, the newest 100.")
    hours: list[HourOut] = Field(description="Runs of the last 24 hours, by hour, oldest first.")


QUEUE = ResourceOperations("Runs", "/v1").operation(
    "get_queue",
    "GET",
    "/queue",
    scope=Scope.ACCOUNTING_READ,
    gives=QueueOut,
    does="Return the next datasets and the rules by which they are due, the runs in progress, and the number of runs "
    "in each hour of the last day, from which a caller could learn whether anything is held.",
)
