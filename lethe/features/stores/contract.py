"""Operation that acknowledges a task with a report on a search of the system's stores."""

from typing import Annotated

from pydantic import Field

from lethe.contract import fields, operation, sets
from lethe.features.systems.contract import AcknowledgementRefused, SystemTaskEnded, SystemTaskUnknown, TaskOut

_TASKS = operation.ResourceOperations("Systems", "/v1/system-tasks", SystemTaskUnknown)


class SearchReportIn(fields.Body):
    model_config = fields.example(jws="eyJhbGciOi...", report='{"format":"lethe-search-report/1",...}')

    jws: Annotated[fields.Text, Field(min_length=1, max_length=10_000)] = Field(
        description="Acknowledgement signed with the system's Ed25519 key (compact JWS); its `evidence_sha256` is the "
        "SHA-256 of `report`."
    )
    report: Annotated[fields.Text, Field(min_length=1, max_length=100_000)] = Field(
        description="Search report as the JSON text written by `lethe store run` (see docs/vector-stores.md). It "
        "contains counts, sizes and digests, but no personal data."
    )


REPORT = _TASKS.of_one(
    "report_system_task",
    "POST",
    "/{task_id}/search-report",
    scope=sets.Scope.REQUESTS_READ,
    takes=SearchReportIn,
    gives=TaskOut,
    repeat="idempotent",
    problems=(SystemTaskEnded, AcknowledgementRefused),
    does="Confirm, with a report signed by a system, that it has erased a person from its stores and searched the "
    "stores' files. A report of remaining data is refused, and the task stays open. Repeating the call is a no-op.",
)
