"""The reply to a person: what they are told of their request, made when it is asked for."""

from pydantic import Field

from lethe.contract.fields import Query
from lethe.contract.operation import Resource, of_one
from lethe.contract.problems import ReplyUnprintable, RequestUnknown
from lethe.contract.sets import ReplyFormat, ReplyLanguage, Scope


class ReplyQuery(Query):
    language: ReplyLanguage = Field(default=ReplyLanguage.EN, description="Of the person.")
    format: ReplyFormat = ReplyFormat.TEXT


REPLY = of_one(
    Resource("Deletion requests", "/v1/deletion-requests").operation(
        "get_reply",
        "GET",
        "/{request_id}/reply",
        scope=Scope.REQUESTS_REVIEW,
        query=ReplyQuery,
        gives=bytes,
        problems=(RequestUnknown, ReplyUnprintable),
        does="The reply to the person, as the request stands: received, extended, completed, rejected or withdrawn. "
        "Then what was erased, each certificate in plain words, and how anybody verifies it. It is made when it is "
        "asked for, and kept nowhere.",
    )
)
