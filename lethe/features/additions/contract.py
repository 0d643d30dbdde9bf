"""Operations that add rows to slots freed by forgetting people."""

import datetime

from pydantic import Field

from lethe.contract import fields, operation, problems, sets


class AdditionUnknown(problems.NotFound, title="There is no such addition"):
    template = "There is no addition {addition_id!r} to this dataset."


class DatasetFull(problems.Conflict, title="The dataset has too few free slots"):
    template = (
        "{num_free} slots of the dataset are free, and their number is fixed: send {num_free} rows at most, or make "
        "another dataset."
    )


class AdditionOut(fields.Answer):
    """Addition of rows to a dataset."""

    id: str = Field(description="ID of the addition.")
    dataset_id: str = Field(description="ID of the dataset.")
    status: sets.AdditionStatus = Field(
        description="Status: pending, applied (the rows are in their slots) or dropped (the dataset was retired or the "
        "rows were damaged first)."
    )
    num_records: int = Field(description="Number of rows added, even if some have been erased since.")
    revision: int | None = Field(description="First dataset revision with the rows; null until they are written.")
    created_at: datetime.datetime = Field(description="Time at which the rows were uploaded.")
    applied_at: datetime.datetime | None = Field(description="Time at which the rows were written; null before that.")


class NewAdditionOut(AdditionOut):
    num_suppressed: int = Field(description="Number of rows left out because the person has asked to be forgotten.")


_ADDITIONS = operation.ResourceOperations("Datasets", "/v1/datasets/{dataset_id}", problems.DatasetUnknown)

ADD = _ADDITIONS.of_one(
    "add_records",
    "POST",
    "/records",
    scope=sets.Scope.MODELS_WRITE,
    gives=NewAdditionOut,
    status=202,
    repeat="keyed",
    problems=(
        problems.DatasetRetired,
        problems.UploadTooLarge,
        problems.StorageQuotaExceeded,
        problems.SubjectSuppressed,
        DatasetFull,
        problems.EvaluationOverlaps,
        problems.SchemaInvalid,
        problems.RowInvalid,
        problems.DatasetUnusable,
        problems.PreconditionFailed,
    ),
    does="Add rows, encoded with the dataset's schema, to slots that forgotten people left free. The dataset's models "
    "are retrained from scratch; the number of slots stays the same.",
)
ADDITIONS = _ADDITIONS.of_one(
    "list_additions",
    "GET",
    "/additions",
    scope=sets.Scope.MODELS_READ,
    query=fields.Paging,
    gives=fields.PageOut[AdditionOut],
    does="List a dataset's additions, newest first.",
)
ADDITION = _ADDITIONS.of_two(
    "get_addition",
    "GET",
    "/additions/{addition_id}",
    scope=sets.Scope.MODELS_READ,
    gives=AdditionOut,
    problems=(AdditionUnknown,),
    does="Return an addition and whether its rows have been written.",
)
