"""`/suppressions`: who asked to be forgotten, and is not taken in again unless they consent anew."""

import datetime
from typing import Annotated, Literal

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field

from app.access.service import Scope
from app.api.calls import Call, Cursor, Limit, call_with
from app.api.deletion_requests import subject_ref
from app.api.problems import responses
from app.api.schemas import PageOut, SubjectIn
from app.audit import access_events
from app.deletion import suppression
from app.errors import ScopeMissing

router = APIRouter(tags=["Suppressions"])


class SuppressionOut(BaseModel):
    id: str
    subject_ref: str
    dataset_id: str = Field(description="Where rows of the person are refused; * for wherever.")
    request_id: str
    created_at: datetime.datetime


class ConsentIn(SubjectIn):
    reason: Literal["consent_given"]


class LiftedOut(BaseModel):
    num_lifted: int


@router.get("/suppressions", responses=responses())
def list_suppressions(
    call: Annotated[Call, call_with(Scope.REQUESTS_READ)],
    subject_id: Annotated[str | None, Query(min_length=1, max_length=500)] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> PageOut[SuppressionOut]:
    """Who is not taken in again, and where, newest first. That somebody looked for a person, not for whom, is in the
    audit log."""
    if call.caller.own_requests_only:  # by which of the tenant's requests somebody is suppressed
        raise ScopeMissing("This key sees its own requests alone; suppressions are the tenant's.")
    subject = call.subject_ref(subject_id) if subject_id else None
    if subject is not None:
        with call.writing() as session:
            access_events.suppression_looked_up(session)
    with call.reading() as session:
        page = suppression.suppressions(session, subject_ref=subject, limit=limit, cursor=cursor)
    items = [SuppressionOut.model_validate(row, from_attributes=True) for row in page.items]
    return PageOut(items=items, next_cursor=page.next_cursor)


@router.post("/suppressions:lift", responses=responses())
def lift_suppressions(call: Annotated[Call, call_with(Scope.ADMIN)], body: ConsentIn) -> LiftedOut:
    """Take rows of a person again, who has consented to it."""
    with call.writing() as session:
        lifted = suppression.lift(session, subject_ref(call, body), reason=body.reason)
    return LiftedOut(num_lifted=lifted)
