"""Files that are attached to a request: a scan, a proof of identity, a mail, for those who decide."""

import datetime

from pydantic import Field

from lethe.contract.fields import Answer, PageOut, Paging
from lethe.contract.operation import Resource, of_one, of_two
from lethe.contract.problems import (
    AttachmentInvalid,
    AttachmentsFull,
    AttachmentUnknown,
    DetailsErased,
    RequestUnknown,
    UploadTooLarge,
)
from lethe.contract.sets import AttachmentKind, Scope

LONGEST_NAME = 200


class AttachmentOut(Answer):
    id: str
    at: datetime.datetime
    author: str = Field(description="The person or the API key that attached it.")
    author_name: str | None = Field(default=None, description="Their name.")
    kind: AttachmentKind
    size: int = Field(description="Bytes of the file.")
    name: str = Field(description="Of the file, as its sender has it.", repr=False)


_ATTACHMENTS = Resource("Deletion requests", "/v1/deletion-requests")

ADD = of_one(
    _ATTACHMENTS.operation(
        "add_request_attachment",
        "POST",
        "/{request_id}/attachments",
        scope=Scope.REQUESTS_REVIEW,
        gives=AttachmentOut,
        status=201,
        problems=(RequestUnknown, UploadTooLarge, AttachmentInvalid, DetailsErased, AttachmentsFull),
        does="Attach a file to a request for those who decide: a PDF, PNG or JPEG, text in UTF-8, or a mail (.eml). "
        "Name and bytes must agree on what it is. Nobody else is shown it: no event, callback, protocol, export or log "
        "has its name. It is erased when the policy lets the details of the request go."
        "\n\nNo `Idempotency-Key` is taken: a repetition is another attachment.",
    )
)
LIST = of_one(
    _ATTACHMENTS.operation(
        "list_request_attachments",
        "GET",
        "/{request_id}/attachments",
        scope=Scope.REQUESTS_REVIEW,
        query=Paging,
        gives=PageOut[AttachmentOut],
        problems=(RequestUnknown,),
        does="The files that are attached to a request, oldest first.",
    )
)
CONTENT = of_two(
    _ATTACHMENTS.operation(
        "get_request_attachment",
        "GET",
        "/{request_id}/attachments/{attachment_id}",
        scope=Scope.REQUESTS_REVIEW,
        gives=bytes,
        problems=(RequestUnknown, AttachmentUnknown),
        does="The file, to be saved: browsers neither show it nor guess what it is. The audit log has who was given "
        "it.",
    )
)
DELETE = of_two(
    _ATTACHMENTS.operation(
        "delete_request_attachment",
        "DELETE",
        "/{request_id}/attachments/{attachment_id}",
        scope=Scope.REQUESTS_REVIEW,
        gives=type(None),
        status=204,
        problems=(RequestUnknown, AttachmentUnknown),
        does="Erase a file: its key is destroyed before the answer.",
    )
)
