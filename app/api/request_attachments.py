"""`/deletion-requests/{id}/attachments`: files for those who decide. They are spooled while they come in, and handed
out to be saved, never to be shown."""

import urllib.parse
from collections.abc import Mapping
from typing import Annotated

from fastapi import APIRouter, File, UploadFile
from fastapi.responses import JSONResponse, Response

from app.access import service as access
from app.api import forms
from app.api.calls import Call, created, respond
from app.api.gateway import serves
from app.db.tables import RequestAttachment
from app.deletion import attachments, file_kinds
from app.deletion import attachments_repository as repository
from app.deletion import service as deletion
from lethe.contract import request_attachments as contract
from lethe.contract.fields import PageOut, Paging
from lethe.contract.request_attachments import AttachmentOut
from lethe.contract.sets import AttachmentKind

router = APIRouter(route_class=forms.SpooledRoute)

_NEVER_SHOWN = {
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'; sandbox",
    "Cache-Control": "no-store",
}


@serves(router, contract.ADD)
def add_request_attachment(
    call: Call,
    request_id: str,
    file: Annotated[UploadFile, File(description="The file: .pdf, .png, .jpeg, .jpg, .txt or .eml")],
) -> JSONResponse:
    with call.reading() as session:
        deletion.get(session, request_id)
    settings = call.installation.settings
    most_bytes = settings.max_attachment_bytes
    examined = file_kinds.examine(file.filename or "", file.file.read(most_bytes + 1), most_bytes=most_bytes)
    with call.writing() as session:
        attachment = attachments.add(
            session,
            deletion.get(session, request_id),
            file=examined,
            most=settings.max_attachments,
            policy=call.caller.policy,
        )
        made = _to_response(attachment, access.names_of(session, {attachment.author}))
    return respond(created(made, f"/v1/deletion-requests/{request_id}/attachments/{made.id}"))


@serves(router, contract.LIST)
def list_request_attachments(call: Call, request_id: str, query: Paging) -> PageOut[AttachmentOut]:
    with call.reading() as session:
        deletion.get(session, request_id)
        page = repository.of_request(session, request_id=request_id, limit=query.limit, cursor=query.cursor)
        names = access.names_of(session, {one.author for one in page.items})
        there = [_to_response(one, names) for one in page.items if one.name.text]
    return PageOut(items=there, next_cursor=page.next_cursor)


@serves(router, contract.CONTENT)
def get_request_attachment(call: Call, request_id: str, attachment_id: str) -> Response:
    with call.writing() as session:
        deletion.get(session, request_id)
        attachments.noted(session, request_id=request_id, attachment_id=attachment_id)
    with call.reading() as session:
        found, content = attachments.content_of(session, request_id=request_id, attachment_id=attachment_id)
        kind, name = AttachmentKind(found.kind), urllib.parse.quote(found.name.text, safe="")
    disposition = f"attachment; filename=\"{attachment_id}.{kind.value}\"; filename*=UTF-8''{name}"
    headers = _NEVER_SHOWN | {"Content-Disposition": disposition}
    return Response(content, media_type=file_kinds.MEDIA_TYPES[kind], headers=headers)


@serves(router, contract.DELETE)
def delete_request_attachment(call: Call, request_id: str, attachment_id: str) -> None:
    with call.reading() as session:
        deletion.get(session, request_id)
        key = attachments.key_of(session, request_id=request_id, attachment_id=attachment_id)
    call.installation.vault.destroy([key])
    with call.writing() as session:
        attachments.delete(session, request_id=request_id, attachment_id=attachment_id)


def _to_response(attachment: RequestAttachment, names: Mapping[str, str]) -> AttachmentOut:
    return AttachmentOut(
        id=attachment.id,
        at=attachment.at,
        author=attachment.author,
        author_name=names.get(attachment.author),
        kind=AttachmentKind(attachment.kind),
        size=attachment.size,
        name=attachment.name.text,
    )
