"""Endpoints for casework under /v1/deletion-requests: assignees, notes, attachments and replies."""

import datetime
import urllib.parse
from collections.abc import Mapping
from typing import Annotated

from fastapi import APIRouter, File, UploadFile
from fastapi.responses import JSONResponse, Response

from app import signing
from app.access import service as access
from app.api import calls, deletion_requests, forms, gateway
from app.db.tables import AuditEntry
from app.deletion import service as deletion
from app.features.desk import evidence_pack, file_kinds, replies, repository, service, tables
from app.features.people import repository as people_repository, users
from lethe.contract.deletion_requests import DeletionRequestOut, EventsQuery
from lethe.contract.fields import PageOut, Paging
from lethe.features.desk import contract

router = APIRouter(route_class=deletion_requests.PlainRoute)
files = APIRouter(route_class=forms.SpooledRoute)


_MAX_EVENTS = 500
_DOWNLOAD_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'; sandbox",
    "Cache-Control": "no-store",
}
"""Response headers that make browsers save an attachment instead of displaying it."""


@gateway.serves(router, contract.ASSIGNEES)
def list_assignees(call: calls.Call, query: Paging) -> PageOut[contract.AssigneeOut]:
    with call.reading() as session:
        page = people_repository.enabled_users(session, users.DECIDING, limit=query.limit, cursor=query.cursor)
    return PageOut(
        items=[contract.AssigneeOut(id=user.id, name=user.name) for user in page.items], next_cursor=page.next_cursor
    )


@gateway.serves(router, contract.ASSIGN)
def assign_deletion_request(
    call: calls.Call, intake: deletion_requests.TheIntake, request_id: str, body: contract.AssignmentIn
) -> DeletionRequestOut:
    with call.writing() as session:
        request = deletion.get(session, request_id)
        service.assign(session, request, assignee=body.assignee)
        return deletion_requests.to_response_of(session, call, intake, request)


@gateway.serves(router, contract.ADD_NOTE)
def add_request_note(call: calls.Call, request_id: str, body: contract.NoteIn) -> JSONResponse:
    with call.writing() as session:
        note = service.add_note(session, deletion.get(session, request_id), text=body.text, policy=call.caller.policy)
        response = _note_to_response(note, access.names_of(session, {note.author}))
    return calls.respond(calls.created(response, f"/v1/deletion-requests/{request_id}/notes"))


@gateway.serves(router, contract.NOTES)
def list_request_notes(call: calls.Call, request_id: str, query: Paging) -> PageOut[contract.NoteOut]:
    with call.reading() as session:
        deletion.get(session, request_id)
        page = repository.page_of(session, tables.RequestNote, request_id=request_id, **dict(query))
        names = access.names_of(session, {note.author for note in page.items})
    return PageOut(items=[_note_to_response(note, names) for note in page.items], next_cursor=page.next_cursor)


def _note_to_response(note: tables.RequestNote, names: Mapping[str, str]) -> contract.NoteOut:
    return contract.NoteOut.of(
        note,
        author_name=names.get(note.author),
        text="" if note.text.is_damaged else note.text.text,
        damaged=note.text.is_damaged,
    )


@gateway.serves(files, contract.ATTACH)
def add_request_attachment(
    call: calls.Call,
    request_id: str,
    file: Annotated[UploadFile, File(description="File to attach: .pdf, .png, .jpeg, .jpg, .txt or .eml.")],
) -> JSONResponse:
    with call.reading() as session:
        deletion.get(session, request_id)
    settings = call.installation.settings
    max_bytes = settings.max_attachment_bytes
    examined = file_kinds.examine(file.filename or "", file.file.read(max_bytes + 1), max_bytes=max_bytes)
    with call.writing() as session:
        attachment = service.attach(
            session,
            deletion.get(session, request_id),
            file=examined,
            max_attachments=settings.max_attachments,
            policy=call.caller.policy,
        )
        call.require_room(session=session)
        response = _attachment_to_response(attachment, access.names_of(session, {attachment.author}))
    return calls.respond(calls.created(response, f"/v1/deletion-requests/{request_id}/attachments/{response.id}"))


@gateway.serves(files, contract.ATTACHMENTS)
def list_request_attachments(call: calls.Call, request_id: str, query: Paging) -> PageOut[contract.AttachmentOut]:
    with call.reading() as session:
        deletion.get(session, request_id)
        page = repository.page_of(session, tables.RequestAttachment, request_id=request_id, **dict(query))
        names = access.names_of(session, {attachment.author for attachment in page.items})
        stored = [attachment for attachment in page.items if attachment.name.is_damaged or attachment.name.text]
        items = [_attachment_to_response(attachment, names) for attachment in stored]
    return PageOut(items=items, next_cursor=page.next_cursor)


@gateway.serves(files, contract.ATTACHMENT)
def get_request_attachment(call: calls.Call, request_id: str, attachment_id: str) -> Response:
    with call.writing() as session:
        deletion.get(session, request_id)
        service.record_download(session, request_id=request_id, attachment_id=attachment_id)
    with call.reading() as session:
        attachment, content = service.read_attachment(session, request_id=request_id, attachment_id=attachment_id)
        kind, name = contract.AttachmentKind(attachment.kind), urllib.parse.quote(attachment.name.text, safe="")
    disposition = f"attachment; filename=\"{attachment_id}.{kind.value}\"; filename*=UTF-8''{name}"
    headers = _DOWNLOAD_HEADERS | {"Content-Disposition": disposition}
    return Response(content, media_type=file_kinds.MEDIA_TYPES[kind], headers=headers)


@gateway.serves(files, contract.DELETE_ATTACHMENT)
def delete_request_attachment(call: calls.Call, request_id: str, attachment_id: str) -> None:
    with call.reading() as session:
        deletion.get(session, request_id)
        key = service.attachment_key(session, request_id=request_id, attachment_id=attachment_id)
    # The key goes before the row, so that a crash in between leaves nothing that can be read.
    call.installation.vault.destroy([key])
    with call.writing() as session:
        service.delete_attachment(session, request_id=request_id, attachment_id=attachment_id)


def _attachment_to_response(attachment: tables.RequestAttachment, names: Mapping[str, str]) -> contract.AttachmentOut:
    name = "" if attachment.name.is_damaged else attachment.name.text
    return contract.AttachmentOut.of(
        attachment, author_name=names.get(attachment.author), name=name, damaged=attachment.name.is_damaged
    )


@gateway.serves(files, contract.REPLY)
def get_reply(
    call: calls.Call, intake: deletion_requests.TheIntake, request_id: str, query: contract.ReplyQuery
) -> Response:
    return reply_file(call, intake, request_id, query)


def reply_file(
    call: calls.Call,
    intake: deletion_requests.TheIntake,
    request_id: str,
    query: contract.ReplyQuery,
    addressing: contract.Addressing | None = None,
) -> Response:
    """Return the reply to a request as a file, including what the officer has entered.

    Raises `RequestUnknown`, `ReplyUnprintable` and `CertificateDamaged`.
    """
    request = deletion_requests.get_deletion_request(call, intake, request_id)
    proof = deletion_requests.get_certificates(call, request.erased_by or request_id)
    reply = replies.reply_to(
        request,
        proof,
        query.language,
        policy=call.caller.policy,
        at=datetime.datetime.now(datetime.UTC),
        origin=call.installation.settings.dashboard_origin,
        addressing=addressing,
    )
    if query.format is contract.ReplyFormat.PDF:
        # The libraries of PDF take longer to import than the gateway's other parts.
        from app.features.desk import reply_pdf

        folder = forms.folder(call.installation.settings)
        content, media_type, suffix = reply_pdf.as_pdf(reply, folder=folder), "application/pdf", "pdf"
    else:
        content, media_type, suffix = replies.as_text(reply).encode(), "text/plain; charset=utf-8", "txt"
    return _file(content, media_type, f"reply-{request.id}.{suffix}", language=query.language)


@gateway.serves(router, contract.RECORD_SENT_REPLY)
def record_sent_reply(call: calls.Call, request_id: str, body: contract.SentReplyIn) -> contract.SentReplyOut:
    with call.writing() as session:
        request = deletion.get(session, request_id)
        entry = service.record_sent_reply(session, request, sent_on=body.sent_on, channel=body.channel)
        return _sent_reply_to_response(entry, access.names_of(session, {entry.actor}))


@gateway.serves(router, contract.SENT_REPLIES)
def list_sent_replies(call: calls.Call, request_id: str, query: Paging) -> PageOut[contract.SentReplyOut]:
    before = calls.number_in(query.cursor)
    with call.reading() as session:
        request = deletion.get(session, request_id)
        entries = service.sent_replies(session, request, before=before, limit=query.limit + 1)
        names = access.names_of(session, {entry.actor for entry in entries})
    items = [_sent_reply_to_response(entry, names) for entry in entries[: query.limit]]
    next_cursor = str(entries[query.limit - 1].sequence) if len(entries) > query.limit else None
    return PageOut(items=items, next_cursor=next_cursor)


def _sent_reply_to_response(entry: AuditEntry, names: Mapping[str, str]) -> contract.SentReplyOut:
    return contract.SentReplyOut.of(entry, **entry.detail, actor_name=names.get(entry.actor))


@gateway.serves(files, contract.EVIDENCE_PACK)
def get_evidence_pack(
    call: calls.Call, intake: deletion_requests.TheIntake, request_id: str, query: contract.EvidenceQuery
) -> Response:
    keys, tenant_id = call.installation.keys, call.caller.tenant_id
    with call.writing() as session:
        deletion.get(session, request_id)
        evidence_pack.record(session, keys, request_id=request_id, tenant_id=tenant_id, kind=query.format.value)
    request = deletion_requests.get_deletion_request(call, intake, request_id)
    proof = deletion_requests.get_certificates(call, request.erased_by or request_id)
    events = deletion_requests.list_events(call, request_id, EventsQuery(limit=_MAX_EVENTS))
    with call.reading() as session:
        log = evidence_pack.audit_part(session, request_id=request_id, tenant_id=tenant_id)
    made_at = datetime.datetime.fromisoformat(log.entries[-1].at)
    reply = replies.reply_to(
        request,
        proof,
        query.language,
        policy=call.caller.policy,
        at=made_at,
        origin=call.installation.settings.dashboard_origin,
    )
    evidence = evidence_pack.PackContents(
        request=request,
        events=events.items,
        proof=proof,
        reply=reply,
        log=log,
        keys=signing.public_keys(keys),
        made_at=made_at,
    )
    folder = forms.folder(call.installation.settings)
    if query.format is contract.EvidenceFormat.PDF:
        content, media_type = evidence_pack.as_pdf(evidence, folder=folder), "application/pdf"
    else:
        content, media_type = evidence_pack.as_zip(evidence, keys, folder=folder), "application/zip"
    return _file(content, media_type, f"evidence-{request.id}.{query.format.value}", language=query.language)


def _file(content: bytes, media_type: str, name: str, *, language: contract.ReplyLanguage) -> Response:
    headers = {
        "Content-Disposition": f'attachment; filename="{name}"',
        "Content-Language": language.value,
        "Cache-Control": "no-store",
    }
    return Response(content, media_type=media_type, headers=headers)
