"""Operations on lineage: models, versions and copies that a person's rows fed, and whether a copy may be served."""

import datetime
from typing import Annotated

from pydantic import Field, Strict

from lethe.contract.fields import Answer, Body, PageOut, Paging, Query, Sha256, SubjectIn, Text, example, optional
from lethe.contract.models import MODELS
from lethe.contract.operation import ResourceOperations
from lethe.contract.problems import NotFound, RequestUnknown, VersionUnknown
from lethe.contract.sets import ClosedSet, Scope, VersionStatus


class ExportUnknown(
    NotFound, title="There is no such export", template="There is no export {export_id!r} of this model."
): ...


class ServingRefusal(ClosedSet):
    NOT_LIVE = "not_live"
    HELD = "held"
    """The version misses its quality gate and was not released."""
    FORGETTING_OVERDUE = "forgetting_overdue"
    SUPERSEDED = "superseded"
    WEIGHTS_DESTROYED = "weights_destroyed"


class CopyKind(ClosedSet):
    WEIGHTS = "weights"
    ONNX = "onnx"
    MLFLOW = "mlflow"


class DestructionCheck(ClosedSet):
    """Way in which the destruction of a copy was checked."""

    LISTED = "listed"
    """Its store was listed afterwards and has no file of it."""
    STATED = "stated"
    """Not at all: it is the word of the caller who stated it."""


class CopyState(ClosedSet):
    """State of a copy that carried a person, worst first."""

    OUT = "out"
    REACHED = "reached"
    """The copy itself may exist; its holder uses a version that has forgotten the person instead."""
    DESTROYED = "destroyed"


Place = Annotated[Text, Field(min_length=1, max_length=200)]
VersionNumber = Annotated[int, Field(ge=1, le=2**31 - 1)]


class CopyStatementIn(Body):
    model_config = example(kind="mlflow", place="run 0f1e2d", destroyed="listed")

    kind: Annotated[CopyKind, Strict(False)] = Field(
        default=CopyKind.WEIGHTS, description="Form of the copy: weights, onnx or mlflow."
    )
    place: Place | None = optional("Location of the copy, for officers. Default: not stated.")
    destroyed: Annotated[DestructionCheck, Strict(False)] | None = optional(
        "Check of the copy's destruction. Default: not destroyed."
    )
    replaced_by: VersionNumber | None = optional("Number of the version that replaced this copy. Default: none.")


class ExportOut(Answer):
    """Weights handed out to a caller, and the last statement about this copy."""

    id: str = Field(description="ID of the export.")
    version: int = Field(description="Number of the exported version.")
    api_key_id: str = Field(description="ID of the API key or person that received the weights.")
    at: datetime.datetime = Field(description="Time of the export.")
    kind: CopyKind | None = Field(description="Form of the copy: weights, onnx or mlflow; null if not stated.")
    place: str | None = Field(description="Location of the copy; null if not stated.")
    destroyed: DestructionCheck | None = Field(
        description="How the copy's destruction was established: listed or stated; null if not destroyed."
    )
    replaced_by: int | None = Field(description="Number of the version that replaced this copy; null if none.")
    stated_by: str | None = Field(description="ID of the API key or person that made the statement; null if none.")
    stated_at: datetime.datetime | None = Field(description="Time of the statement; null if there is none.")


class ExportsQuery(Paging):
    mine: bool = Field(default=False, description="Only list exports to the calling key or person.")
    version: VersionNumber | None = optional("Only list exports of the version with this number.")


EXPORTS = MODELS.of_one(
    "list_exports",
    "GET",
    "/{model_id}/exports",
    scope=Scope.MODELS_READ,
    query=ExportsQuery,
    gives=PageOut[ExportOut],
    does="List which weights were exported, to whom and when, newest first.",
)
STATE_COPY = MODELS.of_two(
    "state_copy",
    "PATCH",
    "/{model_id}/exports/{export_id}",
    scope=Scope.MODELS_READ,
    takes=CopyStatementIn,
    gives=ExportOut,
    repeat="idempotent",
    problems=(ExportUnknown, VersionUnknown),
    does="Record the fate of a copy: its form and place, and its destruction or replacement. The statement replaces "
    "the previous one; bundles of requests contain it. Only the key or person that received the copy may state it, or "
    "an admin.",
)


class ServingOut(Answer):
    model_id: str = Field(description="ID of the model.")
    version: int | None = Field(description="Number of the version; null if none is live.")
    weights_sha256: str | None = Field(description="SHA-256 (hex) of the version's weights; null if none is live.")
    may_serve: bool = Field(description="True if the version may be served now.")
    reason: str | None = Field(
        description="Reason why the version may not be served: not_live, held, forgetting_overdue, superseded or "
        "weights_destroyed; null if it may."
    )
    certified: bool = Field(description="True if the version has forgotten all people whose request was accepted.")
    valid_until: datetime.datetime | None = Field(
        description="Time until which the version may be served without asking again: at most an hour ahead, and "
        "before any accepted request is due. After a 304 the time moves by max-age. Null if it may not be served."
    )
    retry_after_seconds: int | None = Field(
        description="Seconds after which to ask again about a version that may not be served yet; null otherwise."
    )


class ServingQuery(Query):
    version: VersionNumber | None = optional("Number of the version. Default: the live version.")
    weights_sha256: Sha256 | None = optional("SHA-256 (hex) of the weights. Default: live version.")


SERVING = MODELS.of_one(
    "get_serving",
    "GET",
    "/{model_id}/serving",
    scope=Scope.MODELS_READ,
    query=ServingQuery,
    gives=ServingOut,
    problems=(VersionUnknown,),
    does="Return whether the live version, or the named version, may be served now. Nothing in the answer is about a "
    "person.",
)


class DatasetLineageOut(Answer):
    id: str = Field(description="ID of the dataset.")
    name: str = Field(description="Name of the dataset.")
    records: int = Field(description="Number of rows of the person.")
    erased_at: datetime.datetime | None = Field(
        description="Time at which the rows were erased on disk; null until then."
    )


class CarryingVersionOut(Answer):
    number: int = Field(description="Number of the version.")
    status: VersionStatus = Field(description="Status of the version: live, retired or destroyed.")
    published_at: datetime.datetime = Field(description="Time of publication.")
    destroyed_at: datetime.datetime | None = Field(description="Time of destruction of the weights; null until then.")


class FirstWithoutOut(Answer):
    number: int = Field(description="Number of the version.")
    published_at: datetime.datetime = Field(description="Time of publication.")
    certificate_id: str | None = Field(description="ID of the certificate about the version; null if none.")


class ModelLineageOut(Answer):
    model_id: str = Field(description="ID of the model.")
    name: str = Field(description="Name of the model.")
    dataset_id: str = Field(description="ID of the model's dataset.")
    num_versions: int = Field(description="Number of versions that carried the rows.")
    versions: list[CarryingVersionOut] = Field(description="Newest 500 versions that carried the rows.")
    first_without: FirstWithoutOut | None = Field(description="First version without the rows; null if none yet.")
    owed: bool = Field(description="True if a request waits for the first version without the rows.")
    num_copies_outside: int = Field(description="Number of exports of the versions that carried the rows.")
    copies_outside: list[ExportOut] = Field(
        description="Newest 500 exports of these versions, which Lethe cannot erase."
    )


class LineageOut(Answer):
    datasets: list[DatasetLineageOut] = Field(description="Datasets that held rows of the person.")
    models: list[ModelLineageOut] = Field(description="Models that were trained on the person's rows.")


_LINEAGE = ResourceOperations("Lineage", "/v1", RequestUnknown)

OF_REQUEST = _LINEAGE.of_one(
    "get_request_lineage",
    "GET",
    "/deletion-requests/{request_id}/lineage",
    scope=Scope.ACCOUNTING_READ,
    gives=LineageOut,
    does="Return the models, versions and copies that the person's rows fed, in the datasets that the request "
    "concerns. The audit log records the look-up, but not the person.",
)
OF_PERSON = _LINEAGE.operation(
    "trace_lineage",
    "POST",
    "/lineage",
    scope=Scope.ADMIN,
    takes=SubjectIn,
    gives=LineageOut,
    repeat="idempotent",
    does="Return the models, versions and copies that any person's rows fed, in all datasets, whether or not they "
    "asked to be forgotten. The audit log records the look-up, but not the person.",
)
