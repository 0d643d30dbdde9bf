"""Operations on suppressions: people who asked to be forgotten, and whose rows are refused until they consent."""

import datetime
from typing import Literal

from pydantic import Field

from lethe.contract import fields, operation, sets


class SuppressionOut(fields.Answer):
    id: str = Field(description="ID of the suppression.")
    subject_ref: str = Field(description="Pseudonym of the person: a keyed hash of the subject ID.", repr=False)
    dataset_id: str = Field(description="ID of the dataset that refuses rows about the person; `*` for all datasets.")
    request_id: str = Field(description="ID of the deletion request that caused the suppression.")
    created_at: datetime.datetime = Field(description="Time at which the suppression began.")


class SuppressionQuery(fields.Paging):
    subject_id: fields.SubjectId | None = fields.optional("Only suppressions of the person with this subject ID.")
    kind: fields.Name | None = fields.optional("Kind of the given subject ID, such as email. Default: customer_id.")


class ConsentIn(fields.SubjectIn):
    reason: Literal["consent_given"] = Field(description="Reason for lifting the suppressions: the person consented.")


class LiftedOut(fields.Answer):
    num_lifted: int = Field(description="Number of suppressions that were lifted.")


_SUPPRESSIONS = operation.ResourceOperations("Suppressions", "/v1/suppressions")

LIST = _SUPPRESSIONS.operation(
    "list_suppressions",
    "GET",
    scope=sets.Scope.REQUESTS_READ,
    query=SuppressionQuery,
    gives=fields.PageOut[SuppressionOut],
    does="List the people whose rows are refused and the datasets that refuse them, newest first. The audit log "
    "records that a search for a person took place, but not for whom.",
)
LIFT = _SUPPRESSIONS.operation(
    "lift_suppressions",
    "POST",
    ":lift",
    scope=sets.Scope.ADMIN,
    takes=ConsentIn,
    gives=LiftedOut,
    does="Lift the suppressions of a person who has consented again, so that uploads may contain their rows.",
)
