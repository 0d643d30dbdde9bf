"""Leaving reasons: why people leave, by answers that they randomised before they sent them."""

import datetime
from typing import Annotated

from pydantic import BeforeValidator, Field, Strict

from lethe.contract.fields import Answer, Body, Query, is_written_out
from lethe.contract.operation import Resource
from lethe.contract.sets import LeavingReason, Scope

LEAST_ODDS, MOST_ODDS = 2, 100
"""Below nothing is learned; above the answer is as good as said (epsilon = 4.6)."""
Odds = Annotated[
    int,
    Field(
        ge=LEAST_ODDS,
        le=MOST_ODDS,
        description="How many times likelier the client sends the true reason than each other one: epsilon = ln(odds).",
    ),
]


class LeavingReasonIn(Body):
    answer: Annotated[LeavingReason, Strict(False)] = Field(
        description="What the client's randomiser gave, not what the person said."
    )
    odds: Odds


class LeavingReasonCountedOut(Answer):
    week: datetime.date = Field(
        description="The Monday (UTC) of the week in whose counter it is; nothing else is kept."
    )


class ReasonOut(Answer):
    reason: str
    sent: int = Field(description="How often it was sent, truly or not.")
    share: float = Field(description="Unbiased estimate of whose reason it is, from 0 to 1 but for chance.")
    standard_error: float = Field(description="Of the share; due to the randomisation and to who happened to answer.")
    low: float = Field(description="With the stated confidence all shares of a survey lie in their intervals at once.")
    high: float


class SurveyOut(Answer):
    odds: int
    epsilon: float = Field(description="ln(odds): the local privacy of each answer.")
    num_answers: int
    reasons: list[ReasonOut]


class LeavingReasonsOut(Answer):
    confidence: float
    method: str
    surveys: list[SurveyOut] = Field(description="One for each odds that clients used.")


class LeavingReasonsQuery(Query):
    since: Annotated[
        Annotated[datetime.date, BeforeValidator(is_written_out)] | None,
        Field(description="Weeks that begin on this day or later."),
    ] = None
    until: Annotated[
        Annotated[datetime.date, BeforeValidator(is_written_out)] | None,
        Field(description="Weeks that begin before this day."),
    ] = None


_LEAVING_REASONS = Resource("Leaving reasons", "/v1/leaving-reasons")

COUNT = _LEAVING_REASONS.operation(
    "count_leaving_reason",
    "POST",
    scope=Scope.REQUESTS_WRITE,
    takes=LeavingReasonIn,
    gives=LeavingReasonCountedOut,
    does="Count an answer that was randomised where it was given.\n\nNo `Idempotency-Key` is taken, for what is "
    "remembered of one would be a line per person: a repetition counts again. The audit log has no entry "
    "of it, for that would say when it came.",
)
GET = _LEAVING_REASONS.operation(
    "get_leaving_reasons",
    "GET",
    scope=Scope.REQUESTS_READ,
    query=LeavingReasonsQuery,
    gives=LeavingReasonsOut,
    does="What share of those who answered leaves for which reason, with error bars.",
)
