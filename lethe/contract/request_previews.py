"""Preview of a request: what approving it erases, what that costs, and what it waits for."""

import datetime

from pydantic import Field

from lethe.contract.fields import Answer
from lethe.contract.operation import Resource, of_one
from lethe.contract.problems import RequestUnknown
from lethe.contract.sets import RunKind, Scope, WaitReason


class DatasetToEraseOut(Answer):
    dataset_id: str
    rows: int


class ModelToForgetOut(Answer):
    """`kind`, `steps`, `passes` and `seconds`: of a run for this request alone; null for a model without a version."""

    model_id: str
    name: str
    version: int | None = Field(description="The live version, which is replaced and destroyed.")
    rows: int
    kind: RunKind | None
    steps: int | None
    passes: float | None = Field(description="Times that the run reads all rows.")
    seconds: float | None = Field(description="By the model's own past runs; null: none was measured.")
    reason: WaitReason | None = Field(description="What the request waits for here; null: not known.")
    waiting: int = Field(description="Requests that wait for the same reason.")
    batch: int | None = Field(description="Requests for which a batch waits; null: no limit but the time.")
    until: datetime.datetime | None = Field(description="When that ends at the latest; null: not known.")


class RequestPreviewOut(Answer):
    request_id: str
    is_open: bool = Field(description="False once a run has taken the request, or it has ended: the lists are empty.")
    datasets: list[DatasetToEraseOut]
    models: list[ModelToForgetOut]


PREVIEW = of_one(
    Resource("Deletion requests", "/v1/deletion-requests").operation(
        "preview_deletion_request",
        "GET",
        "/{request_id}/preview",
        scope=Scope.ACCOUNTING_READ,
        gives=RequestPreviewOut,
        problems=(RequestUnknown,),
        does="The rows that a request in review or waiting would erase now, the versions that go out of service, the "
        "cost in passes and seconds, and why it waits; nothing is changed.",
    )
)
