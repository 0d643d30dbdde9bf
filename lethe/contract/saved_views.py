"""Saved views: filters, order and columns of the list of requests, kept under a name."""

import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, Field, Strict

from lethe.contract.choices import RequestColumn, RequestOrder
from lethe.contract.deletion_requests import OpenClock, RegulationName
from lethe.contract.fields import Answer, Body, PageOut, Paging, Text, example, is_written_out
from lethe.contract.operation import Resource, of_one
from lethe.contract.problems import IdempotencyConflict, SavedViewExists, SavedViewsFull, SavedViewUnknown
from lethe.contract.sets import RequestStatus, Scope

LONGEST_NAME = 60
MOST_VIEWS = 20
"""Views of one person."""

Day = Annotated[
    datetime.date,
    Strict(False),
    BeforeValidator(is_written_out),
    Field(ge=datetime.date(1971, 1, 1), lt=datetime.date(9000, 1, 1)),
]


def _once_each(columns: Any) -> Any:
    if isinstance(columns, list) and len(set(map(str, columns))) < len(columns):
        raise ValueError("expected each column once")
    return columns


class _Viewed(BaseModel):
    """Filters of requests and what is shown of them; nothing by which one person would be found."""

    status: Annotated[RequestStatus, Strict(False)] | None = None
    regulation: RegulationName | None = Field(default=None, description="One that the tenant's policy knows.")
    clock: OpenClock | None = None
    assignee: Annotated[str, Field(pattern="^(me|nobody|usr_[0-9a-f]{1,40})$")] | None = Field(
        default=None, description="The id of a person who decides, or me, or nobody."
    )
    received_from: Day | None = Field(default=None, description="By days of the policy's time zone; each is within.")
    received_to: Day | None = None
    due_from: Day | None = None
    due_to: Day | None = None
    completed_from: Day | None = None
    completed_to: Day | None = None
    order: Annotated[RequestOrder, Strict(False)] = RequestOrder.NEWEST
    columns: Annotated[
        list[Annotated[RequestColumn, Strict(False)]],
        Field(max_length=len(RequestColumn)),
        BeforeValidator(_once_each),
    ] = Field(default=[], description="Of the dashboard's table; none: those that it has at first.")
    page_size: Literal[25, 50, 100, 200] = 50


class SavedViewIn(_Viewed, Body):
    model_config = example(name="Mine, by deadline", assignee="me", order="deadline")

    name: Annotated[Text, Field(min_length=1, max_length=LONGEST_NAME)] = Field(
        description="To tell it by. Put nothing about a person in it: it is kept in clear."
    )


class SavedViewOut(_Viewed, Answer):
    id: str
    name: str
    created_at: datetime.datetime


_SAVED_VIEWS = Resource("Saved views", "/v1/saved-views")

CREATE = _SAVED_VIEWS.operation(
    "create_saved_view",
    "POST",
    scope=Scope.REQUESTS_READ,
    takes=SavedViewIn,
    gives=SavedViewOut,
    status=201,
    keyed=True,
    problems=(SavedViewExists, SavedViewsFull, IdempotencyConflict),
    does="Keep a view of the list of requests for the caller alone: a person who logged in, or an API key with those "
    "that replace it. It ends with them. A subject, a case number or any other text that is searched for is no part of "
    "a view, and is refused.",
)
LIST = _SAVED_VIEWS.operation(
    "list_saved_views",
    "GET",
    scope=Scope.REQUESTS_READ,
    query=Paging,
    gives=PageOut[SavedViewOut],
    does="The caller's own, newest first.",
)
DELETE = of_one(
    _SAVED_VIEWS.operation(
        "delete_saved_view",
        "DELETE",
        "/{view_id}",
        scope=Scope.REQUESTS_READ,
        gives=type(None),
        status=204,
        problems=(SavedViewUnknown,),
        does="Forget one of the caller's own.",
    )
)
