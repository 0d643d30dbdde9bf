"""Operations on systems, on their tasks in deletion requests, and on the bundle of a request."""

import datetime
from typing import Annotated, Any

from pydantic import Field

from lethe.contract import problems
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
from lethe.contract.operation import ResourceOperations
from lethe.contract.sets import ClosedSet, Scope


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


class Grade(ClosedSet):
    """Certainty that a system no longer has the person, strongest first. A request's headline is its weakest grade."""

    PROVED = "proved"
    """A certificate recomputes it from a theorem."""
    RETRAINED_HERMETIC = "retrained_hermetic"
    """Lethe trained the artefact again without the person, in isolation."""
    RETRAINED_ATTESTED = "retrained_attested"
    """The system signed that it trained the artefact again without the person."""
    SEARCHED = "searched"
    """Lethe looked in the store itself, and erased or found nothing."""
    DECLARED = "declared"
    """A ledger of the system bounds what it holds, and Lethe recomputed the ledger's number."""
    ACKNOWLEDGED = "acknowledged"
    """The system confirmed that it is done; Lethe did not see it."""
    NOT_REACHED = "not_reached"
    """The system has not confirmed, or does not keep to the bounds by which a person counts as forgotten."""


STRENGTH = {grade: rank for rank, grade in enumerate(Grade)}
"""Rank of each grade: 0 is the strongest."""


class TaskStatus(ClosedSet):
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

    name: Name = Field(description="Name of the system, shown to officers and in the bundle.")
    contact: Name = Field(description="Person or team responsible for the system, and how to reach them.")
    webhook_url: Url = Field(
        description="HTTPS URL that receives the signed webhooks of the system's tasks.", repr=False
    )
    public_key: PublicKey | None = optional(
        "Ed25519 public key whose signatures acknowledge tasks: `x` of its JWK (base64url of 32 bytes). Default: none."
    )
    api_key_id: Annotated[str, Field(max_length=100)] | None = optional(
        "ID of the API key whose calls acknowledge tasks. Default: none."
    )
    dataset_ids: Ids | None = optional(
        "Datasets whose people the system may hold: a request restricted to other datasets opens no task. "
        "Default: all datasets of the tenant."
    )
    identifier_kinds: Annotated[list[Kind], Field(max_length=_MAX_NAMED)] = Field(
        default=[], description="Kinds of identifiers by which the system knows people, such as customer_id."
    )
    map_complete_since: Moment | None = optional(
        "Time since which the system records everything that it learned or stored about people. Default: unknown."
    )
    parents: Ids = Field(
        default=[],
        description="IDs of the models and systems that this one was derived from. Requests that concern a parent "
        "concern this system too.",
    )


class SystemChangeIn(Body):
    name: Name | None = optional("New name of the system. Default: unchanged.")
    contact: Name | None = optional("New contact of the system. Default: unchanged.")
    webhook_url: Url | None = Field(default=None, description="New URL for webhooks. Default: unchanged.", repr=False)
    public_key: PublicKey | None = optional("New Ed25519 public key, as for a new system. Default: unchanged.")
    api_key_id: Annotated[str, Field(max_length=100)] | None = optional(
        "ID of the API key to bind instead. Default: unchanged."
    )
    dataset_ids: Ids | None = optional("New datasets whose people the system may hold. Default: unchanged.")
    identifier_kinds: Annotated[list[Kind], Field(max_length=_MAX_NAMED)] | None = optional(
        "New kinds of identifiers. Default: unchanged."
    )
    map_complete_since: Moment | None = optional(
        "New time since which the system records everything. Default: unchanged."
    )
    parents: Ids | None = optional("New IDs of the models and systems it was derived from. Default: unchanged.")


class SystemOut(Answer):
    id: str = Field(description="ID of the system; the ID of the model for one of Lethe's own models.")
    kind: str = Field(description="Kind of system: model (Lethe's own), task (outside), or a kind of another feature.")
    grade: Grade = Field(description="Strongest grade that the system can reach.")
    name: str = Field(description="Name of the system.")
    contact: str | None = Field(description="Person or team responsible; null for Lethe's own models.")
    webhook_url: str | None = Field(
        description="URL for webhooks, which may hold a secret; null for callers without admin and for models.",
        repr=False,
    )
    public_key: str | None = Field(description="Ed25519 public key of the system (base64url); null if none.")
    api_key_id: str | None = Field(description="ID of the API key bound to the system; null if none.")
    dataset_ids: list[str] | None = Field(description="Datasets whose people the system may hold; null for all.")
    identifier_kinds: list[str] = Field(description="Kinds of identifiers by which the system knows people.")
    map_complete_since: datetime.datetime | None = Field(
        description="Time since which the system records everything it learned or stored; null if unknown."
    )
    parents: list[str] = Field(description="IDs of the models and systems that this one was derived from.")
    created_at: datetime.datetime = Field(description="Time of registration.")
    retired_at: datetime.datetime | None = Field(description="Time of retirement; null while in use.")


class TaskOut(Answer):
    id: str = Field(description="ID of the task, in the body of its webhooks.")
    system_id: str = Field(description="ID of the system that has to act.")
    system_name: str = Field(description="Name of the system that has to act.")
    request_id: str = Field(description="ID of the deletion request.")
    status: TaskStatus = Field(description="Status: open, acknowledged, closed (not reached) or cancelled.")
    due_at: datetime.datetime = Field(description="Deadline of the deletion request.")
    overdue: bool = Field(description="True if the task is still open after the deadline of its request.")
    opened_at: datetime.datetime = Field(description="Time at which the task was opened.")
    sent_from: datetime.datetime = Field(description="End of the grace period, from which the webhook is sent.")
    reminded_at: datetime.datetime | None = Field(description="Time of the last reminder; null if none was sent.")
    ended_at: datetime.datetime | None = Field(description="Time at which the task ended; null while open.")


class TaskWithEvidenceOut(TaskOut):
    by: str | None = Field(description="Person or role that confirmed, as stated by the system; null unless confirmed.")
    evidence_sha256: str | None = Field(description="SHA-256 (hex) of the system's document; null if none was named.")
    note: str | None = Field(
        description="Note of the system, or reason of an officer for closing; null if none, or if it was erased."
    )
    jws: str | None = Field(description="Acknowledgement signed by the system (compact JWS); null if not signed.")
    api_key_id: str | None = Field(description="ID of the API key that acknowledged without a signature; else null.")


class AcknowledgementIn(Body):
    model_config = example(by="on-call engineer", evidence_sha256="ab" * 32)

    jws: Annotated[Text, Field(min_length=1, max_length=10_000)] | None = optional(
        "Acknowledgement signed with the system's Ed25519 key (compact JWS, see docs/systems.md). "
        "Default: none, and the API key must be bound to the system."
    )
    by: Name | None = optional("Person or role that confirms. Required without `jws`, which states it otherwise.")
    evidence_sha256: Sha256 | None = optional("SHA-256 (hex) of a document that shows the deletion. Default: none.")
    note: Note | None = optional("Note for officers, sealed and erased with the request's details. Default: none.")


class TaskClosureIn(Body):
    reason: Explanation = Field(description="Reason why the system was not reached, for the record.")


class TasksQuery(Paging):
    status: TaskStatus | None = optional("Only include tasks with this status.")
    overdue: bool = Field(default=False, description="Only include open tasks after the deadline of their request.")
    system_id: Annotated[Text | None, Field(max_length=100, description="Only include tasks of this system.")] = None
    request_id: Annotated[Text | None, Field(max_length=100, description="Only include tasks of this request.")] = None


class LineOut(Answer):
    """Line of a request about one system."""

    id: str = Field(description="ID of the system.")
    kind: str = Field(description="Kind of system: rows or model (Lethe's own), task (outside), or of a feature.")
    name: str = Field(description="Name of the system.")
    grade: Grade = Field(description="Grade reached so far.")
    waiting: bool = Field(description="True if the request waits for this system.")
    opened_at: datetime.datetime | None = Field(description="Time since which the system has to act; null if unknown.")
    ended_at: datetime.datetime | None = Field(description="Time at which the system was done; null until then.")
    task_id: str | None = Field(description="ID of the system's task; null for Lethe's own models.")
    certificate_id: str | None = Field(description="ID of the certificate; null if there is none.")


class RequestSystemsOut(Answer):
    request_id: str = Field(description="ID of the deletion request.")
    grade: Grade = Field(description="Weakest grade of all lines: the headline; not_reached before acceptance.")
    for_person: dict[str, str] = Field(description="Headline for the person, in English (`en`) and German (`de`).")
    for_officer: dict[str, str] = Field(description="Headline for the officer, in English (`en`) and German (`de`).")
    waits_for: list[str] = Field(description="Names of the systems that the request waits for.")
    lines: list[LineOut] = Field(description="One line per system that may hold the person.")


class BundleOut(Answer):
    request_id: str = Field(description="ID of the deletion request.")
    grade: Grade = Field(description="Weakest grade of all lines: the headline.")
    issued_at: datetime.datetime = Field(description="Time at which the bundle was signed.")
    jws: str = Field(description="Bundle as a compact JWS (Ed25519). Verify this field.")
    statement: dict[str, Any] = Field(description="Statement of the JWS, decoded for reading.")


_SYSTEMS = ResourceOperations("Systems", "/v1/systems", SystemUnknown)
_TASKS = ResourceOperations("Systems", "/v1/system-tasks", SystemTaskUnknown)
_OF_REQUEST = ResourceOperations("Systems", "/v1/deletion-requests", problems.RequestUnknown)

CREATE = _SYSTEMS.operation(
    "create_system",
    "POST",
    scope=Scope.ADMIN,
    takes=SystemIn,
    gives=SystemOut,
    status=201,
    repeat="keyed",
    does="Register a system outside of Lethe that may hold people. Requests accepted from now on open a task for it; "
    "requests accepted before do not.",
)
LIST = _SYSTEMS.operation(
    "list_systems",
    "GET",
    scope=Scope.MODELS_READ,
    query=Paging,
    gives=PageOut[SystemOut],
    does="List all systems: Lethe's own models, and registered systems including retired ones.",
)
GET = _SYSTEMS.of_one(
    "get_system",
    "GET",
    "/{system_id}",
    scope=Scope.MODELS_READ,
    gives=SystemOut,
    does="Return a registered system, or one of Lethe's own models as a system.",
)
CHANGE = _SYSTEMS.of_one(
    "change_system",
    "PATCH",
    "/{system_id}",
    scope=Scope.ADMIN,
    takes=SystemChangeIn,
    gives=SystemOut,
    repeat="idempotent",
    does="Change a registered system. Parents that would form a cycle are refused. Open tasks accept the new key.",
)
RETIRE = _SYSTEMS.of_one(
    "retire_system",
    "DELETE",
    "/{system_id}",
    scope=Scope.ADMIN,
    gives=type(None),
    status=204,
    does="Open no more tasks for a system. Its open tasks stay open until they are acknowledged or closed.",
)
TASKS = _TASKS.operation(
    "list_system_tasks",
    "GET",
    scope=Scope.ACCOUNTING_READ,
    query=TasksQuery,
    gives=PageOut[TaskOut],
    does="List tasks of systems, newest first.",
)
TASK = _TASKS.of_one(
    "get_system_task",
    "GET",
    "/{task_id}",
    scope=Scope.ACCOUNTING_READ,
    gives=TaskWithEvidenceOut,
    does="Return a task of a system with its evidence.",
)
ACKNOWLEDGE = _TASKS.of_one(
    "acknowledge_system_task",
    "POST",
    "/{task_id}/acknowledge",
    scope=Scope.REQUESTS_READ,
    takes=AcknowledgementIn,
    gives=TaskOut,
    repeat="idempotent",
    problems=(SystemTaskEnded, AcknowledgementRefused),
    does="Confirm that a system has done its task, by a signature of the system's key or by the API key bound to "
    "it. Any other key is refused and the task stays open. Repeating the call is a no-op.",
)
CLOSE = _TASKS.of_one(
    "close_system_task",
    "POST",
    "/{task_id}/close",
    scope=Scope.REQUESTS_REVIEW,
    takes=TaskClosureIn,
    gives=TaskOut,
    repeat="idempotent",
    problems=(SystemTaskEnded,),
    does="Close a task whose system does not answer, so that its request can end. The system counts as not reached, "
    "which the headline states.",
)
OF_REQUEST = _OF_REQUEST.of_one(
    "get_request_systems",
    "GET",
    "/{request_id}/systems",
    scope=Scope.ACCOUNTING_READ,
    gives=RequestSystemsOut,
    does="Return the systems that a request reaches, the certainty that each of them no longer has the person, and "
    "the systems that the request waits for.",
)
BUNDLE = _OF_REQUEST.of_one(
    "get_request_bundle",
    "GET",
    "/{request_id}/bundle",
    scope=Scope.ACCOUNTING_READ,
    gives=BundleOut,
    problems=(BundleNotReady, problems.CertificateDamaged),
    does="Return the signed bundle of an accepted request as of now: every system with its grade, evidence and "
    "limits, and the weakest grade as the headline. `lethe certificate verify` recomputes all of it offline.",
)
