"""Operations on reasons for leaving, from answers that people randomise before sending."""

import datetime
from typing import Annotated

from pydantic import BeforeValidator, Field, Strict

from lethe.contract import fields, operation, sets
from lethe.features.leaving.randomised import LeavingReason

MIN_ODDS, MAX_ODDS = 2, 100
"""Odds below 2 would make the answer meaningless; odds above 100 practically reveal it (epsilon = 4.6)."""
Odds = Annotated[
    int,
    Field(
        ge=MIN_ODDS,
        le=MAX_ODDS,
        description="Ratio of the probability of sending the true reason to that of sending any other given reason; "
        "epsilon = ln(odds).",
    ),
]


class LeavingReasonIn(fields.Body):
    answer: Annotated[LeavingReason, Strict(False)] = Field(
        description="Answer chosen by the randomiser, which is not necessarily the true reason."
    )
    odds: Odds


class LeavingReasonCountedOut(fields.Answer):
    week: datetime.date = Field(
        description="Monday (UTC) of the week in which the answer is counted. Nothing else is stored."
    )


class ReasonOut(fields.Answer):
    reason: str = Field(description="Reason for leaving.")
    sent: int = Field(description="Number of answers that name this reason, truthfully or not.")
    share: float = Field(
        description="Unbiased estimate of the share of people with this reason; by chance, it can lie outside 0 to 1."
    )
    standard_error: float = Field(description="Standard error of `share`, from randomisation and sampling of people.")
    low: float = Field(description="Lower confidence limit of the share; all limits hold jointly at `confidence`.")
    high: float = Field(description="Upper confidence limit of the share; all limits hold jointly at `confidence`.")


class SurveyOut(fields.Answer):
    odds: int = Field(description="Ratio of the probability of sending the true reason to that of each other reason.")
    epsilon: float = Field(description="Local differential privacy of each answer, in nats: ln(odds).")
    num_answers: int = Field(description="Number of answers in the survey.")
    reasons: list[ReasonOut] = Field(description="Estimates for each reason.")


class LeavingReasonsOut(fields.Answer):
    confidence: float = Field(description="Probability that all limits of a survey hold jointly.")
    method: str = Field(description="Explanation of how the shares are estimated.")
    surveys: list[SurveyOut] = Field(description="Surveys, one for each value of `odds` used by clients.")


class LeavingReasonsQuery(fields.Query):
    since: Annotated[
        Annotated[datetime.date, BeforeValidator(fields.is_written_out)] | None,
        Field(description="Count only weeks that begin on or after this day."),
    ] = None
    until: Annotated[
        Annotated[datetime.date, BeforeValidator(fields.is_written_out)] | None,
        Field(description="Count only weeks that begin before this day."),
    ] = None


_LEAVING_REASONS = operation.ResourceOperations("Leaving reasons", "/v1/leaving-reasons")

COUNT = _LEAVING_REASONS.operation(
    "count_leaving_reason",
    "POST",
    scope=sets.Scope.REQUESTS_WRITE,
    takes=LeavingReasonIn,
    gives=LeavingReasonCountedOut,
    does="Count an answer that was randomised on the client side.\n\nNo `Idempotency-Key` is accepted, because it "
    "would require storing a record per person. A repeated call is counted again. No audit entry is written, as it "
    "would reveal the time of the answer.",
)
GET = _LEAVING_REASONS.operation(
    "get_leaving_reasons",
    "GET",
    scope=sets.Scope.REQUESTS_READ,
    query=LeavingReasonsQuery,
    gives=LeavingReasonsOut,
    does="Estimate the share of each reason among the people who answered, with confidence limits.",
)
