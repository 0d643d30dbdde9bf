"""People who asked to be forgotten, and are not taken in again unless they consent anew."""

import datetime
from typing import Annotated, Literal

from pydantic import Field

from lethe.contract.fields import Answer, PageOut, Paging
from lethe.contract.operation import Resource
from lethe.contract.sets import Scope
from lethe.contract.subjects import SubjectIn


class SuppressionOut(Answer):
    id: str
    subject_ref: str = Field(repr=False)
    dataset_id: str = Field(description="Where rows of the person are refused; * for wherever.")
    request_id: str
    created_at: datetime.datetime


class SuppressionQuery(Paging):
    subject_id: Annotated[str, Field(min_length=1, max_length=500)] | None = None


class ConsentIn(SubjectIn):
    reason: Literal["consent_given"]


class LiftedOut(Answer):
    num_lifted: int


_SUPPRESSIONS = Resource("Suppressions", "/v1/suppressions")

LIST = _SUPPRESSIONS.operation(
    "list_suppressions",
    "GET",
    scope=Scope.REQUESTS_READ,
    query=SuppressionQuery,
    gives=PageOut[SuppressionOut],
    does="Who is not taken in again, and where, newest first. That somebody looked for a person, not for whom, is in "
    "the audit log.",
)
LIFT = _SUPPRESSIONS.operation(
    "lift_suppressions",
    "POST",
    ":lift",
    scope=Scope.ADMIN,
    takes=ConsentIn,
    gives=LiftedOut,
    does="Take rows of a person again, who has consented to it.",
)
