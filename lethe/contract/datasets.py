"""Upload rows, see what is held."""

import datetime
from typing import Any

from pydantic import ConfigDict, Field

from lethe.contract.fields import Answer, Name, PageOut, Paging
from lethe.contract.operation import Resource, of_one, of_two
from lethe.contract.problems import (
    DatasetBusy,
    DatasetDamaged,
    DatasetInUse,
    DatasetUnknown,
    DatasetUnusable,
    IdempotencyConflict,
    NetworkFailed,
    NetworkUnknown,
    RowInvalid,
    SchemaInvalid,
    SubjectSuppressed,
    SubjectUnknown,
    UploadTooLarge,
)
from lethe.contract.sets import DamageKind, Scope


class DamageOut(Answer):
    """The first thing that was found not to be as on record."""

    at: datetime.datetime
    kind: DamageKind
    rows: str = Field(description="The dataset, or the addition whose rows wait.")
    block: int | None = Field(description="Which 4096 of them; null: all.")


class AdaptiveBudgetOut(Answer):
    epsilon: float
    delta: float


class TargetRangeOut(Answer):
    """The public range of a target."""

    min: float
    max: float
    outside: str = Field(description="`error`, or `clip`: what becomes of a value outside of it.")
    counts: bool = Field(
        default=False, description="Only whole numbers from 0 on.", exclude_if=lambda counts: not counts
    )


class DatasetOut(Answer):
    model_config = ConfigDict(validate_by_name=True, validate_by_alias=True)

    id: str
    name: str
    num_records: int = Field(description="Rows that are not null.")
    num_slots: int = Field(description="Rows at creation: public and fixed, n in every formula.")
    num_features: int = Field(description="Encoded features, without the bias.")
    num_classes: int
    classes: list[str]
    target: TargetRangeOut | None = Field(default=None, description="Of what is learned where there are no classes.")
    network_id: str | None = Field(default=None, description="The public network whose features the rows are.")
    num_subjects: int
    revision: int = Field(description="Batches of erasures and of added rows so far.")
    digest: str = Field(
        description="Names the rows as they are now. It is made of random numbers: nobody can compute it from rows."
    )
    damage: DamageOut | None = Field(description="What was found damaged: no run touches the dataset. Null: nothing.")
    adaptive_budget: AdaptiveBudgetOut | None = Field(
        description="What all versions of all models together may ever tell about one row, to people who read them all."
    )
    schema_: dict[str, Any] | None = Field(alias="schema")
    created_at: datetime.datetime
    retired_at: datetime.datetime | None = Field(description="Nothing is learned from it any more.")
    destroyed_at: datetime.datetime | None = Field(description="Nothing is left of the rows of what was retired.")


class NewDatasetOut(DatasetOut):
    num_suppressed: int = Field(description="Rows left out: of people who asked to be forgotten.")
    warnings: list[str] = Field(description="What may make a model worse than it need be, and its remedy. Not kept.")


class SubjectOut(Answer):
    num_records: int


class DatasetsQuery(Paging):
    name: Name | None = Field(default=None, description="Only those whose name has this in it, in capitals or not.")


_DATASETS = Resource("Datasets", "/v1/datasets")

UPLOAD = _DATASETS.operation(
    "create_dataset",
    "POST",
    scope=Scope.MODELS_WRITE,
    gives=NewDatasetOut,
    status=201,
    keyed=True,
    problems=(
        UploadTooLarge,
        IdempotencyConflict,
        SubjectSuppressed,
        SchemaInvalid,
        RowInvalid,
        DatasetUnusable,
        NetworkUnknown,
        NetworkFailed,
    ),
    does="Encode the rows by the public schema alone, scale each to norm <= 1, and keep nothing else of the file.",
)
LIST = _DATASETS.operation(
    "list_datasets",
    "GET",
    scope=Scope.MODELS_READ,
    query=DatasetsQuery,
    gives=PageOut[DatasetOut],
    does="What is held, newest first.",
)
GET = of_one(
    _DATASETS.operation(
        "get_dataset",
        "GET",
        "/{dataset_id}",
        scope=Scope.MODELS_READ,
        gives=DatasetOut,
        problems=(DatasetUnknown,),
        does="How many rows of how many people are held, and their digest.",
    )
)
RECHECK = of_one(
    _DATASETS.operation(
        "recheck_dataset",
        "POST",
        "/{dataset_id}/recheck",
        scope=Scope.ADMIN,
        gives=DatasetOut,
        problems=(DatasetUnknown, DatasetBusy),
        does="Open everything that is stored of a dataset, once the right files were put back: if nothing is "
        "damaged any more, runs go on; else `damage` says what is. Takes as long as reading the rows takes. "
        "The audit log says who asked.",
    )
)
RETIRE = of_one(
    _DATASETS.operation(
        "retire_dataset",
        "DELETE",
        "/{dataset_id}",
        scope=Scope.MODELS_WRITE,
        gives=DatasetOut,
        idempotent=True,
        problems=(DatasetUnknown, DatasetInUse),
        does="Let go of a dataset, and destroy its rows and whose they were; 409 while a model uses it, or "
        "requests wait to have rows of it erased. Doing it again changes nothing.",
    )
)
SUBJECT = of_two(
    _DATASETS.operation(
        "get_subject",
        "GET",
        "/{dataset_id}/subjects/{subject_id}",
        scope=Scope.ADMIN,
        gives=SubjectOut,
        problems=(DatasetUnknown, SubjectUnknown, DatasetDamaged),
        does="How many rows are held about a person; for admins, because it tells who is in the data. The audit "
        "log says that somebody looked, not at whom.",
    )
)
