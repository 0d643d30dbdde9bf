"""Count the requests that match, decide about all of them, and sum up what is owed by when."""

import datetime
from typing import Annotated, Literal

from pydantic import Field, Strict

from lethe.contract.choices import Decision
from lethe.contract.deletion_requests import OpenClock, RegulationName, RejectionIn, RequestFilter
from lethe.contract.fields import Answer, Body, Moment, example
from lethe.contract.operation import Resource
from lethe.contract.sets import RequestStatus, Scope

COUNTED = 1_000_000
"""Requests are counted up to here."""
DAYS, WEEKS = 30, 12
"""Days ahead and weeks back that a summary counts."""


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


class DueOnDayOut(Answer):
    day: datetime.date
    requests: int = Field(description="Open requests due on this day, paused ones among them: as due_from, due_before.")


class WeekOut(Answer):
    starts: datetime.date = Field(description="A Monday.")
    received: int = Field(description="Requests with a submitted_at in the week: as received_from, received_before.")
    completed: int = Field(description="Requests completed in it: as completed_from, completed_before.")


class CompletionOut(Answer):
    """Times that the requests completed in `weeks` took: in whole days, from submitted_at to completed_at."""

    requests: int
    median_days: int | None = Field(description="Half of them took no more; null: there are none.")
    p90_days: int | None = Field(description="Nine in ten took no more; null: there are none.")
    share_in_time: float | None = Field(description="From 0 to 1: completed before their deadline; null: none are.")


class SummaryOut(Answer):
    at: datetime.datetime
    time_zone: str = Field(description="Of the policy: its days and weeks are meant.")
    overdue: int = Field(
        description="Open requests past their deadline whose clock runs: as clock=overdue. One whose deadline was "
        "earlier today is in today's number too."
    )
    due: list[DueOnDayOut] = Field(description=f"The next {DAYS} days, today first.")
    later: int = Field(description="Open requests due after them.")
    weeks: list[WeekOut] = Field(description=f"The last {WEEKS} weeks, the one under way last.")
    completion: CompletionOut


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
SUMMARY = _DECISIONS.operation(
    "summarise_deletion_requests",
    "GET",
    "/deletion-requests:summary",
    scope=Scope.REQUESTS_READ,
    gives=SummaryOut,
    does="Number of requests that are due on each of the next days, that came in and were completed in each of the "
    "last weeks, and how long those took. Every number is that of a list by the filters it names. Who may not learn "
    "whether anything is held sees requests completed at the time of their report, here as everywhere.",
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
