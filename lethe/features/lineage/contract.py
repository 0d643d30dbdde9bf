"""Operations on lineage: the models, versions and copies with a person's rows, and whether a copy may be served."""

import datetime
from typing import Annotated

from pydantic import Field, Strict

from lethe.contract import fields, operation, problems, sets
from lethe.contract.models import MODELS


class ExportUnknown(
    problems.NotFound, title="There is no such export", template="There is no export {export_id!r} of this model."
): ...


class ServingRefusal(sets.ClosedSet):
    NOT_LIVE = "not_live"
    HELD = "held"
    """The version misses its quality gate and has not been released."""
    FORGETTING_OVERDUE = "forgetting_overdue"
    SUPERSEDED = "superseded"
    WEIGHTS_DESTROYED = "weights_destroyed"


class CopyKind(sets.ClosedSet):
    WEIGHTS = "weights"
    ONNX = "onnx"
    MLFLOW = "mlflow"


class DestructionCheck(sets.ClosedSet):
    """How the destruction of a copy was checked."""

    LISTED = "listed"
    """When the copy's store was listed afterwards, none of the copy's files was there."""
    STATED = "stated"
    """The destruction was not checked: there is only the caller's statement."""


class CopyState(sets.ClosedSet):
    """State of a copy whose weights were trained on a person's data, worst state first."""

    OUT = "out"
    REACHED = "reached"
    """The copy itself may still exist, but its holder now uses a version that has forgotten the person."""
    DESTROYED = "destroyed"


Place = Annotated[fields.Text, Field(min_length=1, max_length=200)]
VersionNumber = Annotated[int, Field(ge=1, le=2**31 - 1)]


class CopyStatementIn(fields.Body):
    model_config = fields.example(kind="mlflow", place="run 0f1e2d", destroyed="listed")

    kind: Annotated[CopyKind, Strict(False)] = Field(
        default=CopyKind.WEIGHTS, description="Form of the copy: weights, onnx or mlflow."
    )
    place: Place | None = fields.optional("Location of the copy, as information for officers. Default: not stated.")
    destroyed: Annotated[DestructionCheck, Strict(False)] | None = fields.optional(
        "How the destruction of the copy was checked. Default: the copy is not destroyed."
    )
    replaced_by: VersionNumber | None = fields.optional(
        "Number of the version that replaced the copy. Default: not replaced."
    )


class ExportOut(fields.Answer):
    """Copy of weights exported to a caller, and the latest statement about the copy."""

    id: str = Field(description="ID of the export.")
    version: int = Field(description="Number of the exported version.")
    api_key_id: str = Field(description="ID of the API key or user that received the weights.")
    at: datetime.datetime = Field(description="Time of the export.")
    kind: CopyKind | None = Field(description="Form of the copy: weights, onnx or mlflow; null if not stated.")
    place: str | None = Field(description="Location of the copy; null if not stated.")
    destroyed: DestructionCheck | None = Field(
        description="How the destruction of the copy was checked: listed or stated; null if not destroyed."
    )
    replaced_by: int | None = Field(description="Number of the version that replaced the copy; null if not replaced.")
    stated_by: str | None = Field(description="ID of the API key or user that stated this; null if nothing was stated.")
    stated_at: datetime.datetime | None = Field(description="Time of the statement on the copy; null if none was made.")


class ExportsQuery(fields.Paging):
    mine: bool = Field(default=False, description="List only exports that the calling API key or user received.")
    version: VersionNumber | None = fields.optional("List only exports of the version with this number.")


EXPORTS = MODELS.of_one(
    "list_exports",
    "GET",
    "/{model_id}/exports",
    scope=sets.Scope.MODELS_READ,
    query=ExportsQuery,
    gives=fields.PageOut[ExportOut],
    does="List the exports of a model's weights: which version, to whom and when, newest first.",
)
STATE_COPY = MODELS.of_two(
    "state_copy",
    "PATCH",
    "/{model_id}/exports/{export_id}",
    scope=sets.Scope.MODELS_READ,
    takes=CopyStatementIn,
    gives=ExportOut,
    repeat="idempotent",
    problems=(ExportUnknown, problems.VersionUnknown),
    does="State what happened to an exported copy: its form and location, and whether it was destroyed or replaced. "
    "The statement replaces the previous one and is included in the bundles of requests. Only the API key or user that "
    "received the copy, or an admin, can make it.",
)


class ServingOut(fields.Answer):
    model_id: str = Field(description="ID of the model.")
    version: int | None = Field(description="Number of the version; null if no version is live.")
    weights_sha256: str | None = Field(description="SHA-256 (hex) of the weights; null if no version is live.")
    may_serve: bool = Field(description="True if the version may be served now.")
    reason: str | None = Field(
        description="Reason why the version may not be served: not_live, held, forgetting_overdue, superseded or "
        "weights_destroyed; null if it may."
    )
    certified: bool = Field(description="True if the version has forgotten everyone whose request was accepted.")
    valid_until: datetime.datetime | None = Field(
        description="Time until which the version may be served without checking again: at most an hour ahead, and not "
        "after an accepted request is due. A 304 extends it by max-age. Null if the version may not be served."
    )
    retry_after_seconds: int | None = Field(
        description="Seconds to wait before checking again if the version may not be served yet; otherwise null."
    )


class ServingQuery(fields.Query):
    version: VersionNumber | None = fields.optional("Number of the version to check. Default: the live version.")
    weights_sha256: fields.Sha256 | None = fields.optional(
        "SHA-256 (hex) of the weights to check. Default: the live weights."
    )


SERVING = MODELS.of_one(
    "get_serving",
    "GET",
    "/{model_id}/serving",
    scope=sets.Scope.MODELS_READ,
    query=ServingQuery,
    gives=ServingOut,
    problems=(problems.VersionUnknown,),
    does="Return whether the live version, or the given one, may be served now. The response contains nothing about "
    "any person.",
)


class DatasetLineageOut(fields.Answer):
    id: str = Field(description="ID of the dataset.")
    name: str = Field(description="Name of the dataset.")
    records: int = Field(description="Number of rows about the person.")
    erased_at: datetime.datetime | None = Field(
        description="Time at which the rows were erased from disk; null until then."
    )


class CarryingVersionOut(fields.Answer):
    number: int = Field(description="Number of the version.")
    status: sets.VersionStatus = Field(description="Status of the version: live, retired or destroyed.")
    published_at: datetime.datetime = Field(description="Time of publication.")
    destroyed_at: datetime.datetime | None = Field(description="Time when the weights were destroyed; null until then.")


class FirstWithoutOut(fields.Answer):
    number: int = Field(description="Number of the first version without the person's rows.")
    published_at: datetime.datetime = Field(description="Time of publication.")
    certificate_id: str | None = Field(description="ID of the person's certificate for the version; null if none.")


class ModelLineageOut(fields.Answer):
    model_id: str = Field(description="ID of the model.")
    name: str = Field(description="Name of the model.")
    dataset_id: str = Field(description="ID of the dataset that the model is trained on.")
    num_versions: int = Field(description="Number of versions that were trained on the person's rows.")
    versions: list[CarryingVersionOut] = Field(description="Newest 500 versions trained on the person's rows.")
    first_without: FirstWithoutOut | None = Field(description="First version without the person's rows; null if none.")
    owed: bool = Field(description="True if a request is still waiting for a first version without the person's rows.")
    num_copies_outside: int = Field(description="Number of exports of versions trained on the person's rows.")
    copies_outside: list[ExportOut] = Field(
        description="Newest 500 exports of versions trained on the person's rows. Lethe cannot erase exported copies."
    )


class LineageOut(fields.Answer):
    datasets: list[DatasetLineageOut] = Field(description="Datasets that contained rows about the person.")
    models: list[ModelLineageOut] = Field(description="Models that were trained on rows about the person.")


_LINEAGE = operation.ResourceOperations("Lineage", "/v1", problems.RequestUnknown)

OF_REQUEST = _LINEAGE.of_one(
    "get_request_lineage",
    "GET",
    "/deletion-requests/{request_id}/lineage",
    scope=sets.Scope.ACCOUNTING_READ,
    gives=LineageOut,
    does="Return the models, versions and copies that were trained on the person's rows, for the datasets covered by "
    "the request. The audit log records the look-up, but not the person.",
)
OF_PERSON = _LINEAGE.operation(
    "trace_lineage",
    "POST",
    "/lineage",
    scope=sets.Scope.ADMIN,
    takes=fields.SubjectIn,
    gives=LineageOut,
    repeat="idempotent",
    does="Return the models, versions and copies that were trained on a person's rows, for all datasets, whether or "
    "not the person asked to be forgotten. The audit log records the look-up, but not the person.",
)
