"""Count the requests that match, and decide about all of them."""

from typing import Annotated, Literal

from pydantic import Field, Strict

from lethe.contract.choices import Decision
from lethe.contract.deletion_requests import OpenClock, RegulationName, RejectionIn, RequestFilter
from lethe.contract.fields import Answer, Body, Moment, example
from lethe.contract.operation import Resource
from lethe.contract.sets import RequestStatus, Scope

COUNTED = 1_000_000
"""Requests are counted up to here."""


Undecided = Literal[RequestStatus.IN_REVIEW, RequestStatus.ACCEPTED]


class CountOut(Answer):
    count: int = Field(description=f"Counted up to {COUNTED:,}.")


class DecisionsIn(Body):
    model_config = example(decision="approve", status="in_review", made_before="2026-02-01T00:00:00Z")

    decision: Annotated[Decision, Strict(False)]
    rejection: RejectionIn | None = Field(
        default=None, description="With reject: the ground, and what people are told."
    )
    status: Undecided = Field(description="What is decided about; approve: in_review alone.")
    made_before: Moment = Field(description="Nothing is decided that came in later than whoever decides has seen.")
    regulation: RegulationName | None = None
    received_from: Moment | None = None
    received_before: Moment | None = None
    due_from: Moment | None = None
    due_before: Moment | None = None
    clock: OpenClock | None = None
    assignee: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    limit: Annotated[int, Field(ge=1, le=200)] = Field(default=100, description="Most requests that this call decides.")
    cursor: Annotated[str, Field(max_length=500)] | None = Field(
        default=None, description="The next_cursor of the call before."
    )


class DecisionsOut(Answer):
    decided: int
    refused: int = Field(description="Those that cannot be decided so any more; they stay as they are.")
    next_cursor: str | None = Field(description="null: nothing is left that matches.")


_DECISIONS = Resource("Deletion requests", "/v1")

COUNT = _DECISIONS.operation(
    "count_deletion_requests",
    "GET",
    "/deletion-requests:count",
    scope=Scope.REQUESTS_READ,
    query=RequestFilter,
    gives=CountOut,
    does="Number of requests that satisfy all filters.",
)
DECIDE = _DECISIONS.operation(
    "decide_deletion_requests",
    "POST",
    "/deletion-requests:decide",
    scope=Scope.REQUESTS_REVIEW,
    takes=DecisionsIn,
    gives=DecisionsOut,
    idempotent=True,
    does="Approve or reject the requests that match, newest first, each by the rules for one: what cannot be "
    "decided holds up nothing else. A call decides `limit` of them in one transaction; go on with "
    "`next_cursor`. What was decided matches no more, so repeating a call decides nothing twice.",
)
