"""Files that officers attach to a request: a scan, a proof of identity, a mail. They are kept as long as what else
was written about it, and shown to nobody but those who decide.

A file is in the database, not among the objects of the vault's folder or bucket: it is a few MiB at most, and there
everything that internal notes have holds for it without anything new. It is stored in one transaction with its line in
the audit log; its name and its bytes are sealed under one key, which is destroyed with the details of the request, or
when it is deleted; `lethe backup` has it with the tables, and its key with the vault's pages.
"""

from sqlalchemy.orm import Session

from app.audit import access_events
from app.audit import service as audit
from app.db import now, sealed
from app.db.sealed import AttachedFile, FileName
from app.db.tables import DeletionRequest, RequestAttachment, new_id
from app.deletion import attachments_repository as repository
from app.deletion import retention
from app.deletion.file_kinds import Examined
from app.deletion.retention import Kept
from lethe.contract.policy import Policy
from lethe.contract.problems import AttachmentsFull, AttachmentUnknown


def add(session: Session, request: DeletionRequest, *, file: Examined, most: int, policy: Policy) -> RequestAttachment:
    """Keep a file with the details of a request: on record in the audit log without its name, and not among the events,
    which apps read. Raises `DetailsErased` once details are kept no longer, `AttachmentsFull` where it has `most`."""
    retention.require_kept(session, request, policy=policy)
    if repository.count(session, request_id=request.id) >= most:
        raise AttachmentsFull(f"The request has {most} attachments (LETHE_MAX_ATTACHMENTS); delete one of them first.")
    key = sealed.new_key(session)
    attachment = RequestAttachment(
        id=new_id("att"),
        tenant_id=request.tenant_id,
        request_id=request.id,
        author=audit.actor_of(session),
        at=now(session),
        kind=file.kind,
        size=len(file.content),
        name=FileName(key=key, text=file.name),
        content=AttachedFile.of(file.content, key=key),
    )
    session.add(attachment)
    request.kept = Kept.DETAILS
    audit.record(session, "deletion_request.attachment_added", request.id, attachment=attachment.id)
    return attachment


def get(session: Session, *, request_id: str, attachment_id: str) -> RequestAttachment:
    """Raises `AttachmentUnknown`, also for one whose key is destroyed and whose row is still there."""
    found = repository.get(session, request_id=request_id, attachment_id=attachment_id)
    if found is None or not found.name.text:
        raise _unknown()
    return found


def noted(session: Session, *, request_id: str, attachment_id: str) -> None:
    """Put on record that the session's actor is given a file. Raises `AttachmentUnknown`."""
    get(session, request_id=request_id, attachment_id=attachment_id)
    access_events.attachment_read(session, request_id=request_id, attachment_id=attachment_id)


def content_of(session: Session, *, request_id: str, attachment_id: str) -> tuple[RequestAttachment, bytes]:
    """An attachment with its bytes. Raises `AttachmentUnknown`."""
    found = get(session, request_id=request_id, attachment_id=attachment_id)
    content = found.content.content
    if not content:
        raise _unknown()
    return found, content


def key_of(session: Session, *, request_id: str, attachment_id: str) -> str:
    """The key that is to be destroyed before `delete`; it may be already. Raises `AttachmentUnknown`."""
    found = repository.get(session, request_id=request_id, attachment_id=attachment_id)
    if found is None or found.name.key is None:
        raise _unknown()
    return found.name.key


def delete(session: Session, *, request_id: str, attachment_id: str) -> None:
    """Let go of a file whose key is destroyed. Raises `AttachmentUnknown`."""
    if not repository.delete(session, request_id=request_id, attachment_id=attachment_id):
        raise _unknown()
    audit.record(session, "deletion_request.attachment_deleted", request_id, attachment=attachment_id)


def _unknown() -> AttachmentUnknown:
    return AttachmentUnknown("The request has no attachment with this id; it may have been erased with its details.")
