"""Operations on reasons for leaving, from answers that people randomise before sending."""

import datetime
from typing import Annotated

from pydantic import BeforeValidator, Field, Strict

from lethe.contract.fields import Answer, Body, Query, is_written_out
from lethe.contract.operation import ResourceOperations
from lethe.contract.sets import Scope
from lethe.features.leaving.randomised import LeavingReason

MIN_ODDS, MAX_ODDS = 2, 100
"""Odds below 2 reveal nothing; odds above 100 practically reveal the answer (epsilon = 4.6)."""
Odds = Annotated[
    int,
    Field(
        ge=MIN_ODDS,
        le=MAX_ODDS,
        description="Ratio of the probability of sending the true reason to that of each other reason; epsilon "
        "= ln(odds).",
    ),
]


class LeavingReasonIn(Body):
    answer: Annotated[LeavingReason, Strict(False)] = Field(
        description="Answer of the randomiser, not the true reason."
    )
    odds: Odds


class LeavingReasonCountedOut(Answer):
    week: datetime.date = Field(
        description="Monday (UTC) of the week in which the answer is counted; nothing else is stored."
    )


class ReasonOut(Answer):
    reason: str = Field(description="Reason for leaving.")
    sent: int = Field(description="Number of answers with this reason, true or not.")
    share: float = Field(
        description="Unbiased estimate of the share of people with this reason; may lie outside 0 to 1 by chance."
    )
    standard_error: float = Field(description="Standard error of `share`, from randomisation and the choice of people.")
    low: float = Field(description="Lower limit of the share; all limits of a survey hold together with `confidence`.")
    high: float = Field(description="Upper limit of the share; all limits of a survey hold together with `confidence`.")


class SurveyOut(Answer):
    odds: int = Field(description="Ratio of the probability of sending the true reason to that of each other reason.")
    epsilon: float = Field(description="Local privacy of each answer, in nats: ln(odds).")
    num_answers: int = Field(description="Number of answers in the survey.")
    reasons: list[ReasonOut] = Field(description="Estimates, one per reason.")


class LeavingReasonsOut(Answer):
    confidence: float = Field(description="Probability with which all limits of a survey hold together.")
    method: str = Field(description="Explanation of how the shares are estimated.")
    surveys: list[SurveyOut] = Field(description="Surveys, one per value of `odds` that clients used.")


class LeavingReasonsQuery(Query):
    since: Annotated[
        Annotated[datetime.date, BeforeValidator(is_written_out)] | None,
        Field(description="Only count weeks that begin on this day or later."),
    ] = None
    until: Annotated[
        Annotated[datetime.date, BeforeValidator(is_written_out)] | None,
        Field(description="Only count weeks that begin before this day."),
    ] = None


_LEAVING_REASONS = ResourceOperations("Leaving reasons", "/v1/leaving-reasons")

COUNT = _LEAVING_REASONS.operation(
    "count_leaving_reason",
    "POST",
    scope=Scope.REQUESTS_WRITE,
    takes=LeavingReasonIn,
    gives=LeavingReasonCountedOut,
    does="Count an answer that was randomised on the person's side.\n\nNo `Idempotency-Key` is accepted, because "
    "remembering one would store a line per person: a repetition counts again. The audit log has no entry, which "
    "would reveal its time.",
)
GET = _LEAVING_REASONS.operation(
    "get_leaving_reasons",
    "GET",
    scope=Scope.REQUESTS_READ,
    query=LeavingReasonsQuery,
    gives=LeavingReasonsOut,
    does="Estimate the share of each reason among the people who answered, with error bars.",
)
