"""Casework on deletion requests: assignees, notes, attachments, and the reply to the person."""

import datetime
from typing import Annotated

from pydantic import BeforeValidator, Field, Strict

from lethe.contract import deletion_requests, fields, operation, problems, sets


class FormRefused(problems.NotAllowed, title="The form did not come from a page of this session"): ...


class AttachmentUnknown(problems.NotFound, title="The request has no such attachment"): ...


class AttachmentInvalid(problems.Malformed, title="The file cannot be attached"): ...


class DetailsErased(problems.Conflict, title="Details of the request are no longer kept"): ...


class NotesFull(problems.Conflict, title="The request has reached its limit of notes"):
    template = "The request has {max_notes} notes; write more in your own files, about its id."


class AttachmentsFull(problems.Conflict, title="The request has reached its limit of attachments"):
    template = "The request has {max_attachments} attachments (LETHE_MAX_ATTACHMENTS); delete one of them first."


class ReplyUnprintable(problems.Conflict, title="The PDF font lacks characters of the reply"): ...


class NotAssignable(problems.Conflict, title="Requests cannot be assigned to this person"):
    template = "Nobody with this id decides about requests here; GET /v1/deletion-requests:assignees lists who does."


class ReplyFormat(sets.ClosedSet):
    TEXT = "text"
    PDF = "pdf"


class ReplyLanguage(sets.ClosedSet):
    """Language of the reply to the person (ISO 639-1)."""

    EN = "en"
    DE = "de"
    FR = "fr"
    ES = "es"


class AttachmentKind(sets.ClosedSet):
    """Type of a file attached to a request, determined by its file extension."""

    PDF = "pdf"
    PNG = "png"
    JPEG = "jpeg"
    TXT = "txt"
    EML = "eml"


class AssignmentIn(fields.Body):
    model_config = fields.example(assignee="usr_3f9c1a2b4d5e6f708192")

    assignee: Annotated[fields.Text, Field(min_length=1, max_length=200)] = Field(
        description=f"ID of a user who can decide on requests, or `{deletion_requests.NOBODY}` to remove the assignee."
    )


class AssigneeOut(fields.Answer):
    id: str = Field(description="ID of the user.")
    name: str = Field(description="Name of the user.")


_ASSIGNEES = operation.ResourceOperations("Deletion requests", "/v1")

ASSIGNEES = _ASSIGNEES.operation(
    "list_assignees",
    "GET",
    "/deletion-requests:assignees",
    scope=sets.Scope.REQUESTS_REVIEW,
    query=fields.Paging,
    gives=fields.PageOut[AssigneeOut],
    does="List the users to whom requests can be assigned, newest first: all users who are not disabled and whose role "
    "lets them decide on requests.",
)
ASSIGN = deletion_requests.REQUESTS.of_one(
    "assign_deletion_request",
    "POST",
    "/{request_id}/assign",
    scope=sets.Scope.REQUESTS_REVIEW,
    takes=AssignmentIn,
    gives=deletion_requests.DeletionRequestOut,
    repeat="idempotent",
    problems=(NotAssignable,),
    does="Assign a request to a user, or clear the assignment. This does not restrict what other users can do, and the "
    "person whom the request is about is not notified.",
)


MAX_NOTE_LENGTH = 4000
MAX_NOTES = 200
"""Maximum number of notes on one request."""


class NoteIn(fields.Body):
    model_config = fields.example(text="Called back at noon; the copy of the passport comes by post.")

    text: Annotated[fields.Text, Field(min_length=1, max_length=MAX_NOTE_LENGTH)] = Field(
        description="Text of the note. It is stored encrypted and erased with the request's details.", repr=False
    )


class NoteOut(fields.Answer):
    id: str = Field(description="ID of the note.")
    at: datetime.datetime = Field(description="Time at which the note was written.")
    author: str = Field(description="ID of the user or API key that wrote the note.")
    author_name: str | None = fields.optional("Name of the note's author; null if unknown.")
    text: str = Field(description="Text of the note; empty if it is damaged.", repr=False)
    damaged: bool = Field(default=False, description="True if the stored text or its key is damaged.")


ADD_NOTE = deletion_requests.REQUESTS.of_one(
    "add_request_note",
    "POST",
    "/{request_id}/notes",
    scope=sets.Scope.REQUESTS_REVIEW,
    takes=NoteIn,
    gives=NoteOut,
    status=201,
    problems=(DetailsErased, NotesFull),
    does="Add a note to a request, for those who decide on it. No event, callback, protocol, export or log contains "
    "the text. It is erased together with the request's details, as the policy requires.\n\nNo `Idempotency-Key` is "
    "accepted, because the text would have to be stored a second time. A repeated call adds another note.",
)
NOTES = deletion_requests.REQUESTS.of_one(
    "list_request_notes",
    "GET",
    "/{request_id}/notes",
    scope=sets.Scope.REQUESTS_REVIEW,
    query=fields.Paging,
    gives=fields.PageOut[NoteOut],
    does="List the notes about a request, oldest first.",
)


MAX_NAME_LENGTH = 200


class AttachmentOut(fields.Answer):
    id: str = Field(description="ID of the attachment.")
    at: datetime.datetime = Field(description="Time at which the file was attached.")
    author: str = Field(description="ID of the user or API key that attached the file.")
    author_name: str | None = fields.optional("Name of the user or API key that attached the file; null if unknown.")
    kind: AttachmentKind = Field(description="Type of the file.")
    size: int = Field(description="Size of the file in bytes.")
    name: str = Field(description="Name of the file as uploaded; empty if damaged.", repr=False)
    damaged: bool = Field(default=False, description="True if the file's stored name or its key is damaged.")


ATTACH = deletion_requests.REQUESTS.of_one(
    "add_request_attachment",
    "POST",
    "/{request_id}/attachments",
    scope=sets.Scope.REQUESTS_REVIEW,
    gives=AttachmentOut,
    status=201,
    problems=(
        problems.UploadTooLarge,
        AttachmentInvalid,
        DetailsErased,
        AttachmentsFull,
        problems.StorageQuotaExceeded,
    ),
    does="Attach a file to a request, for those who decide on it: a PDF, PNG or JPEG, UTF-8 text, or an e-mail (.eml). "
    "The file extension must match the content. No event, callback, protocol, export or log contains the name. The "
    "file is erased together with the request's details, as the policy requires.\n\nNo `Idempotency-Key` is accepted: "
    "a repeated call adds another file.",
)
ATTACHMENTS = deletion_requests.REQUESTS.of_one(
    "list_request_attachments",
    "GET",
    "/{request_id}/attachments",
    scope=sets.Scope.REQUESTS_REVIEW,
    query=fields.Paging,
    gives=fields.PageOut[AttachmentOut],
    does="List the files attached to a request, oldest first.",
)
ATTACHMENT = deletion_requests.REQUESTS.of_two(
    "get_request_attachment",
    "GET",
    "/{request_id}/attachments/{attachment_id}",
    scope=sets.Scope.REQUESTS_REVIEW,
    gives=bytes,
    problems=(AttachmentUnknown, problems.SealedTextDamaged),
    does="Return an attached file as a download: browsers neither display it nor guess its type. The audit log records "
    "who downloaded it.",
)
DELETE_ATTACHMENT = deletion_requests.REQUESTS.of_two(
    "delete_request_attachment",
    "DELETE",
    "/{request_id}/attachments/{attachment_id}",
    scope=sets.Scope.REQUESTS_REVIEW,
    gives=type(None),
    status=204,
    problems=(AttachmentUnknown,),
    does="Erase an attached file. Its key is destroyed before the response is sent.",
)


class ReplyQuery(fields.Query):
    language: ReplyLanguage = Field(default=ReplyLanguage.EN, description="Language of the reply.")
    format: ReplyFormat = Field(default=ReplyFormat.TEXT, description="Format of the reply.")


class Addressing(fields.Body):
    """Details of a single reply, none of them stored: recipient, place, salutation and signature."""

    recipient: Annotated[fields.Text, Field(max_length=500)] = Field(
        default="", description="Name and address of the recipient, on separate lines; empty for none.", repr=False
    )
    place: Annotated[fields.Text, Field(max_length=100)] = Field(default="", description="Place shown before the date.")
    salutation: Annotated[fields.Text, Field(max_length=200)] = Field(
        default="", description="Salutation; empty for the generic one in the reply's language.", repr=False
    )
    signed_by: Annotated[fields.Text, Field(max_length=200)] = Field(
        default="", description="Name and job title below the closing; empty for the controller alone."
    )


REPLY = deletion_requests.REQUESTS.of_one(
    "get_reply",
    "GET",
    "/{request_id}/reply",
    scope=sets.Scope.REQUESTS_REVIEW,
    query=ReplyQuery,
    gives=bytes,
    problems=(ReplyUnprintable, problems.CertificateDamaged),
    does="Return the reply to the person for the request's current stage: received, extended, completed, rejected or "
    "withdrawn. The reply also states what was erased and explains in plain words what each certificate says and how "
    "anyone can verify it. It is generated on demand and not stored.",
)


class ReplyChannel(sets.ClosedSet):
    """Channel by which a reply was sent to the person."""

    LETTER = "letter"
    EMAIL = "email"
    PHONE = "phone"
    IN_PERSON = "in_person"
    OTHER = "other"


class SentReplyIn(fields.Body):
    model_config = fields.example(sent_on="2026-11-26", channel="letter")

    sent_on: Annotated[datetime.date, Strict(False), BeforeValidator(fields.is_written_out)] = Field(
        description="Date on which the reply was sent, in the request's time zone."
    )
    channel: Annotated[ReplyChannel, Strict(False)] = Field(description="Channel through which the reply was sent.")


class SentReplyOut(fields.Answer):
    sent_on: datetime.date = Field(description="Date on which the reply was sent, in the request's time zone.")
    channel: ReplyChannel = Field(description="Channel through which the reply was sent.")
    at: datetime.datetime = Field(description="Time at which the dispatch was recorded.")
    actor: str = Field(description="ID of the user or API key that recorded the dispatch.")
    actor_name: str | None = fields.optional("Name of the user or API key that recorded the dispatch; null if unknown.")


RECORD_SENT_REPLY = deletion_requests.REQUESTS.of_one(
    "record_sent_reply",
    "POST",
    "/{request_id}/sent-replies",
    scope=sets.Scope.REQUESTS_REVIEW,
    takes=SentReplyIn,
    gives=SentReplyOut,
    repeat="idempotent",
    problems=(problems.InputInvalid,),
    does="Record that a reply was sent to the person; the service generates replies but does not send them. The date "
    "and channel are recorded in the audit log and in the request's history, and kept as long as these are. Recording "
    "the same date and channel again is a no-op.",
)
SENT_REPLIES = deletion_requests.REQUESTS.of_one(
    "list_sent_replies",
    "GET",
    "/{request_id}/sent-replies",
    scope=sets.Scope.REQUESTS_REVIEW,
    query=fields.Paging,
    gives=fields.PageOut[SentReplyOut],
    problems=(problems.InputInvalid,),
    does="List the replies recorded as sent, most recently recorded first.",
)


class EvidenceFormat(sets.ClosedSet):
    ZIP = "zip"
    PDF = "pdf"


class EvidenceQuery(fields.Query):
    language: ReplyLanguage = Field(default=ReplyLanguage.EN, description="Language of the reply in the pack.")
    format: EvidenceFormat = Field(
        default=EvidenceFormat.ZIP,
        description="Format. zip: an archive that can be verified offline; pdf: the archive's readable part.",
    )


EVIDENCE_PACK = deletion_requests.REQUESTS.of_one(
    "get_evidence_pack",
    "GET",
    "/{request_id}/evidence-pack",
    scope=sets.Scope.REQUESTS_REVIEW,
    query=EvidenceQuery,
    gives=bytes,
    problems=(ReplyUnprintable, problems.CertificateDamaged),
    does="Return the evidence about a request: the reply to the person, the certificates, the public keys, the "
    "history, and the audit entries up to a checkpoint that is signed for the pack. A signed manifest lists the digest "
    "of every file in the archive; `lethe request verify-evidence-pack` verifies the pack offline.\n\nThe audit log "
    "records who downloaded it. The archive also contains audit entries about other requests, by ID, because the hash "
    "chain needs them; the PDF contains only the entries about this request.",
)
