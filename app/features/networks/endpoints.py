"""Endpoints under `/networks`, and `/datasets:encodings`: the progress of uploads that a network encodes."""

from typing import Annotated

from fastapi import APIRouter, File, UploadFile
from fastapi.responses import JSONResponse, Response
from sqlalchemy.orm import Session

from app.access import idempotency
from app.api import calls, forms, gateway, uploads
from app.features.networks import service, under_way
from lethe.contract.fields import PageOut, Paging
from lethe.features.networks import contract
from lethe.features.networks.encoders.process import examine

router = APIRouter(route_class=forms.SpooledRoute)


@gateway.serves(router, contract.UPLOAD)
@uploads.takes(contract.NetworkIn)
def create_network(
    call: calls.Call,
    once: idempotency.Once,
    file: Annotated[UploadFile, File(description="ONNX file of the network, including its weights.")],
    form: contract.NetworkIn,
) -> JSONResponse:
    with call.reading() as session:
        if answer := idempotency.replay(session, once):
            return calls.respond(answer)
    call.require_room(file.size or 0)
    limits = service.limits_of(call.installation.settings)
    with service.place(call.caller.tenant_id):
        examined = examine(file.file.read(limits.file_bytes + 1), limits)

    def register(session: Session) -> idempotency.StoredResponse:
        row = service.register(session, examined=examined, **dict(form))
        call.require_room(session=session)
        return calls.created(contract.NetworkOut.of(row), f"/v1/networks/{row.id}")

    return calls.respond(call.perform(once, register))


@gateway.serves(router, contract.LIST)
def list_networks(call: calls.Call, query: Paging) -> PageOut[contract.NetworkOut]:
    with call.reading() as session:
        page = service.listed(session, limit=query.limit, cursor=query.cursor)
        return PageOut(items=[contract.NetworkOut.of(row) for row in page.items], next_cursor=page.next_cursor)


@gateway.serves(router, contract.GET)
def get_network(call: calls.Call, network_id: str) -> contract.NetworkOut:
    with call.reading() as session:
        return contract.NetworkOut.of(service.get(session, network_id))


@gateway.serves(router, contract.FILE)
def get_network_file(call: calls.Call, network_id: str) -> Response:
    with call.reading() as session:
        content = service.content_of(session, service.get(session, network_id))
    return Response(content, media_type="application/octet-stream")


@gateway.serves(router, contract.DELETE)
def delete_network(call: calls.Call, network_id: str) -> None:
    with call.writing() as session:
        service.delete(session, network_id)


@gateway.serves(router, contract.ENCODINGS)
def list_encodings(call: calls.Call) -> contract.EncodingsOut:
    encodings = under_way.listed(call.installation.settings, call.caller.tenant_id)
    return contract.EncodingsOut(items=[contract.EncodingOut.of(encoding) for encoding in encodings])


MOUNTS = (gateway.Mount(router=router),)
