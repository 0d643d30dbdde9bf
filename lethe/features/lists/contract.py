"""Operations on many deletion requests at once: batches, counts, decisions and exports."""

from typing import Annotated, Any, Literal

from pydantic import Field, Strict

from lethe.contract import deletion_requests, operation, problems, sets
from lethe.contract.fields import Answer, Body, LargeBody, Moment, Name, Query, example, optional


class BatchRefused(problems.InputInvalid, title="None of the requests was accepted"): ...


COUNTED = 1_000_000
"""Limit beyond which requests are no longer counted."""


Undecided = Literal[sets.RequestStatus.IN_REVIEW, sets.RequestStatus.ACCEPTED]


class CountOut(Answer):
    count: int = Field(description=f"Number of requests, counted up to {COUNTED:,}.")


class DecisionsIn(Body):
    model_config = example(decision="approve", status="in_review", made_before="2026-02-01T00:00:00Z")

    decision: Annotated[sets.Decision, Strict(False)] = Field(
        description="Decision on each request: approve or reject."
    )
    rejection: deletion_requests.RejectionIn | None = optional(
        "Ground and explanation; required for reject, not allowed for approve."
    )
    status: Undecided = Field(description="Status of the requests to decide on; to approve them, only in_review.")
    made_before: Moment = Field(description="Only requests created before this time, to exclude unseen requests.")
    regulation: deletion_requests.RegulationName | None = optional("Only requests under this regulation.")
    received_from: Moment | None = optional("Only requests whose submitted_at is this time or later.")
    received_before: Moment | None = optional("Only requests whose submitted_at is before this time.")
    due_from: Moment | None = optional("Only requests due at this time or later.")
    due_before: Moment | None = optional("Only requests due before this time.")
    clock: deletion_requests.OpenClock | None = optional(
        "Only requests in this clock state; running: neither paused nor overdue."
    )
    assignee: Annotated[str, Field(min_length=1, max_length=200)] | None = optional(
        f"Only requests assigned to the user with this ID, or to {deletion_requests.NOBODY}."
    )
    limit: Annotated[int, Field(ge=1, le=200)] = Field(default=100, description="Maximum number of requests per call.")
    cursor: Annotated[str, Field(max_length=500)] | None = optional(
        "`next_cursor` of the previous call. Default: the first requests."
    )


class DecisionsOut(Answer):
    decided: int = Field(description="Number of requests decided on in this call.")
    refused: int = Field(description="Number of requests left unchanged because their state forbids the decision.")
    next_cursor: str | None = Field(description="Cursor for the next call; null if no matching requests remain.")


_LISTS = operation.ResourceOperations("Deletion requests", "/v1")

COUNT = _LISTS.operation(
    "count_deletion_requests",
    "GET",
    "/deletion-requests:count",
    scope=sets.Scope.REQUESTS_READ,
    query=deletion_requests.RequestFilter,
    gives=CountOut,
    does="Count the requests that match all filters.",
)
DECIDE = _LISTS.operation(
    "decide_deletion_requests",
    "POST",
    "/deletion-requests:decide",
    scope=sets.Scope.REQUESTS_REVIEW,
    takes=DecisionsIn,
    gives=DecisionsOut,
    repeat="idempotent",
    does="Approve or reject all matching requests, newest first, each by the same rules as for a single request. A "
    "request that cannot be decided does not hold up the others. One call decides up to `limit` requests in one "
    "transaction; continue with `next_cursor`. Repeating a call does not decide anything twice.",
)


MAX_BATCH_REQUESTS = 10_000
"""Maximum number of requests in a batch."""
CSV_FIELDS = (
    "subject_id",
    "subject_sha256",
    "kind",
    "aliases",
    "regulation",
    "ground",
    "external_id",
    "submitted_at",
    "callback_url",
    "refers_to",
    "identity_verified",
    "dataset_ids",
)
"""Request fields that can be columns of a CSV list."""


class BatchIn(LargeBody):
    model_config = example(requests=[{"subject_id": "customer-4711"}, {"subject_id": "customer-4712"}])

    requests: Annotated[
        list[Any],
        Field(
            min_length=1,
            max_length=MAX_BATCH_REQUESTS,
            json_schema_extra={"items": {"$ref": "#/components/schemas/DeletionRequestIn"}},
        ),
    ] = Field(description=f"Requests of the batch, at most {MAX_BATCH_REQUESTS:,}.")


class BatchItemOut(Answer):
    index: int = Field(description="Position of the request in the batch, starting at 0.")
    line: int | None = optional("Line of the request in the CSV file; null for a JSON batch.")
    status: int = Field(description="202, or the HTTP status that the request would get if submitted alone.")
    id: str | None = optional("ID of the new request; null if the request was refused.")
    external_id: str | None = Field(default=None, description="Caller's ID; null if refused or not given.", repr=False)
    request_status: sets.RequestStatus | None = optional("Status of the new request; null if the request was refused.")
    code: str | None = optional("Stable error code; null if the request was accepted.")
    detail: str | None = optional("Explanation of the error and how to fix it; null if the request was accepted.")
    errors: list[dict[str, str]] | None = optional("Invalid inputs, each with `path` and `message`; null if none.")

    @property
    def accepted(self) -> bool:
        """True if the request was accepted."""
        return self.status == 202


class BatchOut(Answer):
    accepted: int = Field(description="Number of requests that were accepted.")
    refused: int = Field(description="Number of requests that were refused.")
    items: list[BatchItemOut] = Field(description="Result for each request, in the order of the batch.")


class BatchQuery(Query):
    source: Name | None = optional("Name of the source list, by which the requests can be filtered.")


CREATE_BATCH = _LISTS.operation(
    "create_batch",
    "POST",
    "/deletion-requests:batch",
    scope=sets.Scope.REQUESTS_WRITE,
    takes=BatchIn,
    query=BatchQuery,
    gives=BatchOut,
    status=202,
    repeat="keyed",
    problems=(BatchRefused,),
    does="Request the deletion of up to 10,000 people. Returns 202 if all requests are accepted, 207 if only some are, "
    "and 422 if none are.\n\nThere is no `Location` header, because each request has its own ID.",
)
CREATE_FROM_CSV = _LISTS.operation(
    "create_batch_from_csv",
    "POST",
    "/deletion-requests.csv",
    scope=sets.Scope.REQUESTS_WRITE,
    query=BatchQuery,
    gives=BatchOut,
    status=202,
    repeat="keyed",
    problems=(BatchRefused,),
    does="Create a batch from a CSV file whose header names request fields. Values in `dataset_ids` and `aliases` are "
    "separated by `;`, and metadata is in columns named `metadata.<name>`.",
)
EXPORT = _LISTS.operation(
    "export_deletion_requests",
    "GET",
    "/deletion-requests.csv",
    scope=sets.Scope.REQUESTS_READ,
    query=deletion_requests.RequestFilter,
    gives=bytes,
    does="Stream the matching requests as CSV, newest first, in constant memory. With `requests:review`, assignees are "
    "included. The audit log records who exported them.",
)
