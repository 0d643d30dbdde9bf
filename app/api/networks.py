"""`/networks`: public networks, by whose features models are learned."""

from typing import Annotated

from fastapi import APIRouter, File, Form, UploadFile
from fastapi.responses import JSONResponse, Response
from sqlalchemy.orm import Session

from app.access import idempotency
from app.access.idempotency import Answer, Once
from app.api import forms, uploads
from app.api.calls import Call, created, respond
from app.api.gateway import serves
from app.encoders import service as encoders
from lethe.contract import networks as contract
from lethe.contract.fields import PageOut, Paging
from lethe.contract.networks import NetworkOut
from lethe.encoders.examining import examine

router = APIRouter(route_class=forms.SpooledRoute)


@serves(router, contract.UPLOAD)
def create_network(
    call: Call,
    once: Once,
    file: Annotated[UploadFile, File(description="The network: .onnx, with its weights in it")],
    name: Annotated[str, Form(min_length=1, max_length=200)],
    licence: Annotated[
        str, Form(min_length=1, max_length=200, description="An SPDX expression, or the name of a text.")
    ],
    provenance: Annotated[
        str, Form(min_length=1, max_length=2000, description="What the network was trained on, in words.")
    ],
    dp_ledger: Annotated[
        str | None,
        Form(
            min_length=1,
            max_length=500,
            description="Where the network's own account of differential privacy is, if it learned from people: every "
            "certificate names it. Without one, certificates say that the network must never have seen the person.",
        ),
    ] = None,
) -> JSONResponse:
    once = uploads.with_file(call.installation, once, file=file, parts=(name, licence, provenance, dp_ledger or ""))
    with call.reading() as session:
        if answer := idempotency.replay(session, once):
            return respond(answer)
    limits = encoders.limits_of(call.installation.settings)
    examined = examine(file.file.read(limits.file_bytes + 1), limits)

    def register(session: Session) -> Answer:
        row = encoders.register(
            session, examined=examined, name=name, licence=licence, provenance=provenance, dp_ledger=dp_ledger
        )
        return created(NetworkOut.model_validate(row, from_attributes=True), f"/v1/networks/{row.id}")

    return respond(call.perform(once, register))


@serves(router, contract.LIST)
def list_networks(call: Call, query: Paging) -> PageOut[NetworkOut]:
    with call.reading() as session:
        page = encoders.listed(session, limit=query.limit, cursor=query.cursor)
        items = [NetworkOut.model_validate(row, from_attributes=True) for row in page.items]
        return PageOut(items=items, next_cursor=page.next_cursor)


@serves(router, contract.GET)
def get_network(call: Call, network_id: str) -> NetworkOut:
    with call.reading() as session:
        return NetworkOut.model_validate(encoders.get(session, network_id), from_attributes=True)


@serves(router, contract.FILE)
def get_network_file(call: Call, network_id: str) -> Response:
    with call.reading() as session:
        content = encoders.content_of(session, encoders.get(session, network_id))
    return Response(content, media_type="application/octet-stream")


@serves(router, contract.DELETE)
def delete_network(call: Call, network_id: str) -> None:
    with call.writing() as session:
        encoders.delete(session, network_id)
