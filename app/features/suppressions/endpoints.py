"""Endpoints under `/v1/suppressions`."""

from fastapi import APIRouter

from app.api import calls, deletion_requests as requests, gateway
from app.audit import service as audit
from app.deletion import suppression
from app.features.suppressions import repository
from lethe.contract import fields, problems
from lethe.features.suppressions import contract

router = APIRouter(route_class=requests.PlainRoute)


@gateway.serves(router, contract.LIST)
def list_suppressions(call: calls.Call, query: contract.SuppressionQuery) -> fields.PageOut[contract.SuppressionOut]:
    # A suppression names the request that caused it, which may be another caller's.
    if call.caller.own_requests_only:
        raise problems.ScopeMissing("This key sees its own requests alone; suppressions are the tenant's.")
    subject = requests.subject_ref_of(call, query.subject_id, None, query.kind) if query.subject_id else None
    if subject is not None:
        with call.writing() as session:
            audit.record(session, "suppressions.looked_up", call.caller.tenant_id)
    with call.reading() as session:
        page = repository.suppressions(
            session, subject_ref=subject, discreet=call.caller.discreet, limit=query.limit, cursor=query.cursor
        )
    return fields.PageOut(items=[contract.SuppressionOut.of(row) for row in page.items], next_cursor=page.next_cursor)


@gateway.serves(router, contract.LIFT)
def lift_suppressions(call: calls.Call, body: contract.ConsentIn) -> contract.LiftedOut:
    with call.writing() as session:
        lifted = suppression.lift(session, requests.subject_ref(call, body), reason=body.reason)
    return contract.LiftedOut(num_lifted=lifted)


MOUNTS = (gateway.Mount(router=router),)
