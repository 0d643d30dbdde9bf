"""`/datasets/{dataset_id}/records` and `/additions`: rows for a dataset that exists."""

import datetime

from pydantic import Field

from lethe.contract.fields import Answer, PageOut, Paging
from lethe.contract.operation import Resource, of_one, of_two
from lethe.contract.problems import (
    AdditionUnknown,
    DatasetFull,
    DatasetRetired,
    DatasetUnknown,
    DatasetUnusable,
    EvaluationOverlaps,
    IdempotencyConflict,
    PreconditionFailed,
    RowInvalid,
    SchemaInvalid,
    SubjectSuppressed,
    UploadTooLarge,
)
from lethe.contract.sets import AdditionStatus, Scope


class AdditionOut(Answer):
    """Rows that were added to a dataset."""

    id: str
    dataset_id: str
    status: AdditionStatus = Field(description="pending | applied: a worker has written them into their slots")
    num_records: int = Field(description="Rows that came; people of them may have been forgotten since.")
    revision: int | None = Field(description="Of the dataset: from it on versions learn from the rows.")
    created_at: datetime.datetime
    applied_at: datetime.datetime | None


class NewAdditionOut(AdditionOut):
    num_suppressed: int = Field(description="Rows left out: of people who asked to be forgotten.")


_ADDITIONS = Resource("Datasets", "/v1/datasets/{dataset_id}")

ADD = of_one(
    _ADDITIONS.operation(
        "add_records",
        "POST",
        "/records",
        scope=Scope.MODELS_WRITE,
        gives=NewAdditionOut,
        status=202,
        keyed=True,
        problems=(
            DatasetUnknown,
            DatasetRetired,
            UploadTooLarge,
            IdempotencyConflict,
            SubjectSuppressed,
            DatasetFull,
            EvaluationOverlaps,
            SchemaInvalid,
            RowInvalid,
            DatasetUnusable,
            PreconditionFailed,
        ),
        does="Add rows for slots of forgotten people: encoded as the dataset is, by its schema. Its models learn "
        "again from scratch; the number of its slots stays what it is.",
    )
)
ADDITIONS = of_one(
    _ADDITIONS.operation(
        "list_additions",
        "GET",
        "/additions",
        scope=Scope.MODELS_READ,
        query=Paging,
        gives=PageOut[AdditionOut],
        problems=(DatasetUnknown,),
        does="What was added, newest first.",
    )
)
ADDITION = of_two(
    _ADDITIONS.operation(
        "get_addition",
        "GET",
        "/additions/{addition_id}",
        scope=Scope.MODELS_READ,
        gives=AdditionOut,
        problems=(DatasetUnknown, AdditionUnknown),
        does="Whether the rows have been written into their slots.",
    )
)
