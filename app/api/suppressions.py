"""`/suppressions`: people who asked to be forgotten, and are not taken in again unless they consent anew."""

from fastapi import APIRouter

from app.api.calls import Call
from app.api.deletion_requests import subject_ref
from app.api.gateway import serves
from app.audit import access_events
from app.deletion import suppression
from lethe.contract import suppressions
from lethe.contract.fields import PageOut
from lethe.contract.problems import ScopeMissing
from lethe.contract.suppressions import ConsentIn, LiftedOut, SuppressionOut, SuppressionQuery

router = APIRouter()


@serves(router, suppressions.LIST)
def list_suppressions(call: Call, query: SuppressionQuery) -> PageOut[SuppressionOut]:
    if call.caller.own_requests_only:  # by which of the tenant's requests somebody is suppressed
        raise ScopeMissing("This key sees its own requests alone; suppressions are the tenant's.")
    subject = call.subject_ref(query.subject_id) if query.subject_id else None
    if subject is not None:
        with call.writing() as session:
            access_events.suppression_looked_up(session)
    with call.reading() as session:
        page = suppression.suppressions(session, subject_ref=subject, limit=query.limit, cursor=query.cursor)
    items = [SuppressionOut.model_validate(row, from_attributes=True) for row in page.items]
    return PageOut(items=items, next_cursor=page.next_cursor)


@serves(router, suppressions.LIFT)
def lift_suppressions(call: Call, body: ConsentIn) -> LiftedOut:
    with call.writing() as session:
        lifted = suppression.lift(session, subject_ref(call, body), reason=body.reason)
    return LiftedOut(num_lifted=lifted)
