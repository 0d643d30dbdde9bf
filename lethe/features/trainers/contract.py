"""Operations on training tables, trainers, and the artefacts that trainers produce."""

import datetime
from typing import Annotated, Any

from pydantic import Field, model_validator

from lethe.contract import datasets, fields, operation, problems, sets

MAX_TABLE_BYTES = 256 * 2**20
"""Maximum size of a table in memory, in Arrow's format."""
FileName = Annotated[str, Field(pattern="^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$"), fields.WHOLE]
_MAX_FILES_BYTES = 2**19


class TrainingStatus(sets.ClosedSet):
    RUNNING = "running"
    PUBLISHED = "published"
    """The training's artefacts are live, or were live until a later training was published."""
    FAILED = "failed"
    ABANDONED = "abandoned"
    """The training's worker died or was cut off; nothing was published."""


class TableFileIn(datasets.RowsIn):
    """CSV, Parquet or Arrow file of rows with their original columns."""

    subject_column: fields.Name = Field(description="Column that identifies each row's person. Trainers never see it.")
    subject_kind: fields.Name | None = fields.optional("Kind of identifiers in subject_column. Default: customer_id.")


class TrainingTableIn(TableFileIn):
    name: fields.Name = Field(
        description="Name of the table, and of the dataset that tracks the people in the table's rows."
    )


class ColumnOut(fields.Answer):
    name: str = Field(description="Name of the column.")
    type: str = Field(description="Arrow type of the column.")


class TableOut(fields.Answer):
    """Training table. Its rows are sealed; erasing a person also erases the person's rows."""

    id: str = Field(description="ID of the table.")
    name: str = Field(description="Name of the table.")
    dataset_id: str = Field(description="ID of the dataset that tracks the people in the rows; requests refer to it.")
    subject_column: str = Field(description="Column of the uploaded file that identified each row's person.")
    columns: list[ColumnOut] = Field(description="Columns visible to trainers.")
    num_rows: int | None = Field(description="Number of remaining rows; null for callers without accounting:read.")
    created_at: datetime.datetime = Field(description="Time of the upload.")
    retired_at: datetime.datetime | None = Field(description="Time at which the table was retired; null until then.")


class NewTableOut(TableOut):
    warnings: list[str] = Field(description="Subject IDs that requests might not find, with the remedy. Shown once.")


Command = Annotated[
    list[Annotated[fields.Text, Field(min_length=1, max_length=1000)]], Field(min_length=1, max_length=50)
]


class TrainerIn(fields.Body):
    model_config = fields.example(
        name="churn, boosted trees",
        table_id="tbl_3f9c2a7b10d4e85f6a21",
        command=["python", "train.py"],
        files={"train.py": "import pyarrow as pa\n"},
        lock="xgboost==3.2.0\npyarrow==25.0.0\n",
        artefacts=["model.json"],
        metrics=["accuracy"],
        metric="accuracy",
        min_metric=0.87,
    )

    name: fields.Name = Field(description="Name of the trainer, shown in bundles.")
    table_id: fields.Name = Field(description="ID of the table to train on.")
    command: Command = Field(
        description="Program and arguments, run in the trainer's folder. It reads rows.arrow and holdout.arrow (Arrow "
        "streams) and writes its artefacts and metrics.json. The command `python` runs the worker's Python."
    )
    score_command: Command | None = fields.optional(
        "Program that reads artefacts/* and rows.arrow and writes losses.npy with one float64 per row. Tests that "
        "measure losses need this program."
    )
    files: dict[FileName, Annotated[str, Field(max_length=_MAX_FILES_BYTES)]] = Field(
        default_factory=dict,
        max_length=50,
        description="Source files of the trainer, keyed by name; at most 512 KiB in total.",
    )
    lock: Annotated[fields.Text, Field(max_length=100_000)] = Field(
        description="Lock file with one NAME==VERSION line per Python distribution. Workers whose versions differ are "
        "refused. Empty if the trainer needs none."
    )
    artefacts: Annotated[list[FileName], Field(min_length=1, max_length=50)] = Field(
        description="Names of the files that the command writes to artefacts/. All of them are published."
    )
    metrics: Annotated[list[fields.Name], Field(max_length=50)] | None = fields.optional(
        "Names of the numbers in metrics.json to store and show. Default: none."
    )
    holdout: Annotated[float, Field(ge=0, le=0.5)] = Field(
        default=0.1,
        description="Fraction of people, drawn at random for each training run, whose rows go into holdout.arrow, for "
        "computing metrics, instead of rows.arrow. 0: no holdout file.",
    )
    group_ids: bool = Field(
        default=False,
        description="Add a column lethe_group to both files, with a random number for each person, to split by person.",
    )
    metric: fields.Name | None = fields.optional("Name of the metric, one of `metrics`, that the quality gate checks.")
    min_metric: Annotated[float, Field(allow_inf_nan=False)] | None = fields.optional(
        "Minimum value of the metric. Artefacts below it are published but cannot be downloaded until released."
    )
    seconds: Annotated[int, Field(ge=1, le=86_400)] = Field(
        default=600, description="Maximum running time of the command in seconds."
    )
    memory_mib: Annotated[int, Field(ge=64, le=1_048_576)] = Field(
        default=4096, description="Maximum memory of all processes together, and maximum size of the folder, in MiB."
    )
    processes: Annotated[int, Field(ge=1, le=1024)] = Field(default=64, description="Maximum number of processes.")
    artefacts_mib: Annotated[int, Field(ge=1, le=512)] = Field(
        default=64, description="Maximum total size of the artefacts in MiB."
    )
    repeat_one_in: Annotated[int, Field(ge=1, le=1000)] = Field(
        default=20,
        description="One in this many training runs, chosen at random, is repeated with the same rows and seed, and "
        "refused if its artefacts differ. 1 repeats every run.",
    )
    canary_people: Annotated[int, Field(ge=0, le=200)] = Field(
        default=150,
        description="Number of synthetic people added to each training run, whom the next run must forget; at most a "
        "tenth of the rows. None are added if fewer than 20 would be or score_command is null; then forgetting is not "
        "tested.",
    )
    max_wait_seconds: Annotated[int, Field(ge=0, le=60 * 86_400)] = Field(
        default=0, description="Maximum seconds that a retraining waits for more requests. Due dates take precedence."
    )

    @model_validator(mode="after")
    def _consistent(self) -> "TrainerIn":
        if (self.metric is None) != (self.min_metric is None):
            raise ValueError("expected metric and min_metric together, or neither")
        if self.metric is not None and self.metric not in (self.metrics or ()):
            raise ValueError("expected metric to be one of metrics")
        if sum(len(name) + len(content.encode()) for name, content in self.files.items()) > _MAX_FILES_BYTES:
            raise ValueError("expected files of at most 512 KiB together")
        if {"rows.arrow", "holdout.arrow", "artefacts", "metrics.json", "losses.npy"} & self.files.keys():
            raise ValueError("expected no file named like an input or output")
        return self


class ArtefactOut(fields.Answer):
    name: str = Field(description="Name of the file in artefacts/.")
    sha256: str = Field(description="SHA-256 (hex) of the artefact.")
    size: int = Field(description="Size of the artefact in bytes.")


class TrainingOut(fields.Answer):
    id: str = Field(description="ID of the training run.")
    status: TrainingStatus = Field(description="Status of the training run.")
    revision: int = Field(
        description="Revision of the dataset that the training run used. Everyone erased up to this revision is absent."
    )
    started_at: datetime.datetime = Field(description="Time at which the training run started.")
    ended_at: datetime.datetime | None = Field(description="Time at which the training run ended; null until then.")
    error_code: str | None = Field(description="Error code of the training run; null if it did not fail.")
    repeated: bool = Field(description="True if a second run with the same rows and seed produced the same artefacts.")
    held: bool = Field(description="True if the artefacts fall below `min_metric` and cannot be downloaded.")
    metrics: dict[str, float] = Field(description="Metrics written by the trainer.")
    findings: dict[str, dict[str, Any]] = Field(
        description="Results of tests on the artefacts, keyed by test, such as canary_people; empty if no test was run."
    )
    artefacts: list[ArtefactOut] = Field(description="Artefacts of the training run; empty if they were not published.")


class TrainerOut(fields.Answer):
    """Trainer, including the state of its live artefacts."""

    id: str = Field(description="ID of the trainer.")
    name: str = Field(description="Name of the trainer.")
    table_id: str = Field(description="ID of the table that the trainer is run on.")
    sha256: str = Field(
        description="SHA-256 (hex) of the commands, files and lock file, which identifies the trainer in bundles."
    )
    lock_sha256: str = Field(description="SHA-256 (hex) of the lock file.")
    metric: str | None = Field(description="Metric of the quality gate; null if there is no gate.")
    min_metric: float | None = Field(description="Minimum value of the metric; null if there is no gate.")
    live_training_id: str | None = Field(description="ID of the training run with the live artefacts; null if none.")
    waiting_requests: int | None = Field(
        description="Number of open requests waiting for retraining; null for callers without accounting:read."
    )
    error_code: str | None = Field(description="Error code of the last training run; null if it succeeded.")
    failures: int = Field(description="Number of failed or abandoned training runs since the last success.")
    retry_at: datetime.datetime | None = Field(description="Time of the next attempt after a failure; null if not set.")
    created_at: datetime.datetime = Field(description="Time at which the trainer was registered.")
    retired_at: datetime.datetime | None = Field(description="Time of the trainer's retirement; null while in use.")


class PlannedOut(fields.Answer):
    start_by: datetime.datetime = Field(description="Time by which the retraining must start.")
    request_ids: list[str] = Field(description="IDs of the requests that the retraining serves.")
    due_at: datetime.datetime = Field(description="Earliest due date of the requests in `request_ids`.")
    late: bool = Field(description="True if the due date can no longer be met, given the expected duration.")


class TrainerPlanOut(fields.Answer):
    """Smallest set of retrainings that meets the due date of every currently known request."""

    expected_seconds: float = Field(
        description="Duration of the last published training run, in seconds; the time limit if there is none."
    )
    retrainings: list[PlannedOut] = Field(description="Planned retrainings in the order of their start.")


_TABLES = operation.ResourceOperations("Trainers", "/v1/training-tables", problems.NotFound)
_TRAINERS = operation.ResourceOperations("Trainers", "/v1/trainers", problems.NotFound)

UPLOAD_TABLE = _TABLES.operation(
    "create_training_table",
    "POST",
    scope=sets.Scope.MODELS_WRITE,
    gives=NewTableOut,
    status=201,
    repeat="keyed",
    problems=(
        problems.UploadTooLarge,
        problems.StorageQuotaExceeded,
        problems.SubjectSuppressed,
        problems.InputInvalid,
    ),
    does="Store the rows of a CSV, Parquet or Arrow file in encrypted form for trainers, in the original columns. A "
    "dataset of the same name tracks the people in the rows; deletion requests erase the rows as in any dataset.",
)
LIST_TABLES = _TABLES.operation(
    "list_training_tables",
    "GET",
    scope=sets.Scope.MODELS_READ,
    query=fields.Paging,
    gives=fields.PageOut[TableOut],
    does="List training tables, newest first.",
)
GET_TABLE = _TABLES.of_one(
    "get_training_table",
    "GET",
    "/{table_id}",
    scope=sets.Scope.MODELS_READ,
    gives=TableOut,
    does="Return a training table.",
)
RETIRE_TABLE = _TABLES.of_one(
    "retire_training_table",
    "DELETE",
    "/{table_id}",
    scope=sets.Scope.MODELS_WRITE,
    gives=type(None),
    status=204,
    problems=(problems.DatasetInUse,),
    does="Destroy the rows of a training table and retire its dataset. Repeating the call is a no-op.",
)
CREATE = _TRAINERS.operation(
    "create_trainer",
    "POST",
    scope=sets.Scope.ADMIN,
    takes=TrainerIn,
    gives=TrainerOut,
    status=201,
    repeat="keyed",
    problems=(problems.NotFound, problems.StorageQuotaExceeded),
    does="Register a trainer. A worker runs it immediately, and again from scratch whenever a person is erased from "
    "its table: without network access, in its own folder, on the remaining rows and with a new seed.",
)
LIST = _TRAINERS.operation(
    "list_trainers",
    "GET",
    scope=sets.Scope.MODELS_READ,
    query=fields.Paging,
    gives=fields.PageOut[TrainerOut],
    does="List trainers, newest first.",
)
GET = _TRAINERS.of_one(
    "get_trainer",
    "GET",
    "/{trainer_id}",
    scope=sets.Scope.MODELS_READ,
    gives=TrainerOut,
    does="Return a trainer and the state of its training runs.",
)
RETIRE = _TRAINERS.of_one(
    "retire_trainer",
    "DELETE",
    "/{trainer_id}",
    scope=sets.Scope.ADMIN,
    gives=type(None),
    status=204,
    does="Retire a trainer and destroy its artefacts. Requests no longer wait for it. Repeating the call is a no-op.",
)
TRAININGS = _TRAINERS.of_one(
    "list_trainings",
    "GET",
    "/{trainer_id}/trainings",
    scope=sets.Scope.MODELS_READ,
    query=fields.Paging,
    gives=fields.PageOut[TrainingOut],
    does="List a trainer's training runs, newest first.",
)
PLAN = _TRAINERS.of_one(
    "get_trainer_plan",
    "GET",
    "/{trainer_id}/plan",
    scope=sets.Scope.ACCOUNTING_READ,
    gives=TrainerPlanOut,
    does="Return the smallest set of retrainings that meets all due dates, with the requests that each serves.",
)
RELEASE = _TRAINERS.of_one(
    "release_trainer",
    "POST",
    "/{trainer_id}/release",
    scope=sets.Scope.MODELS_WRITE,
    gives=TrainerOut,
    repeat="idempotent",
    does="Release live artefacts that were held back by the quality gate. Repeating the call is a no-op.",
)
ARTEFACT = _TRAINERS.of_two(
    "get_artefact",
    "GET",
    "/{trainer_id}/artefacts/{name}",
    scope=sets.Scope.MODELS_READ,
    gives=bytes,
    problems=(problems.ModelHeld, problems.WeightsDestroyed),
    does="Return a live artefact. The download is recorded, because exported copies are never retrained.",
)
