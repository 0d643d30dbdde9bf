"""Lineage: the models, versions and copies that a person's rows fed."""

import datetime

from pydantic import Field

from lethe.contract.exports import ExportOut
from lethe.contract.fields import Answer
from lethe.contract.operation import Resource, of_one
from lethe.contract.problems import RequestUnknown
from lethe.contract.sets import Scope, VersionStatus
from lethe.contract.subjects import SubjectIn


class DatasetLineageOut(Answer):
    id: str
    name: str
    records: int
    erased_at: datetime.datetime | None = Field(description="When the rows were null on disk; null until then.")


class CarryingVersionOut(Answer):
    number: int
    status: VersionStatus = Field(description="live, retired or destroyed")
    published_at: datetime.datetime
    destroyed_at: datetime.datetime | None


class FirstWithoutOut(Answer):
    number: int
    published_at: datetime.datetime
    certificate_id: str | None


class ModelLineageOut(Answer):
    model_id: str
    name: str
    dataset_id: str
    num_versions: int = Field(description="So many versions carried the rows: all from the first on.")
    versions: list[CarryingVersionOut] = Field(description="The newest 500 of them.")
    first_without: FirstWithoutOut | None = Field(description="null while the rows are there, or it is owed.")
    owed: bool = Field(description="Whether a request waits for the first version without the rows.")
    num_copies_outside: int
    copies_outside: list[ExportOut] = Field(
        description="The newest 500 times that one of these versions was handed out: nobody here can erase those."
    )


class LineageOut(Answer):
    datasets: list[DatasetLineageOut]
    models: list[ModelLineageOut]


_LINEAGE = Resource("Lineage", "/v1")

OF_REQUEST = of_one(
    _LINEAGE.operation(
        "get_request_lineage",
        "GET",
        "/deletion-requests/{request_id}/lineage",
        scope=Scope.ACCOUNTING_READ,
        gives=LineageOut,
        problems=(RequestUnknown,),
        does="Which models, versions and copies the person's rows fed, in the datasets that the request asks. The "
        "audit log says that somebody looked, not at whose.",
    )
)
OF_PERSON = _LINEAGE.operation(
    "trace_lineage",
    "POST",
    "/lineage",
    scope=Scope.ADMIN,
    takes=SubjectIn,
    gives=LineageOut,
    idempotent=True,
    does="The same of anybody, in all datasets, whether they asked to be forgotten or not. The audit log says "
    "that somebody looked, not at whom.",
)
