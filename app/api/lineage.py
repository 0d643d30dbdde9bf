"""`/lineage`: which models, versions and copies a person's rows fed."""

from fastapi import APIRouter

from app.api.calls import Call
from app.api.deletion_requests import subject_ref
from app.api.gateway import serves
from app.audit import access_events
from app.deletion import lineage
from app.deletion import service as deletion
from app.deletion.lineage import FirstWithout, Lineage, ModelLineage
from lethe.contract import lineage as contract
from lethe.contract.exports import ExportOut
from lethe.contract.lineage import CarryingVersionOut, DatasetLineageOut, FirstWithoutOut, LineageOut, ModelLineageOut
from lethe.contract.subjects import SubjectIn

router = APIRouter()


@serves(router, contract.OF_REQUEST)
def get_request_lineage(call: Call, request_id: str) -> LineageOut:
    with call.reading() as session:
        deletion.get(session, request_id)
    with call.writing() as session:
        access_events.lineage_read(session)
    with call.reading() as session:
        return _to_response(lineage.of_request(session, deletion.get(session, request_id)))


@serves(router, contract.OF_PERSON)
def trace_lineage(call: Call, body: SubjectIn) -> LineageOut:
    with call.writing() as session:
        access_events.lineage_read(session)
    with call.reading() as session:
        return _to_response(lineage.of_person(session, subject_ref=subject_ref(call, body)))


def _to_response(found: Lineage) -> LineageOut:
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
        number=version.number, published_at=version.published_at, certificate_id=certificate.id if certificate else None
    )
