"""`/lineage`: which models, versions and copies a person's rows fed."""

import datetime
from typing import Annotated

from fastapi import APIRouter
from pydantic import BaseModel, Field

from app.api.calls import Call, call_with
from app.api.deletion_requests import subject_ref
from app.api.models import ExportOut
from app.api.problems import responses
from app.api.schemas import SubjectIn
from app.audit import access_events
from app.deletion import lineage
from app.deletion import service as deletion
from app.deletion.lineage import FirstWithout, Lineage, ModelLineage
from lethe.contract.problems import RequestUnknown
from lethe.contract.sets import Scope

router = APIRouter(tags=["Lineage"])


class DatasetLineageOut(BaseModel):
    id: str
    name: str
    records: int
    erased_at: datetime.datetime | None = Field(description="When the rows were null on disk; null until then.")


class CarryingVersionOut(BaseModel):
    number: int
    status: str = Field(description="live, retired or destroyed")
    published_at: datetime.datetime
    destroyed_at: datetime.datetime | None


class FirstWithoutOut(BaseModel):
    number: int
    published_at: datetime.datetime
    certificate_id: str | None


class ModelLineageOut(BaseModel):
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


class LineageOut(BaseModel):
    datasets: list[DatasetLineageOut]
    models: list[ModelLineageOut]


@router.get("/deletion-requests/{request_id}/lineage", responses=responses(RequestUnknown))
def get_request_lineage(call: Annotated[Call, call_with(Scope.ACCOUNTING_READ)], request_id: str) -> LineageOut:
    """Which models, versions and copies the person's rows fed, in the datasets that the request asks. The audit
    log says that somebody looked, not at whose."""
    with call.reading() as session:
        deletion.get(session, request_id)
    with call.writing() as session:
        access_events.lineage_read(session)
    with call.reading() as session:
        return _shown(lineage.of_request(session, deletion.get(session, request_id)))


@router.post("/lineage", responses=responses())
def trace_lineage(call: Annotated[Call, call_with(Scope.ADMIN)], body: SubjectIn) -> LineageOut:
    """The same of anybody, in all datasets, whether they asked to be forgotten or not. The audit log says that somebody
    looked, not at whom."""
    with call.writing() as session:
        access_events.lineage_read(session)
    with call.reading() as session:
        return _shown(lineage.of_person(session, subject_ref=subject_ref(call, body)))


def _shown(found: Lineage) -> LineageOut:
    datasets = [
        DatasetLineageOut(id=one.dataset_id, name=one.name, records=one.records, erased_at=one.erased_at)
        for one in found.datasets
    ]
    return LineageOut(datasets=datasets, models=[_model(one) for one in found.models])


def _model(found: ModelLineage) -> ModelLineageOut:
    return ModelLineageOut(
        model_id=found.model.id,
        name=found.model.name,
        dataset_id=found.model.dataset_id,
        num_versions=found.num_carrying,
        versions=[CarryingVersionOut.model_validate(one, from_attributes=True) for one in found.carried_in],
        first_without=_first_without(found.first_without),
        owed=found.owes,
        num_copies_outside=found.num_copies,
        copies_outside=[ExportOut.model_validate(one, from_attributes=True) for one in found.copies],
    )


def _first_without(found: FirstWithout | None) -> FirstWithoutOut | None:
    if found is None:
        return None
    version, certificate = found.version, found.certificate
    return FirstWithoutOut(
        number=version.number,
        published_at=version.published_at,
        certificate_id=certificate.id if certificate else None,
    )
