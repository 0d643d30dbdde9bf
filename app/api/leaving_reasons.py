"""`/leaving-reasons`: why people leave, by answers that they randomised before they sent them."""

from fastapi import APIRouter

from app.api.calls import Call
from app.api.gateway import serves
from app.leaving import service as leaving
from app.leaving.service import Survey
from lethe.contract import leaving_reasons as contract
from lethe.contract.leaving_reasons import (
    LeavingReasonCountedOut,
    LeavingReasonIn,
    LeavingReasonsOut,
    LeavingReasonsQuery,
    ReasonOut,
    SurveyOut,
)

router = APIRouter()

METHOD = (
    "k-ary randomised response among k reasons (Warner 1965; Kairouz, Bonawitz, Ramage 2016): with p = odds/(odds+k-1),"
    " q = 1/(odds+k-1) and r the rate sent, share = (r-q)/(p-q), standard_error = sqrt(r(1-r)/n)/(p-q); low and high"
    " from the limits of r by Clopper and Pearson (1934), Bonferroni over the k reasons."
)


@serves(router, contract.COUNT)
def count_leaving_reason(call: Call, body: LeavingReasonIn) -> LeavingReasonCountedOut:
    with call.writing() as session:
        week = leaving.count(session, answer=body.answer, odds=body.odds)
    return LeavingReasonCountedOut(week=week)


@serves(router, contract.GET)
def get_leaving_reasons(call: Call, query: LeavingReasonsQuery) -> LeavingReasonsOut:
    with call.reading() as session:
        found = leaving.surveys(session, since=query.since, until=query.until)
    return LeavingReasonsOut(
        confidence=leaving.CONFIDENCE, method=METHOD, surveys=[_to_response(survey) for survey in found]
    )


def _to_response(survey: Survey) -> SurveyOut:
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
