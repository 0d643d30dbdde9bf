"""Datasets: rows to train models on."""

import datetime
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from lethe.contract import fields, operation, problems, sets


class DamageOut(fields.Answer):
    """First part of a dataset's stored rows that does not match the database."""

    at: datetime.datetime = Field(description="Time at which the damage was detected.")
    kind: sets.DamageKind = Field(description="Damaged part of the stored rows.")
    rows: str = Field(description="ID of the dataset, or of the pending addition, whose rows are damaged.")
    block: int | None = Field(description="Index of the damaged block of 4,096 rows; null if the damage is elsewhere.")


class AdaptiveBudgetOut(fields.Answer):
    epsilon: float = Field(description="Maximum total epsilon per row over all versions of all models, in nats.")
    delta: float = Field(description="Delta at which the budget is stated, between 0 and 1.")


class TargetRangeOut(fields.Answer):
    """Public range of a target."""

    min: float = Field(description="Lower end of the target's public range.")
    max: float = Field(description="Upper end of the target's public range.")
    outside: str = Field(description="How values outside the range are handled: `error` or `clip`.")
    counts: bool = Field(
        default=False, description="True if values are counts (0, 1, 2, ...).", exclude_if=lambda counts: not counts
    )


class DatasetOut(fields.Answer):
    model_config = ConfigDict(validate_by_name=True, validate_by_alias=True)

    id: str = Field(description="ID of the dataset.")
    name: str = Field(description="Name of the dataset.")
    num_records: int = Field(description="Number of rows that have not been erased (set to null).")
    num_slots: int = Field(description="Number of rows at creation (n in formulas). It is public and never changes.")
    num_features: int = Field(description="Number of features after encoding, not counting the bias.")
    num_classes: int = Field(description="Number of classes or labels; 0 for a numeric target.")
    classes: list[str] = Field(description="Names of the classes or labels, in order; empty for a numeric target.")
    target: TargetRangeOut | None = fields.optional("Range of the numeric target; null if the target is not numeric.")
    network_id: str | None = fields.optional(
        "ID of the network that computed the features; null if no network was used."
    )
    subject_kind: str | None = fields.optional("Kind of the subject IDs, such as email; null for customer_id.")
    num_subjects: int = Field(description="Number of people with rows in the dataset.")
    revision: int = Field(description="Number of times that a batch of rows has been erased or added.")
    digest: str = Field(description="Random identifier of the current rows, not computed from their content.")
    damage: DamageOut | None = Field(description="First damage detected, which stops all runs; null if undamaged.")
    adaptive_budget: AdaptiveBudgetOut | None = Field(
        description="Limit on how much all versions of all models together reveal about one row to someone who reads "
        "every version; null if no budget was set."
    )
    schema_: dict[str, Any] | None = Field(alias="schema", description="Public schema of columns; null for vectors.")
    created_at: datetime.datetime = Field(description="Time at which the dataset was created.")
    retired_at: datetime.datetime | None = Field(description="Time at which the dataset was retired; null until then.")
    destroyed_at: datetime.datetime | None = Field(description="Time when the rows were destroyed; null until then.")


class NewDatasetOut(DatasetOut):
    num_suppressed: int = Field(description="Number of rows left out because the person has asked to be forgotten.")
    warnings: list[str] = Field(
        description="Warnings about subject IDs that deletion requests might not find and about avoidable causes of "
        "model error, each with a remedy. Shown only once."
    )


class SubjectOut(fields.Answer):
    num_records: int = Field(description="Number of rows held about the person; at least 1.")


class DatasetsQuery(fields.Paging):
    name: fields.Name | None = fields.optional("Only datasets whose name contains this text, ignoring case.")


class RowsIn(fields.Form):
    """Rows of a file, encoded like the rows of the dataset to which they are added."""

    suppressed: Literal["refuse", "skip"] = Field(
        default="refuse",
        description="What to do with rows about people who have asked to be forgotten. refuse: fail the upload with "
        "subject_suppressed; skip: leave these rows out.",
    )


class TableIn(RowsIn):
    """Rows of a file, and the public facts used to encode them; these facts are never inferred from the rows."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    schema_: Mapping[str, Any] | Path | None = Field(
        default=None, alias="schema", description="Public schema, or path to its file; required for csv and parquet."
    )
    classes: Sequence[str] | None = fields.optional(
        "List of class names in the order of the labels 0, 1 and so on. Use it for npz files without a schema, and for "
        "files whose schema does not list the label's values."
    )
    target: Mapping[str, Any] | None = fields.optional(
        'Public range of the target `y` in an npz file without a schema: {"min": 0, "max": 100}. With "outside": '
        '"clip", values outside the range are set to the nearer end; with "counts": true, values are whole numbers '
        "from 0. If there is a schema, its column with the role target states the range."
    )
    network_id: str | None = fields.optional(
        "ID of a public network. The rows are the features that it computes from the schema-encoded records, or from "
        "the vectors of an npz file."
    )
    adaptive_epsilon: fields.Positive | None = fields.optional(
        "Epsilon of the budget for what all versions of all models together reveal about one row to someone who reads "
        "them all. Requires adaptive_delta. The budget cannot be changed, and versions exceeding it are not published."
    )
    adaptive_delta: fields.Delta | None = fields.optional("Delta of the budget; required with adaptive_epsilon.")
    subject_kind: fields.Name | None = fields.optional("Kind of the subject IDs. Default: customer_id.")


class DatasetIn(TableIn):
    name: Annotated[str, Field(min_length=1, max_length=200)] = Field(description="Name of the dataset.")


_DATASETS = operation.ResourceOperations("Datasets", "/v1/datasets", problems.DatasetUnknown)

UPLOAD = _DATASETS.operation(
    "create_dataset",
    "POST",
    scope=sets.Scope.MODELS_WRITE,
    gives=NewDatasetOut,
    status=201,
    repeat="keyed",
    problems=(
        problems.UploadTooLarge,
        problems.StorageQuotaExceeded,
        problems.SubjectSuppressed,
        problems.SchemaInvalid,
        problems.RowInvalid,
        problems.DatasetUnusable,
        problems.NetworkUnknown,
        problems.NetworkFailed,
    ),
    does="Encode a file's rows using only the public schema, scale each to norm <= 1, and store only the result.",
)
LIST = _DATASETS.operation(
    "list_datasets",
    "GET",
    scope=sets.Scope.MODELS_READ,
    query=DatasetsQuery,
    gives=fields.PageOut[DatasetOut],
    does="List the datasets, newest first.",
)
GET = _DATASETS.of_one(
    "get_dataset",
    "GET",
    "/{dataset_id}",
    scope=sets.Scope.MODELS_READ,
    gives=DatasetOut,
    does="Return the number of rows and people in a dataset, and the digest of its rows.",
)
RECHECK = _DATASETS.of_one(
    "recheck_dataset",
    "POST",
    "/{dataset_id}/recheck",
    scope=sets.Scope.ADMIN,
    gives=DatasetOut,
    problems=(problems.DatasetBusy,),
    does="Reread everything stored for a dataset after its files have been restored. If no damage remains, runs "
    "continue; otherwise `damage` names the fault. The call takes as long as reading the rows. The audit log records "
    "the caller.",
)
RETIRE = _DATASETS.of_one(
    "retire_dataset",
    "DELETE",
    "/{dataset_id}",
    scope=sets.Scope.MODELS_WRITE,
    gives=DatasetOut,
    repeat="idempotent",
    problems=(problems.DatasetInUse,),
    does="Retire a dataset, and destroy its rows and the references to the people in them. Returns 409 while a model "
    "uses the dataset or requests are waiting for its rows to be erased. Repeating the call is a no-op.",
)
SUBJECT = _DATASETS.of_two(
    "get_subject",
    "GET",
    "/{dataset_id}/subjects/{subject_id}",
    scope=sets.Scope.ADMIN,
    gives=SubjectOut,
    problems=(problems.SubjectUnknown, problems.DatasetDamaged),
    does="Count the rows held about a person. Only for admins, because the result reveals who is in the data. If "
    "nothing is held, the error's `detail` counts the people stored under common spellings of the ID that differ only "
    "in case. The audit log records the look-up, but not the person.",
)
