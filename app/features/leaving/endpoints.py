"""Endpoints under `/leaving-reasons`: answers that are randomised before they are sent, and estimates based on them."""

from dataclasses import asdict

from fastapi import APIRouter

from app.api import calls, gateway
from app.features.leaving import service as leaving
from lethe.features.leaving import contract

router = APIRouter()

METHOD = (
    "k-ary randomised response among k reasons (Warner 1965; Kairouz, Bonawitz, Ramage 2016): with p = odds/(odds+k-1),"
    " q = 1/(odds+k-1) and r the rate sent, share = (r-q)/(p-q), standard_error = sqrt(r(1-r)/n)/(p-q); low and high"
    " from the limits of r by Clopper and Pearson (1934), Bonferroni over the k reasons."
)


@gateway.serves(router, contract.COUNT)
def count_leaving_reason(call: calls.Call, body: contract.LeavingReasonIn) -> contract.LeavingReasonCountedOut:
    with call.writing() as session:
        week = leaving.count(session, answer=body.answer, odds=body.odds)
    return contract.LeavingReasonCountedOut(week=week)


@gateway.serves(router, contract.GET)
def get_leaving_reasons(call: calls.Call, query: contract.LeavingReasonsQuery) -> contract.LeavingReasonsOut:
    with call.reading() as session:
        surveys = leaving.surveys(session, since=query.since, until=query.until)
    return contract.LeavingReasonsOut(
        confidence=leaving.CONFIDENCE, method=METHOD, surveys=[_to_response(survey) for survey in surveys]
    )


def _to_response(survey: leaving.Survey) -> contract.SurveyOut:
    return contract.SurveyOut(
        odds=survey.response.odds,
        epsilon=survey.response.epsilon,
        num_answers=survey.num_answers,
        reasons=[contract.ReasonOut(reason=reason, **asdict(estimate)) for reason, estimate in survey.reasons.items()],
    )


MOUNTS = (gateway.Mount(router=router),)
