"""`/deletion-requests:count`, `:decide` and `:summary`: how many requests match, one decision about all of them, and
what is owed by when."""

import dataclasses

from fastapi import APIRouter
from sqlalchemy.orm import Session

from app.api.calls import Call
from app.api.deletion_requests import horizon_of, sought_by, view_of
from app.api.gateway import serves
from app.audit import access_events
from app.db.tables import DeletionRequest
from app.deletion import review, search_repository, summary
from app.deletion.search_repository import Sought
from lethe.contract import decisions as contract
from lethe.contract.choices import Decision
from lethe.contract.decisions import (
    COUNTED,
    CompletionOut,
    CountOut,
    DecisionsIn,
    DecisionsOut,
    DueOnDayOut,
    SummaryOut,
    WeekOut,
)
from lethe.contract.deletion_requests import RequestFilter
from lethe.contract.problems import FieldError, InputInvalid, Problem
from lethe.contract.sets import RequestStatus

router = APIRouter()


@serves(router, contract.COUNT)
def count_deletion_requests(call: Call, query: RequestFilter) -> CountOut:
    sought = sought_by(call, query)
    if sought.subject_ref is not None:
        with call.writing() as session:
            access_events.requests_looked_up(session)
    with call.reading() as session:
        count = search_repository.count(session, sought, view=view_of(session, call), at_most=COUNTED)
    return CountOut(count=count)


@serves(router, contract.SUMMARY)
def summarise_deletion_requests(call: Call) -> SummaryOut:
    zone = call.caller.policy.time_zone
    with call.reading() as session:
        view = view_of(session, call)
        found = summary.of_requests(session, view=view, zone=zone)
    return SummaryOut(
        at=view.at,
        time_zone=zone,
        overdue=found.overdue,
        due=[DueOnDayOut(day=day, requests=number) for day, number in found.due.items()],
        later=found.later,
        weeks=[WeekOut(starts=one.starts, received=one.received, completed=one.completed) for one in found.weeks],
        completion=CompletionOut(
            requests=found.completed,
            median_days=found.days_of(50),
            p90_days=found.days_of(90),
            share_in_time=found.in_time / found.completed if found.completed else None,
        ),
    )


@serves(router, contract.DECIDE)
def decide_deletion_requests(call: Call, body: DecisionsIn) -> DecisionsOut:
    _check(body)
    asked = body.model_dump(include={field.name for field in dataclasses.fields(Sought)})
    sought = Sought(**asked, horizon=horizon_of(call))
    decided = refused = 0
    with call.writing() as session:
        view = view_of(session, call)
        page = search_repository.requests(session, sought, view=view, limit=body.limit, cursor=body.cursor)
        for request in page.items:
            try:
                with session.begin_nested():
                    _decide(session, call, request, body)
                decided += 1
            except Problem:
                refused += 1
    call.installation.notifier.wake()
    return DecisionsOut(decided=decided, refused=refused, next_cursor=page.next_cursor)


def _check(body: DecisionsIn) -> None:
    """Raises `InputInvalid`."""
    if (body.decision is Decision.REJECT) != (body.rejection is not None):
        expected = "expected with reject, and with nothing else"
        raise InputInvalid("A rejection says on what ground, and why.", [FieldError("rejection", expected)])
    if body.decision is Decision.APPROVE and body.status is not RequestStatus.IN_REVIEW:
        raise InputInvalid("What is accepted need not be approved.", [FieldError("status", "expected in_review")])


def _decide(session: Session, call: Call, request: DeletionRequest, body: DecisionsIn) -> None:
    if body.rejection is None:
        review.approve(session, request, policy=call.caller.policy)
    else:
        said = body.rejection
        review.reject(session, request, ground=said.ground, explanation=said.explanation)
