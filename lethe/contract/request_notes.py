"""Internal notes about a request: what the people who decide write for each other."""

import datetime
from typing import Annotated

from pydantic import Field

from lethe.contract.fields import Answer, Body, PageOut, Paging, Text, example
from lethe.contract.operation import Resource, of_one
from lethe.contract.problems import DetailsErased, NotesFull, RequestUnknown
from lethe.contract.sets import Scope

LONGEST_NOTE = 4000
MOST_NOTES = 200
"""Notes about one request."""


class NoteIn(Body):
    model_config = example(text="Called back at noon; the copy of the passport comes by post.")

    text: Annotated[Text, Field(min_length=1, max_length=LONGEST_NOTE)] = Field(
        description="For colleagues: it is sealed, and erased with the details of the request.", repr=False
    )


class NoteOut(Answer):
    id: str
    at: datetime.datetime
    author: str = Field(description="The person or the API key that wrote it.")
    author_name: str | None = Field(default=None, description="Their name.")
    text: str = Field(repr=False)


_NOTES = Resource("Deletion requests", "/v1/deletion-requests")

ADD = of_one(
    _NOTES.operation(
        "add_request_note",
        "POST",
        "/{request_id}/notes",
        scope=Scope.REQUESTS_REVIEW,
        takes=NoteIn,
        gives=NoteOut,
        status=201,
        problems=(RequestUnknown, DetailsErased, NotesFull),
        does="Write something about a request for those who decide. Nobody else is shown it: no event, callback, "
        "protocol, export or log has the text. It is erased when the policy lets the details of the request go."
        "\n\nNo `Idempotency-Key` is taken, for what is remembered of one would be the text once more: a repetition "
        "is another note.",
    )
)
LIST = of_one(
    _NOTES.operation(
        "list_request_notes",
        "GET",
        "/{request_id}/notes",
        scope=Scope.REQUESTS_REVIEW,
        query=Paging,
        gives=PageOut[NoteOut],
        problems=(RequestUnknown,),
        does="The notes about a request, oldest first.",
    )
)
