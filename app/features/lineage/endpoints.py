"""Endpoints for exports, lineage and serving."""

import hashlib
from typing import Annotated

from fastapi import APIRouter, Header
from fastapi.responses import JSONResponse, Response

from app.api import calls, deletion_requests, gateway
from app.audit import service as audit
from app.catalogue import service as catalogue
from app.db import actor
from app.deletion import service as deletion
from app.features.lineage import repository, service
from lethe.contract.fields import PageOut, SubjectIn
from lethe.features.lineage import contract

router = APIRouter()


@gateway.serves(router, contract.EXPORTS)
def list_exports(call: calls.Call, model_id: str, query: contract.ExportsQuery) -> PageOut[contract.ExportOut]:
    with call.reading() as session:
        catalogue.get_model(session, model_id)
        to = (call.caller.id, call.caller.maker) if query.mine else None
        exports = repository.exports(session, model_id=model_id, to=to, **query.model_dump(exclude={"mine"}))
    return PageOut(items=[contract.ExportOut.of(export) for export in exports.items], next_cursor=exports.next_cursor)


@gateway.serves(router, contract.STATE_COPY)
def state_copy(call: calls.Call, model_id: str, export_id: str, body: contract.CopyStatementIn) -> contract.ExportOut:
    with call.writing() as session:
        catalogue.get_model(session, model_id)
        return contract.ExportOut.of(
            service.state_copy(session, model_id=model_id, export_id=export_id, stated=body, caller=call.caller)
        )


@gateway.serves(
    router,
    contract.SERVING,
    more={304: {"description": "What the ETag named still holds, and for `max-age` seconds more"}},
)
def get_serving(
    call: calls.Call,
    model_id: str,
    query: contract.ServingQuery,
    if_none_match: Annotated[
        str | None,
        Header(description="ETag of an earlier answer. If it is still current, the answer is 304 without a body."),
    ] = None,
) -> Response:
    with call.reading() as session:
        model = catalogue.get_model(session, model_id)
        permission = service.of_model(session, model, number=query.version, weights_sha256=query.weights_sha256)
    headers = {
        "ETag": _etag(permission),
        "Cache-Control": f"private, max-age={permission.fresh_seconds}, must-revalidate",
        "Vary": "Authorization",
    }
    if if_none_match is not None and _matches(if_none_match, headers["ETag"]):
        return Response(status_code=304, headers=headers)
    answer = contract.ServingOut.of(permission)
    return JSONResponse(answer.model_dump(mode="json"), headers=headers)


def _etag(permission: service.Serving) -> str:
    """Return an ETag for the response. It ignores the timestamps, so that a 304 can renew a permission."""
    stable = (
        permission.model_id,
        permission.version,
        permission.weights_sha256,
        permission.reason,
        permission.certified,
    )
    return f'W/"{hashlib.sha256(repr(stable).encode()).hexdigest()[:32]}"'


def _matches(if_none_match: str, etag: str) -> bool:
    """Return True if an `If-None-Match` header contains the ETag, compared weakly (RFC 9110, 13.1.2), or `*`."""
    etags = {field.strip().removeprefix("W/") for field in if_none_match.split(",")}
    return "*" in etags or etag.removeprefix("W/") in etags


@gateway.serves(router, contract.OF_REQUEST)
def get_request_lineage(call: calls.Call, request_id: str) -> contract.LineageOut:
    with call.reading() as session:
        deletion.get(session, request_id)
    with call.writing() as session:
        audit.record(session, "lineage.read", actor(session).tenant_id)
    with call.reading() as session:
        return _lineage(service.of_request(session, deletion.get(session, request_id)))


@gateway.serves(router, contract.OF_PERSON)
def trace_lineage(call: calls.Call, body: SubjectIn) -> contract.LineageOut:
    with call.writing() as session:
        audit.record(session, "lineage.read", actor(session).tenant_id)
    with call.reading() as session:
        return _lineage(service.of_person(session, subject_ref=deletion_requests.subject_ref(call, body)))


def _lineage(lineage: service.PersonLineage) -> contract.LineageOut:
    return contract.LineageOut.of(lineage, models=[_model(model) for model in lineage.models])


def _model(lineage: service.ModelLineage) -> contract.ModelLineageOut:
    return contract.ModelLineageOut.of(
        lineage,
        model_id=lineage.model.id,
        name=lineage.model.name,
        dataset_id=lineage.model.dataset_id,
        first_without=_first_without(lineage.first_without),
    )


def _first_without(first: service.FirstWithout | None) -> contract.FirstWithoutOut | None:
    if first is None:
        return None
    version, certificate = first.version, first.certificate
    return contract.FirstWithoutOut(
        number=version.number, published_at=version.published_at, certificate_id=certificate.id if certificate else None
    )


MOUNTS = (gateway.Mount(router=router),)
