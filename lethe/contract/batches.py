"""Many people at once, who ask to be forgotten."""

from typing import Annotated, Any

from pydantic import Field

from lethe.contract.deletion_requests import RequestFilter
from lethe.contract.fields import Answer, Body, Name, Query, example
from lethe.contract.operation import Resource
from lethe.contract.problems import BatchRefused, IdempotencyConflict
from lethe.contract.sets import RequestStatus, Scope

MOST_AT_ONCE = 10_000
"""Requests in one batch."""


class BatchIn(Body):
    model_config = example(requests=[{"subject_id": "customer-4711"}, {"subject_id": "customer-4712"}])

    requests: Annotated[
        list[Any],
        Field(
            min_length=1,
            max_length=MOST_AT_ONCE,
            json_schema_extra={"items": {"$ref": "#/components/schemas/DeletionRequestIn"}},
        ),
    ]


class BatchItemOut(Answer):
    index: int
    line: int | None = Field(default=None, description="In a CSV file.")
    status: int = Field(description="202, or the status that a call with this request alone would have had.")
    id: str | None = None
    external_id: str | None = Field(default=None, repr=False)
    request_status: RequestStatus | None = None
    code: str | None = None
    detail: str | None = None
    errors: list[dict[str, str]] | None = None

    @property
    def accepted(self) -> bool:
        """True if the request was taken."""
        return self.status == 202


class BatchOut(Answer):
    accepted: int
    refused: int
    items: list[BatchItemOut]


class BatchQuery(Query):
    source: Name | None = Field(default=None, description="The list they come from: a name to find them all by.")


_BATCHES = Resource("Deletion requests", "/v1")

CREATE_BATCH = _BATCHES.operation(
    "create_batch",
    "POST",
    "/deletion-requests:batch",
    scope=Scope.REQUESTS_WRITE,
    takes=BatchIn,
    query=BatchQuery,
    gives=BatchOut,
    status=202,
    keyed=True,
    problems=(IdempotencyConflict, BatchRefused),
    does="Ask for up to 10,000 people to be forgotten: 202 if all were accepted, 207 if some were, 422 if none"
    " was.\n\nThere is no `Location`: each request has an id of its own.",
)
CREATE_FROM_CSV = _BATCHES.operation(
    "create_batch_from_csv",
    "POST",
    "/deletion-requests.csv",
    scope=Scope.REQUESTS_WRITE,
    query=BatchQuery,
    gives=BatchOut,
    status=202,
    keyed=True,
    problems=(IdempotencyConflict, BatchRefused),
    does="The same from CSV with a header: the fields of a request, `dataset_ids` and `aliases` joined by `;`,"
    " `metadata.<name>`.",
)
EXPORT = _BATCHES.operation(
    "export_deletion_requests",
    "GET",
    "/deletion-requests.csv",
    scope=Scope.REQUESTS_READ,
    query=RequestFilter,
    gives=bytes,
    does="All requests as CSV, or those that satisfy all filters, newest first, in flat memory however many "
    "there are; with `requests:review`, whose case each is. The audit log says who got them.",
)
