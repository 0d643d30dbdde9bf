"""Casework on requests: assignment, internal notes, attached files, and replies sent.

Assignments, notes and attachments are not part of a request's events, which apps can read. Notes and attachments are
kept as long as the request's other details. An attachment is stored in the database, not with the objects in the
vault's folder or bucket: it is at most a few MiB, and in the database it is protected in the same way as notes. It is
stored in the same transaction as its audit log entry. Its name and bytes are sealed under one key, which is destroyed
when the request's details are erased or the attachment is deleted. `lethe backup` stores the attachment with the
tables, and its key with the vault's pages.
"""

import datetime

from sqlalchemy.orm import Session

from app.audit import service as audit
from app.db import now, sealed
from app.db.tables import AuditEntry, DeletionRequest, new_id
from app.deletion import deadlines, retention
from app.features.desk import file_kinds, repository, tables
from app.features.people import repository as people_repository, users
from lethe.contract import deletion_requests, problems, tenants
from lethe.features.desk import contract

_REPLY_SENT = "deletion_request.reply_sent"
_MAX_COMPARED = 100
"""Number of previous replies with which a new reply is compared."""


def assign(session: Session, request: DeletionRequest, *, assignee: str) -> None:
    """Assign a request to a person, or to `NOBODY`.

    Raises `NotAssignable` if the user is unknown, disabled, or not allowed to decide on requests.
    """
    user_id = None if assignee == deletion_requests.NOBODY else assignee
    if user_id == request.assignee:
        return
    if user_id is not None:
        user = people_repository.user(session, user_id)
        if user is None or not users.may_decide(user):
            raise contract.NotAssignable()
    request.assignee = user_id
    audit.record(session, "deletion_request.assigned", request.id, assignee=user_id)


def add_note(session: Session, request: DeletionRequest, *, text: str, policy: tenants.Policy) -> tables.RequestNote:
    """Store a note with a request's details. The audit log records the note's id but not its text.

    Raises `DetailsErased` once the details have been erased, and `NotesFull`.
    """
    _require_kept(session, request, policy=policy)
    if repository.count_of(session, tables.RequestNote, request_id=request.id) >= contract.MAX_NOTES:
        raise contract.NotesFull(max_notes=contract.MAX_NOTES)
    note = tables.RequestNote(
        id=new_id("note"),
        tenant_id=request.tenant_id,
        request_id=request.id,
        author=audit.actor_of(session),
        at=now(session),
        text=tables.Note(text=text),
    )
    session.add(note)
    request.kept = retention.RetentionLevel.DETAILS
    audit.record(session, "deletion_request.note_added", request.id, note=note.id)
    return note


def attach(
    session: Session,
    request: DeletionRequest,
    *,
    file: file_kinds.AttachmentFile,
    max_attachments: int,
    policy: tenants.Policy,
) -> tables.RequestAttachment:
    """Store a file with a request's details. The audit log records the attachment's id but not its name.

    Raises `DetailsErased` once the details have been erased, and `AttachmentsFull` above `max_attachments`.
    """
    _require_kept(session, request, policy=policy)
    if repository.count_of(session, tables.RequestAttachment, request_id=request.id) >= max_attachments:
        raise contract.AttachmentsFull(max_attachments=max_attachments)
    key = sealed.new_key(session)
    attachment = tables.RequestAttachment(
        id=new_id("att"),
        tenant_id=request.tenant_id,
        request_id=request.id,
        author=audit.actor_of(session),
        at=now(session),
        kind=file.kind,
        size=len(file.content),
        name=tables.FileName(key=key, text=file.name),
        content=tables.AttachedFile.of(file.content, key=key),
    )
    session.add(attachment)
    request.kept = retention.RetentionLevel.DETAILS
    audit.record(session, "deletion_request.attachment_added", request.id, attachment=attachment.id)
    return attachment


def get_attachment(session: Session, *, request_id: str, attachment_id: str) -> tables.RequestAttachment:
    """Return an attachment. Raises `AttachmentUnknown` if it does not exist or its key has been destroyed."""
    attachment = repository.attachment(session, request_id=request_id, attachment_id=attachment_id)
    if attachment is None or not attachment.name.text:
        raise _unknown_attachment()
    return attachment


def record_download(session: Session, *, request_id: str, attachment_id: str) -> None:
    """Record that the session's actor is downloading an attachment. Raises `AttachmentUnknown`."""
    get_attachment(session, request_id=request_id, attachment_id=attachment_id)
    audit.record(session, "deletion_request.attachment_read", request_id, attachment=attachment_id)


def read_attachment(session: Session, *, request_id: str, attachment_id: str) -> tuple[tables.RequestAttachment, bytes]:
    """Return an attachment and its bytes. Raises `AttachmentUnknown`."""
    attachment = get_attachment(session, request_id=request_id, attachment_id=attachment_id)
    content = attachment.content.content
    if not content:
        raise _unknown_attachment()
    return attachment, content


def attachment_key(session: Session, *, request_id: str, attachment_id: str) -> str:
    """Return the attachment's key, which must be destroyed before `delete_attachment` and may already have been. Raises
    `AttachmentUnknown`."""
    attachment = repository.attachment(session, request_id=request_id, attachment_id=attachment_id)
    if attachment is None or attachment.name.key is None:
        raise _unknown_attachment()
    return attachment.name.key


def delete_attachment(session: Session, *, request_id: str, attachment_id: str) -> None:
    """Delete the row of an attachment whose key has been destroyed. Raises `AttachmentUnknown`."""
    attachment = repository.attachment(session, request_id=request_id, attachment_id=attachment_id)
    if attachment is None:
        raise _unknown_attachment()
    session.delete(attachment)
    session.flush()
    audit.record(session, "deletion_request.attachment_deleted", request_id, attachment=attachment_id)


def record_sent_reply(
    session: Session, request: DeletionRequest, *, sent_on: datetime.date, channel: contract.ReplyChannel
) -> AuditEntry:
    """Record in the audit log that a reply was sent to the person on a given day, or return the existing entry.

    Raises `InputInvalid` if the day is before receipt of the request or in the future, in the request's time zone.
    """
    zone = deadlines.zone_named(request.time_zone)
    if not request.submitted_at.astimezone(zone).date() <= sent_on <= now(session).astimezone(zone).date():
        fault = problems.FieldError("sent_on", "expected a day from the receipt of the request until today")
        raise problems.InputInvalid("The reply cannot have been sent on that day.", [fault])
    detail = {"sent_on": sent_on.isoformat(), "channel": channel.value}
    for entry in sent_replies(session, request, before=None, limit=_MAX_COMPARED):
        if entry.detail == detail:
            return entry
    audit.record(session, _REPLY_SENT, request.id, **detail)
    return sent_replies(session, request, before=None, limit=1)[0]


def sent_replies(session: Session, request: DeletionRequest, *, before: int | None, limit: int) -> list[AuditEntry]:
    """Return the audit entries about sent replies with sequence numbers below `before`, most recent first."""
    return repository.audit_entries(
        session, tenant_id=request.tenant_id, before=before, limit=limit, object_id=request.id, action=_REPLY_SENT
    )


def _unknown_attachment() -> contract.AttachmentUnknown:
    return contract.AttachmentUnknown(
        "The request has no attachment with this id; it may have been erased with its details."
    )


def _require_kept(session: Session, request: DeletionRequest, *, policy: tenants.Policy) -> None:
    """Raise `DetailsErased` if, under the policy, anything added to the request now would be erased immediately."""
    days = datetime.timedelta(days=retention.days_of_details(policy))
    is_over = request.ended_at is not None and request.ended_at + days <= now(session)
    # A request may have been reduced to its trace under an earlier policy.
    if is_over or request.kept == retention.RetentionLevel.TRACE:
        raise contract.DetailsErased(
            "The policy keeps details of this request no longer, so what is added now would be erased at once. Keep it "
            "in your own files, about the id of the request."
        )
