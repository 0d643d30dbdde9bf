"""Internal notes about requests: kept as long as what else was written about them, and told to nobody but those who
decide."""

from sqlalchemy.orm import Session

from app.audit import service as audit
from app.db import now
from app.db.sealed import Note
from app.db.tables import DeletionRequest, RequestNote, new_id
from app.deletion import notes_repository as repository
from app.deletion import retention
from app.deletion.retention import Kept
from lethe.contract.policy import Policy
from lethe.contract.problems import NotesFull
from lethe.contract.request_notes import MOST_NOTES


def add(session: Session, request: DeletionRequest, *, text: str, policy: Policy) -> RequestNote:
    """Keep a note with the details of a request: on record in the audit log without its text, and not among the events,
    which apps read. Raises `DetailsErased` once details are kept no longer, `NotesFull`."""
    retention.require_kept(session, request, policy=policy)
    if repository.count(session, request_id=request.id) >= MOST_NOTES:
        raise NotesFull(f"The request has {MOST_NOTES} notes; write more in your own files, about its id.")
    note = RequestNote(
        id=new_id("note"),
        tenant_id=request.tenant_id,
        request_id=request.id,
        author=audit.actor_of(session),
        at=now(session),
        text=Note(text=text),
    )
    session.add(note)
    request.kept = Kept.DETAILS
    audit.record(session, "deletion_request.note_added", request.id, note=note.id)
    return note
