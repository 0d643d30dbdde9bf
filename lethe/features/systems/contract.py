"""Operations on systems, on their tasks for deletion requests, and on a request's bundle."""

import datetime
from typing import Annotated, Any

from pydantic import Field

from lethe.contract import operation, problems, sets
from lethe.contract.fields import (
    Answer,
    Body,
    Explanation,
    Moment,
    Name,
    PageOut,
    Paging,
    Sha256,
    Text,
    example,
    optional,
)


class AcknowledgementRefused(problems.NotAllowed, title="Another key than that of the system acknowledges"):
    template = (
        "Task {task_id} stays open: sign with the Ed25519 key of {system_id}, or call with the API key bound to it."
    )
    other_task = problems.variant("Task {task_id} stays open: the signed acknowledgement is about another task.")


class SystemUnknown(problems.NotFound, title="There is no such system"):
    template = "There is no system {system_id!r}; GET /v1/systems lists them."


class SystemTaskUnknown(problems.NotFound, title="There is no such task", template="There is no task {task_id!r}."): ...


class SystemTaskEnded(problems.Conflict, title="The task has ended"):
    template = "Task {task_id} is {status}; only an open task can be acknowledged or closed."


class BundleNotReady(problems.Conflict, title="The request has no bundle"):
    template = "Request {request_id} is {status}; a request has a bundle once it is accepted."


class Grade(sets.ClosedSet):
    """Certainty that a system no longer holds a person's data, strongest first. Headlines state the weakest grade."""

    PROVED = "proved"
    """A certificate proves the deletion by a theorem, and its numbers can be recomputed."""
    RETRAINED_HERMETIC = "retrained_hermetic"
    """Lethe retrained the artefact without the person, in isolation."""
    RETRAINED_ATTESTED = "retrained_attested"
    """The system signed a statement that it retrained the artefact without the person."""
    SEARCHED = "searched"
    """Lethe searched the store itself, and erased the person's data or found none."""
    DECLARED = "declared"
    """The system's own ledger bounds what the system retains, and Lethe has recomputed the bound."""
    ACKNOWLEDGED = "acknowledged"
    """The system confirmed the deletion, but Lethe has not verified it."""
    NOT_REACHED = "not_reached"
    """The system has not confirmed, or it exceeds the bounds within which a person counts as forgotten."""


STRENGTH = {grade: rank for rank, grade in enumerate(Grade)}
"""Rank of each grade; 0 is the strongest."""


class TaskStatus(sets.ClosedSet):
    OPEN = "open"
    ACKNOWLEDGED = "acknowledged"
    CLOSED = "closed"
    """Closed by an officer without an acknowledgement: the system was not reached."""
    CANCELLED = "cancelled"
    """The request was cancelled or rejected."""


_MAX_NAMED = 100
Kind = Annotated[Text, Field(min_length=1, max_length=50)]
Ids = Annotated[list[Annotated[Text, Field(min_length=1, max_length=100)]], Field(max_length=_MAX_NAMED)]
Url = Annotated[Text, Field(min_length=1, max_length=2000)]
PublicKey = Annotated[str, Field(pattern="^[A-Za-z0-9_-]{43}$", max_length=43)]
Note = Annotated[Text, Field(min_length=1, max_length=2000)]


class SystemIn(Body):
    model_config = example(
        name="Recommender",
        contact="recommendations team, +49 30 1234567",
        webhook_url="https://recommender.example/lethe",
        public_key="11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo",
        identifier_kinds=["customer_id"],
    )

    name: Name = Field(description="Name of the system, shown to officers and in bundles.")
    contact: Name = Field(description="Person or team responsible for the system, with their contact details.")
    webhook_url: Url = Field(
        description="HTTPS URL to which signed webhooks about the system's tasks are sent.", repr=False
    )
    public_key: PublicKey | None = optional(
        "Ed25519 public key that verifies acknowledgements: `x` of its JWK (base64url of 32 bytes). Default: none."
    )
    api_key_id: Annotated[str, Field(max_length=100)] | None = optional(
        "ID of the API key that may acknowledge the system's tasks. Default: no key."
    )
    dataset_ids: Ids | None = optional(
        "IDs of the datasets with the people whose data the system may hold. A request restricted to other datasets "
        "opens no task. Default: all datasets of the tenant."
    )
    identifier_kinds: Annotated[list[Kind], Field(max_length=_MAX_NAMED)] = Field(
        default=[], description="Kinds of identifiers that the system uses for people, such as customer_id."
    )
    map_complete_since: Moment | None = optional(
        "Time from which the system's record of all it learned or stored about people is complete. Default: unknown."
    )
    parents: Ids = Field(
        default=[],
        description="IDs of the models and systems from which this system was derived. Requests that concern a parent "
        "also concern this system.",
    )


class SystemChangeIn(Body):
    name: Name | None = optional("New name of the system. Default: unchanged.")
    contact: Name | None = optional("New contact of the system. Default: unchanged.")
    webhook_url: Url | None = Field(default=None, description="New URL for webhooks. Default: unchanged.", repr=False)
    public_key: PublicKey | None = optional("New Ed25519 public key for acknowledgements. Default: unchanged.")
    api_key_id: Annotated[str, Field(max_length=100)] | None = optional(
        "ID of the new API key that may acknowledge tasks. Default: unchanged."
    )
    dataset_ids: Ids | None = optional("IDs of datasets whose people's data it may hold. Default: unchanged.")
    identifier_kinds: Annotated[list[Kind], Field(max_length=_MAX_NAMED)] | None = optional(
        "New kinds of identifiers that the system uses. Default: unchanged."
    )
    map_complete_since: Moment | None = optional(
        "New time from which the system's record about people is complete. Default: unchanged."
    )
    parents: Ids | None = optional("New IDs of models and systems that the system derives from. Default: unchanged.")


class SystemOut(Answer):
    id: str = Field(description="ID of the system; for one of Lethe's own models, the ID of the model.")
    kind: str = Field(description="Kind of system: model (Lethe's own), task (outside Lethe) or a feature's kind.")
    grade: Grade = Field(description="Strongest grade that the system can reach.")
    name: str = Field(description="Name of the system.")
    contact: str | None = Field(description="Person or team responsible for the system; null for Lethe's own models.")
    webhook_url: str | None = Field(
        description="URL for webhooks, which may contain a secret; null without admin, and for Lethe's own models.",
        repr=False,
    )
    public_key: str | None = Field(description="Ed25519 public key of the system (base64url); null if it has none.")
    api_key_id: str | None = Field(description="ID of the API key that may acknowledge tasks; null if no key may.")
    dataset_ids: list[str] | None = Field(description="IDs of datasets whose people's data it may hold; null for all.")
    identifier_kinds: list[str] = Field(description="Kinds of identifiers that the system uses for people.")
    map_complete_since: datetime.datetime | None = Field(
        description="Time from which the system's record of what it learned or stored is complete; null if unknown."
    )
    parents: list[str] = Field(description="IDs of the models and systems from which this one was derived.")
    created_at: datetime.datetime = Field(description="Time at which the system was registered.")
    retired_at: datetime.datetime | None = Field(description="Time at which the system was retired; null until then.")


class TaskOut(Answer):
    id: str = Field(description="ID of the task, also stated in its webhooks.")
    system_id: str = Field(description="ID of the system that has to act.")
    system_name: str = Field(description="Name of the system that has to act.")
    request_id: str = Field(description="ID of the deletion request.")
    status: TaskStatus = Field(description="Status: open, acknowledged, closed (system not reached) or cancelled.")
    due_at: datetime.datetime = Field(description="Deadline of the deletion request.")
    overdue: bool = Field(description="True if the task is still open after the deadline of its request.")
    opened_at: datetime.datetime = Field(description="Time at which the task was opened.")
    sent_from: datetime.datetime = Field(description="End of the grace period, after which the webhook is sent.")
    reminded_at: datetime.datetime | None = Field(description="Time of the last reminder; null if none was sent.")
    ended_at: datetime.datetime | None = Field(description="Time at which the task ended; null while open.")


class TaskWithEvidenceOut(TaskOut):
    by: str | None = Field(description="Person or role that confirmed, as stated by the system; null if not stated.")
    evidence_sha256: str | None = Field(description="SHA-256 (hex) of the system's supporting document; null if none.")
    note: str | None = Field(
        description="The system's note, or the officer's reason for closing; null if there is none or it was erased."
    )
    jws: str | None = Field(description="Acknowledgement signed by the system (compact JWS); null if there is none.")
    api_key_id: str | None = Field(description="ID of the API key that acknowledged without a signature; null if none.")


class AcknowledgementIn(Body):
    model_config = example(by="on-call engineer", evidence_sha256="ab" * 32)

    jws: Annotated[Text, Field(min_length=1, max_length=10_000)] | None = optional(
        "Acknowledgement signed with the system's Ed25519 key (compact JWS, see docs/systems.md). Default: no "
        "signature; the calling API key must then be bound to the system."
    )
    by: Name | None = optional("Person or role that confirms. Required without `jws`; otherwise, `jws` states it.")
    evidence_sha256: Sha256 | None = optional("SHA-256 (hex) of a document that proves the deletion. Default: none.")
    note: Note | None = optional("Note for officers, encrypted and erased with the request's details. Default: none.")


class TaskClosureIn(Body):
    reason: Explanation = Field(description="Reason why the system could not be reached, kept on record.")


class TasksQuery(Paging):
    status: TaskStatus | None = optional("Only tasks with this status.")
    overdue: bool = Field(default=False, description="Only open tasks that are past their request's deadline.")
    system_id: Annotated[Text | None, Field(max_length=100, description="Only tasks of this system.")] = None
    request_id: Annotated[Text | None, Field(max_length=100, description="Only tasks of this request.")] = None


class LineOut(Answer):
    """Status of one system within a deletion request."""

    id: str = Field(description="ID of the system.")
    kind: str = Field(description="Kind of system: rows or model (Lethe's own), task (outside) or a feature's kind.")
    name: str = Field(description="Name of the system.")
    grade: Grade = Field(description="Grade that the evidence about this system has reached so far.")
    waiting: bool = Field(description="True if the request is still waiting for this system.")
    opened_at: datetime.datetime | None = Field(description="Time at which the system's part began; null if unknown.")
    ended_at: datetime.datetime | None = Field(description="Time at which the system's part ended; null until then.")
    task_id: str | None = Field(description="ID of the system's task; null for Lethe's own models.")
    certificate_id: str | None = Field(description="ID of the system's certificate; null if there is none.")


class RequestSystemsOut(Answer):
    request_id: str = Field(description="ID of the deletion request.")
    grade: Grade = Field(description="Headline: the weakest grade of any system; not_reached before acceptance.")
    for_person: dict[str, str] = Field(description="Headline for the person, in English (`en`) and German (`de`).")
    for_officer: dict[str, str] = Field(description="Headline for the officer, in English (`en`) and German (`de`).")
    waits_for: list[str] = Field(description="Names of the systems that the request is waiting for.")
    lines: list[LineOut] = Field(description="One line for each system that may hold the person's data.")


class BundleOut(Answer):
    request_id: str = Field(description="ID of the deletion request.")
    grade: Grade = Field(description="Headline of the bundle: the weakest grade of any system.")
    issued_at: datetime.datetime = Field(description="Time at which the bundle was signed.")
    jws: str = Field(description="Bundle as a compact JWS (Ed25519). Verify this field, not `statement`.")
    statement: dict[str, Any] = Field(description="Content of the JWS, decoded for readability.")


_SYSTEMS = operation.ResourceOperations("Systems", "/v1/systems", SystemUnknown)
_TASKS = operation.ResourceOperations("Systems", "/v1/system-tasks", SystemTaskUnknown)
_OF_REQUEST = operation.ResourceOperations("Systems", "/v1/deletion-requests", problems.RequestUnknown)

CREATE = _SYSTEMS.operation(
    "create_system",
    "POST",
    scope=sets.Scope.ADMIN,
    takes=SystemIn,
    gives=SystemOut,
    status=201,
    repeat="keyed",
    does="Register a system outside Lethe that may hold people's data. Requests accepted from now on open a task for "
    "it; earlier requests do not.",
)
LIST = _SYSTEMS.operation(
    "list_systems",
    "GET",
    scope=sets.Scope.MODELS_READ,
    query=Paging,
    gives=PageOut[SystemOut],
    does="List all systems: Lethe's own models and the registered systems, including retired ones.",
)
GET = _SYSTEMS.of_one(
    "get_system",
    "GET",
    "/{system_id}",
    scope=sets.Scope.MODELS_READ,
    gives=SystemOut,
    does="Return a registered system, or one of Lethe's own models as a system.",
)
CHANGE = _SYSTEMS.of_one(
    "change_system",
    "PATCH",
    "/{system_id}",
    scope=sets.Scope.ADMIN,
    takes=SystemChangeIn,
    gives=SystemOut,
    repeat="idempotent",
    does="Change a registered system. Parents that would form a cycle are refused. Open tasks accept the new key.",
)
RETIRE = _SYSTEMS.of_one(
    "retire_system",
    "DELETE",
    "/{system_id}",
    scope=sets.Scope.ADMIN,
    gives=type(None),
    status=204,
    does="Retire a system. No more tasks are opened for it; open ones remain until acknowledged or closed.",
)
TASKS = _TASKS.operation(
    "list_system_tasks",
    "GET",
    scope=sets.Scope.ACCOUNTING_READ,
    query=TasksQuery,
    gives=PageOut[TaskOut],
    does="List the tasks of all systems, newest first.",
)
TASK = _TASKS.of_one(
    "get_system_task",
    "GET",
    "/{task_id}",
    scope=sets.Scope.ACCOUNTING_READ,
    gives=TaskWithEvidenceOut,
    does="Return a system's task with its evidence.",
)
ACKNOWLEDGE = _TASKS.of_one(
    "acknowledge_system_task",
    "POST",
    "/{task_id}/acknowledge",
    scope=sets.Scope.REQUESTS_READ,
    takes=AcknowledgementIn,
    gives=TaskOut,
    repeat="idempotent",
    problems=(SystemTaskEnded, AcknowledgementRefused),
    does="Confirm that a system has done its task, with either the system's signature or the API key bound to it. Any "
    "other key is refused and the task stays open. Repeating the call is a no-op.",
)
CLOSE = _TASKS.of_one(
    "close_system_task",
    "POST",
    "/{task_id}/close",
    scope=sets.Scope.REQUESTS_REVIEW,
    takes=TaskClosureIn,
    gives=TaskOut,
    repeat="idempotent",
    problems=(SystemTaskEnded,),
    does="Close a task whose system does not respond, so that the request can be completed. The system counts as not "
    "reached, and the headline says so.",
)
OF_REQUEST = _OF_REQUEST.of_one(
    "get_request_systems",
    "GET",
    "/{request_id}/systems",
    scope=sets.Scope.ACCOUNTING_READ,
    gives=RequestSystemsOut,
    does="Return the systems that a request concerns, how certain it is that each no longer holds the person's data "
    "(its grade), and the systems for which the request is still waiting.",
)
BUNDLE = _OF_REQUEST.of_one(
    "get_request_bundle",
    "GET",
    "/{request_id}/bundle",
    scope=sets.Scope.ACCOUNTING_READ,
    gives=BundleOut,
    problems=(BundleNotReady, problems.CertificateDamaged),
    does="Return an accepted request's signed bundle as of now: every system with its grade, evidence and limits, and "
    "the weakest grade as the headline. `lethe certificate verify` verifies the whole bundle offline.",
)
