"""`/deletion-requests:assignees` and `/assign`: the people who decide about requests, and whose case each one is."""

from fastapi import APIRouter

from app.access import repository as access_repository
from app.access import users
from app.api.calls import Call
from app.api.deletion_requests import PlainRoute, TheIntake, to_response_of
from app.api.gateway import serves
from app.deletion import assignment
from app.deletion import service as deletion
from lethe.contract import assignees as contract
from lethe.contract.assignees import AssigneeOut, AssignmentIn
from lethe.contract.deletion_requests import DeletionRequestOut
from lethe.contract.fields import PageOut, Paging

router = APIRouter(route_class=PlainRoute)


@serves(router, contract.LIST)
def list_assignees(call: Call, query: Paging) -> PageOut[AssigneeOut]:
    with call.reading() as session:
        page = access_repository.enabled_users(session, users.DECIDING, limit=query.limit, cursor=query.cursor)
    return PageOut(items=[AssigneeOut(id=one.id, name=one.name) for one in page.items], next_cursor=page.next_cursor)


@serves(router, contract.ASSIGN)
def assign_deletion_request(call: Call, intake: TheIntake, request_id: str, body: AssignmentIn) -> DeletionRequestOut:
    with call.writing() as session:
        request = deletion.get(session, request_id)
        assignment.assign(session, request, assignee=body.assignee)
        return to_response_of(session, call, intake, request)
