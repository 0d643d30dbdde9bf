"""`/leaving-reasons`: why people leave, by answers that they randomised before they sent them."""

import datetime
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel, BeforeValidator, Field, Strict

from app.api.calls import Call, call_with
from app.api.problems import responses
from app.api.schemas import Body, is_written_out
from app.leaving import service as leaving
from app.leaving.service import Reason, Survey
from lethe.contract.sets import Scope

router = APIRouter(prefix="/leaving-reasons", tags=["Leaving reasons"])

Day = Annotated[datetime.date, BeforeValidator(is_written_out)]
Odds = Annotated[
    int,
    Field(
        ge=leaving.LEAST_ODDS,
        le=leaving.MOST_ODDS,
        description="How many times likelier the client sends the true reason than each other one: epsilon = ln(odds).",
    ),
]
METHOD = (
    "k-ary randomised response among k reasons (Warner 1965; Kairouz, Bonawitz, Ramage 2016): with p = odds/(odds+k-1),"
    " q = 1/(odds+k-1) and r the rate sent, share = (r-q)/(p-q), standard_error = sqrt(r(1-r)/n)/(p-q); low and high"
    " from the limits of r by Clopper and Pearson (1934), Bonferroni over the k reasons."
)


class LeavingReasonIn(Body):
    answer: Annotated[Reason, Strict(False)] = Field(
        description="What the client's randomiser gave, not what the person said."
    )
    odds: Odds


class LeavingReasonCountedOut(BaseModel):
    week: datetime.date = Field(
        description="The Monday (UTC) of the week in whose counter it is; nothing else is kept."
    )


class ReasonOut(BaseModel):
    reason: str
    sent: int = Field(description="How often it was sent, truly or not.")
    share: float = Field(description="Unbiased estimate of whose reason it is, from 0 to 1 but for chance.")
    standard_error: float = Field(description="Of the share; due to the randomisation and to who happened to answer.")
    low: float = Field(description="With the stated confidence all shares of a survey lie in their intervals at once.")
    high: float


class SurveyOut(BaseModel):
    odds: int
    epsilon: float = Field(description="ln(odds): the local privacy of each answer.")
    num_answers: int
    reasons: list[ReasonOut]


class LeavingReasonsOut(BaseModel):
    confidence: float
    method: str
    surveys: list[SurveyOut] = Field(description="One for each odds that clients used.")


@router.post("", responses=responses())
def count_leaving_reason(
    call: Annotated[Call, call_with(Scope.REQUESTS_WRITE)], body: LeavingReasonIn
) -> LeavingReasonCountedOut:
    """Count an answer that was randomised where it was given.

    No `Idempotency-Key` is taken, for what is remembered of one would be a line per person: a repetition counts again.
    The audit log has no entry of it, for that would say when it came.
    """
    with call.writing() as session:
        week = leaving.count(session, answer=body.answer, odds=body.odds)
    return LeavingReasonCountedOut(week=week)


@router.get("", responses=responses())
def get_leaving_reasons(
    call: Annotated[Call, call_with(Scope.REQUESTS_READ)],
    since: Annotated[Day | None, Query(description="Weeks that begin on this day or later.")] = None,
    until: Annotated[Day | None, Query(description="Weeks that begin before this day.")] = None,
) -> LeavingReasonsOut:
    """What share of those who answered leaves for which reason, with error bars."""
    with call.reading() as session:
        found = leaving.surveys(session, since=since, until=until)
    return LeavingReasonsOut(confidence=leaving.CONFIDENCE, method=METHOD, surveys=[_shown(survey) for survey in found])


def _shown(survey: Survey) -> SurveyOut:
    return SurveyOut(
        odds=survey.response.odds,
        epsilon=survey.response.epsilon,
        num_answers=survey.num_answers,
        reasons=[
            ReasonOut(
                reason=reason,
                sent=one.sent,
                share=one.share,
                standard_error=one.standard_error,
                low=one.low,
                high=one.high,
            )
            for reason, one in survey.reasons.items()
        ],
    )
