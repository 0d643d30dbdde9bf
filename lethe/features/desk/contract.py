"""Case work on deletion requests: assignees, notes, attachments, and the reply to the person."""

import datetime
from typing import Annotated

from pydantic import BeforeValidator, Field, Strict

from lethe.contract import operation, problems
from lethe.contract.deletion_requests import NOBODY, REQUESTS, DeletionRequestOut
from lethe.contract.fields import Answer, Body, PageOut, Paging, Query, Text, example, is_written_out, optional
from lethe.contract.sets import ClosedSet, Scope


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


class ReplyFormat(ClosedSet):
    TEXT = "text"
    PDF = "pdf"


class ReplyLanguage(ClosedSet):
    """Language of a reply to a person (ISO 639-1)."""

    EN = "en"
    DE = "de"
    FR = "fr"
    ES = "es"


class AttachmentKind(ClosedSet):
    """Kind of a file attached to a request, by the extension of its name."""

    PDF = "pdf"
    PNG = "png"
    JPEG = "jpeg"
    TXT = "txt"
    EML = "eml"


class AssignmentIn(Body):
    model_config = example(assignee="usr_3f9c1a2b4d5e6f708192")

    assignee: Annotated[Text, Field(min_length=1, max_length=200)] = Field(
        description=f"ID of a person who may decide about requests, or `{NOBODY}` to remove the assignee."
    )


class AssigneeOut(Answer):
    id: str = Field(description="ID of the person.")
    name: str = Field(description="Name of the person.")


_ASSIGNEES = operation.ResourceOperations("Deletion requests", "/v1")

ASSIGNEES = _ASSIGNEES.operation(
    "list_assignees",
    "GET",
    "/deletion-requests:assignees",
    scope=Scope.REQUESTS_REVIEW,
    query=Paging,
    gives=PageOut[AssigneeOut],
    does="List the people to whom requests can be assigned, newest first: everyone whose role lets them decide about "
    "requests and who is not disabled.",
)
ASSIGN = REQUESTS.of_one(
    "assign_deletion_request",
    "POST",
    "/{request_id}/assign",
    scope=Scope.REQUESTS_REVIEW,
    takes=AssignmentIn,
    gives=DeletionRequestOut,
    repeat="idempotent",
    problems=(NotAssignable,),
    does="Assign a request to a person, or clear the assignment. This does not restrict what others may do, and the "
    "person whom the request is about is not notified.",
)


MAX_NOTE_LENGTH = 4000
MAX_NOTES = 200
"""Maximum number of notes about one request."""


class NoteIn(Body):
    model_config = example(text="Called back at noon; the copy of the passport comes by post.")

    text: Annotated[Text, Field(min_length=1, max_length=MAX_NOTE_LENGTH)] = Field(
        description="Text of the note, which is stored sealed and erased with the details of the request.", repr=False
    )


class NoteOut(Answer):
    id: str = Field(description="ID of the note.")
    at: datetime.datetime = Field(description="Time at which the note was written.")
    author: str = Field(description="ID of the person or API key that wrote the note.")
    author_name: str | None = optional("Name of the author, if known.")
    text: str = Field(description="Text of the note; empty if damaged.", repr=False)
    damaged: bool = Field(default=False, description="True if the stored text or its key is damaged.")


ADD_NOTE = REQUESTS.of_one(
    "add_request_note",
    "POST",
    "/{request_id}/notes",
    scope=Scope.REQUESTS_REVIEW,
    takes=NoteIn,
    gives=NoteOut,
    status=201,
    problems=(DetailsErased, NotesFull),
    does="Add a note about a request for those who decide on it. No event, callback, protocol, export or log contains "
    "the text. It is erased together with the request's details, as the policy requires.\n\nNo `Idempotency-Key` is "
    "accepted, because remembering one would store the text once more: a repetition is another note.",
)
NOTES = REQUESTS.of_one(
    "list_request_notes",
    "GET",
    "/{request_id}/notes",
    scope=Scope.REQUESTS_REVIEW,
    query=Paging,
    gives=PageOut[NoteOut],
    does="List the notes about a request, oldest first.",
)


MAX_NAME_LENGTH = 200


class AttachmentOut(Answer):
    id: str = Field(description="ID of the attachment.")
    at: datetime.datetime = Field(description="Time at which the file was attached.")
    author: str = Field(description="ID of the person or API key that attached the file.")
    author_name: str | None = optional("Name of the author, if known.")
    kind: AttachmentKind = Field(description="Kind of the file.")
    size: int = Field(description="Size of the file in bytes.")
    name: str = Field(description="Name of the file as sent by its author; empty if damaged.", repr=False)
    damaged: bool = Field(default=False, description="True if the stored name or the key of the file is damaged.")


ATTACH = REQUESTS.of_one(
    "add_request_attachment",
    "POST",
    "/{request_id}/attachments",
    scope=Scope.REQUESTS_REVIEW,
    gives=AttachmentOut,
    status=201,
    problems=(
        problems.UploadTooLarge,
        AttachmentInvalid,
        DetailsErased,
        AttachmentsFull,
        problems.StorageQuotaExceeded,
    ),
    does="Attach a file to a request for those who decide on it: a PDF, PNG or JPEG, UTF-8 text, or an e-mail (.eml). "
    "Name and bytes must agree on the kind. No event, callback, protocol, export or log contains its name. It is "
    "erased together with the request's details, as the policy requires.\n\nNo `Idempotency-Key` is accepted: a "
    "repetition is another attachment.",
)
ATTACHMENTS = REQUESTS.of_one(
    "list_request_attachments",
    "GET",
    "/{request_id}/attachments",
    scope=Scope.REQUESTS_REVIEW,
    query=Paging,
    gives=PageOut[AttachmentOut],
    does="List the files attached to a request, oldest first.",
)
ATTACHMENT = REQUESTS.of_two(
    "get_request_attachment",
    "GET",
    "/{request_id}/attachments/{attachment_id}",
    scope=Scope.REQUESTS_REVIEW,
    gives=bytes,
    problems=(AttachmentUnknown, problems.SealedTextDamaged),
    does="Return the file for saving: browsers neither show it nor guess its type. The audit log records who "
    "downloaded it.",
)
DELETE_ATTACHMENT = REQUESTS.of_two(
    "delete_request_attachment",
    "DELETE",
    "/{request_id}/attachments/{attachment_id}",
    scope=Scope.REQUESTS_REVIEW,
    gives=type(None),
    status=204,
    problems=(AttachmentUnknown,),
    does="Erase a file: its key is destroyed before the answer.",
)


class ReplyQuery(Query):
    language: ReplyLanguage = Field(default=ReplyLanguage.EN, description="Language of the reply.")
    format: ReplyFormat = Field(default=ReplyFormat.TEXT, description="Format of the reply.")


class Addressing(Body):
    """Details of a single reply, which are not stored: recipient, place, salutation and signature."""

    recipient: Annotated[Text, Field(max_length=500)] = Field(
        default="", description="Name and address of the recipient, one line each; empty for no address.", repr=False
    )
    place: Annotated[Text, Field(max_length=100)] = Field(default="", description="Place before the date.")
    salutation: Annotated[Text, Field(max_length=200)] = Field(
        default="", description="Salutation; empty for the language's general one.", repr=False
    )
    signed_by: Annotated[Text, Field(max_length=200)] = Field(
        default="", description="Name and function below the closing; empty for the controller alone."
    )


REPLY = REQUESTS.of_one(
    "get_reply",
    "GET",
    "/{request_id}/reply",
    scope=Scope.REQUESTS_REVIEW,
    query=ReplyQuery,
    gives=bytes,
    problems=(ReplyUnprintable, problems.CertificateDamaged),
    does="Return the reply to the person at the current stage: received, extended, completed, rejected or withdrawn. "
    "It also states what was erased, each certificate in plain words, and how anyone can verify it. It is composed on "
    "demand and not stored.",
)


class ReplyChannel(ClosedSet):
    """Channel by which a reply was sent to the person."""

    LETTER = "letter"
    EMAIL = "email"
    PHONE = "phone"
    IN_PERSON = "in_person"
    OTHER = "other"


class SentReplyIn(Body):
    model_config = example(sent_on="2026-11-26", channel="letter")

    sent_on: Annotated[datetime.date, Strict(False), BeforeValidator(is_written_out)] = Field(
        description="Day on which the reply was sent, in the time zone of the request."
    )
    channel: Annotated[ReplyChannel, Strict(False)] = Field(description="Channel by which the reply was sent.")


class SentReplyOut(Answer):
    sent_on: datetime.date = Field(description="Day on which the reply was sent, in the time zone of the request.")
    channel: ReplyChannel = Field(description="Channel by which the reply was sent.")
    at: datetime.datetime = Field(description="Time at which this was recorded.")
    actor: str = Field(description="ID of the person or API key that recorded it.")
    actor_name: str | None = optional("Name of the actor, if known.")


RECORD_SENT_REPLY = REQUESTS.of_one(
    "record_sent_reply",
    "POST",
    "/{request_id}/sent-replies",
    scope=Scope.REQUESTS_REVIEW,
    takes=SentReplyIn,
    gives=SentReplyOut,
    repeat="idempotent",
    problems=(problems.InputInvalid,),
    does="Record that a reply was sent to the person: the service composes replies and sends none. The day and the "
    "channel are in the audit log and in the history of the request, and are kept as long as these. The same day and "
    "channel are recorded once.",
)
SENT_REPLIES = REQUESTS.of_one(
    "list_sent_replies",
    "GET",
    "/{request_id}/sent-replies",
    scope=Scope.REQUESTS_REVIEW,
    query=Paging,
    gives=PageOut[SentReplyOut],
    problems=(problems.InputInvalid,),
    does="List the replies that were recorded as sent, last recorded first.",
)


class EvidenceFormat(ClosedSet):
    ZIP = "zip"
    PDF = "pdf"


class EvidenceQuery(Query):
    language: ReplyLanguage = Field(default=ReplyLanguage.EN, description="Language of the letter in the pack.")
    format: EvidenceFormat = Field(
        default=EvidenceFormat.ZIP,
        description="zip: an archive that is verified offline; pdf: the readable part of it.",
    )


EVIDENCE_PACK = REQUESTS.of_one(
    "get_evidence_pack",
    "GET",
    "/{request_id}/evidence-pack",
    scope=Scope.REQUESTS_REVIEW,
    query=EvidenceQuery,
    gives=bytes,
    problems=(ReplyUnprintable, problems.CertificateDamaged),
    does="Return the evidence about a request: the letter to the person, the certificates, the public keys, the "
    "history, and the audit entries up to a checkpoint that is signed for the pack. A manifest signs the digest of "
    "every file of the archive; `lethe request verify-evidence-pack` verifies all of it offline.\n\nThe audit log "
    "records who downloaded it. The archive also has audit entries about other requests, by ID, because the hash "
    "chain needs them; the PDF has the entries about this request alone.",
)
