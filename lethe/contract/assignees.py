"""Assign requests to the people who decide about them."""

from typing import Annotated

from pydantic import Field

from lethe.contract.deletion_requests import NOBODY, DeletionRequestOut
from lethe.contract.fields import Answer, Body, PageOut, Paging, Text, example
from lethe.contract.operation import Resource, of_one
from lethe.contract.problems import NotAssignable, RequestUnknown
from lethe.contract.sets import Scope


class AssignmentIn(Body):
    model_config = example(assignee="usr_3f9c1a2b4d5e6f708192")

    assignee: Annotated[Text, Field(min_length=1, max_length=200)] = Field(
        description=f"The id of a person who may decide about requests, or {NOBODY}."
    )


class AssigneeOut(Answer):
    id: str
    name: str


_ASSIGNEES = Resource("Deletion requests", "/v1")

LIST = _ASSIGNEES.operation(
    "list_assignees",
    "GET",
    "/deletion-requests:assignees",
    scope=Scope.REQUESTS_REVIEW,
    query=Paging,
    gives=PageOut[AssigneeOut],
    does="People to whom requests can be assigned: those whose role lets them decide about requests, but for who is "
    "disabled. Newest first.",
)
ASSIGN = of_one(
    _ASSIGNEES.operation(
        "assign_deletion_request",
        "POST",
        "/deletion-requests/{request_id}/assign",
        scope=Scope.REQUESTS_REVIEW,
        takes=AssignmentIn,
        gives=DeletionRequestOut,
        idempotent=True,
        problems=(RequestUnknown, NotAssignable),
        does="Assign a request to somebody, in place of another person, or to nobody. It changes nothing about what "
        "others may do, and the person whom it is about is not told.",
    )
)
