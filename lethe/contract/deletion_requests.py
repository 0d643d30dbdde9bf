"""Deletion requests and the decisions about them."""

import datetime
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, Strict

from lethe.contract import certificates, operation, problems, sets
from lethe.contract.fields import (
    WHOLE,
    Answer,
    Body,
    Explanation,
    Moment,
    Name,
    PageOut,
    Paging,
    Query,
    Sha256,
    SubjectId,
    SubjectIn,
    Text,
    example,
    first_entries,
    optional,
)

OpenClock = Literal[sets.ClockState.AT_RISK, sets.ClockState.OVERDUE, sets.ClockState.PAUSED, "running"]
"""Clock states by which open requests can be filtered; `running` means neither paused nor overdue."""
RegulationName = Annotated[str, Field(pattern="^[a-z][a-z0-9_]{1,30}$"), WHOLE]


MAX_ALIASES = 50
NOBODY = "nobody"
"""Assignee of unassigned requests, both in filters and in assignments."""


class DeletionRequestIn(SubjectIn):
    model_config = example(subject_id="customer-4711", regulation="gdpr", ground="consent_withdrawn")

    aliases: Annotated[list[SubjectId], Field(max_length=MAX_ALIASES)] = Field(
        default_factory=list, description="Other subject IDs of the same person. The data under them is also erased."
    )
    dataset_ids: Annotated[list[Name], Field(min_length=1, max_length=1000)] | None = optional(
        "IDs of the datasets to erase from. Default: all datasets with data about the person."
    )
    regulation: RegulationName = Field(
        default="gdpr", description="Regulation that applies: gdpr, ccpa, other or one defined in the policy."
    )
    ground: Annotated[sets.ErasureGround, Strict(False)] | None = optional("Ground for erasure under GDPR Art. 17(1).")
    submitted_at: Moment | None = optional("Time of the person's request; deadlines run from it. Default: now.")
    external_id: Name | None = optional("ID of the request in the caller's own system, by which it can be found.")
    metadata: Annotated[
        dict[Name, Annotated[Text, Field(max_length=2000)]], BeforeValidator(first_entries), Field(max_length=50)
    ] = Field(default_factory=dict, description="Additional data, returned unchanged and never interpreted.")
    refers_to: Name | None = optional("ID of an earlier, ended request about the same person that this one follows up.")
    callback_url: Annotated[Text, Field(max_length=2048)] | None = optional(
        "URL to which the events of the request are sent."
    )
    identity_verified: bool = Field(
        default=True,
        description="False if not verified: the request is held in review, its clock paused if the regulation allows.",
    )
    identity_statement: Annotated[Text, Field(max_length=16_000)] | None = optional(
        "JWT in which a registered issuer confirms the subject's identity; valid for one request."
    )


class RejectionIn(Body):
    model_config = example(ground="legal_claims", explanation="We need the records for a claim that is before court.")

    ground: Annotated[sets.RejectionGround, Strict(False)] = Field(
        description="Ground for the rejection under GDPR Art. 17(3) or Art. 12."
    )
    explanation: Explanation = Field(description="Explanation given to the person.")


class ExtensionIn(Body):
    model_config = example(reason="Very many people have asked at the same time.")

    reason: Explanation = Field(description="Reason for the delay, given to the person.")


class PauseIn(Body):
    reason: Literal["identity"] = Field(description="Reason for the pause: the identity is being verified.")


class EstimateModelOut(Answer):
    model_id: str = Field(description="ID of the model.")
    kind: sets.RunKind = Field(description="Kind of run that would be needed now: learn, unlearn or relearn.")
    steps: int = Field(description="Number of steps of the run that would be needed now.")


class EstimateOut(Answer):
    steps: int = Field(description="Total number of steps of the runs in `models`.")
    models: list[EstimateModelOut] = Field(description="Runs needed now to forget the person, one per model.")


class RequestModelOut(Answer):
    model_id: str = Field(description="ID of the model.")
    status: sets.RequestModelStatus = Field(
        description="Progress for this model: pending, running, completed, cancelled, destroyed (the model's weights "
        "are gone), or nothing_published (the model never had a version)."
    )
    run_id: str | None = Field(description="ID of the run that serves the request; null until that run starts.")
    version: int | None = Field(description="First version that has forgotten the person; null until it is published.")
    certificate_id: str | None = Field(description="ID of the certificate for this model; null until it is issued.")


class ClockOut(Answer):
    state: sets.ClockState = Field(
        description="State of the clock: on_time, at_risk (due within LETHE_RISK_DAYS), overdue, paused or ended."
    )
    deadline: datetime.datetime = Field(description="extended_due_at if the deadline was extended, otherwise due_at.")
    paused_since: datetime.datetime | None = Field(description="Time when the clock was paused; null if not paused.")
    days_left: int | None = Field(description="Whole days to the deadline, negative after it; null if the clock ended.")


class RejectionOut(Answer):
    ground: sets.RejectionGround = Field(description="Legal ground for the rejection: GDPR Art. 17(3) or Art. 12.")
    explanation: str | None = Field(description="Explanation given to the person; null once it was erased.", repr=False)


class DeletionRequestOut(Answer):
    """Deletion request. For callers without accounting:read, outcome and estimate are null and models is empty,
    regardless of the data held."""

    id: str = Field(description="ID of the request.")
    status: sets.RequestStatus = Field(description="Status of the request.")
    outcome: sets.Outcome | None = Field(
        description="Result: forgotten; nothing_held; erased_already: another request erased the person's rows after "
        "this one was submitted; target_widened: the rows are erased, but a model's target exceeds epsilon 8 or delta "
        "1/n, so meeting it does not count as forgetting. Null until the request is completed."
    )
    erased_by: str | None = Field(
        description="ID of the request that erased the rows first, and whose certificates apply; null if there is none."
    )
    identity_unknown: bool = Field(
        default=False,
        description="True if no rows use the identifier's kind or a kind that the identity map links to it. The "
        "request then waits until the map has such a link or an officer decides. False without accounting:read.",
    )
    subject_ref: str = Field(description="Pseudonym of the person: a keyed hash of the subject ID.", repr=False)
    alias_refs: list[str] = Field(description="Pseudonyms of the person's aliases.", repr=False)
    regulation: str = Field(description="Regulation that determines the deadline.")
    ground: str | None = Field(description="Ground for erasure under GDPR Art. 17(1); null if none was given.")
    external_id: str | None = Field(description="Caller's ID for the request; null if none or erased.", repr=False)
    metadata: dict[str, str] = Field(description="Caller's additional data; empty if not given, or erased.", repr=False)
    submitted_at: datetime.datetime = Field(description="Time of the person's request; deadlines run from it.")
    time_zone: str = Field(description="Time zone of the deadlines, as set in the policy when the request was created.")
    due_at: datetime.datetime = Field(description="Deadline before any extension. Pausing the clock postpones it.")
    extended_due_at: datetime.datetime | None = Field(description="Deadline after extension; null if never extended.")
    extension_reason: str | None = Field(description="Reason for the extension; null if none or erased.", repr=False)
    clock: ClockOut = Field(description="State of the request's clock and deadline.")
    held_until: datetime.datetime | None = Field(description="Time before which no run starts; null if there is none.")
    rejection: RejectionOut | None = Field(description="Ground and explanation; null unless rejected.", repr=False)
    source: str | None = Field(description="Deletion list or protocol through which the request arrived; null if none.")
    refers_to: str | None = Field(description="ID of the earlier request that this one follows up; null if none.")
    created_at: datetime.datetime = Field(description="Time at which the request was created.")
    completed_at: datetime.datetime | None = Field(description="Time of completion; null if not completed.")
    kept: str = Field(
        description="Data that is still stored under the tenant's policy. details: everything; request: all except "
        "external_id, metadata, callback_url, reasons and explanations; trace: the same, but no longer linked to the "
        "person. damaged: details are stored but cannot be read until an operator restores their key or text."
    )
    assignee: str | None = optional(
        "ID of the user to whom the request is assigned; null if unassigned or the caller lacks requests:review."
    )
    assignee_name: str | None = optional("Name of the assignee; null if `assignee` is null or the name is unknown.")
    estimate: EstimateOut | None = Field(description="Estimate of the remaining work; null if none is available.")
    models: list[RequestModelOut] = Field(description="Progress of each model that may need to forget the person.")


class RequestEventOut(Answer):
    at: datetime.datetime = Field(description="Time of the event.")
    status: sets.RequestStatus = Field(description="Status of the request after the event.")
    kind: sets.EventKind = Field(
        description="Kind of the event, usually the new status. nothing_held: completed because no data is held; "
        "handed_back: accepted again because its run did not succeed."
    )
    detail: str | None = Field(description="Explanation of the event; null if its kind is self-explanatory.")
    actor: str = Field(description="ID of the user or API key that acted; `lethe` for the service itself.")
    actor_name: str | None = optional(
        "Name of the actor; null for `lethe`, and if the calling key sees only its own requests."
    )


class CreateDeletionRequestQuery(Query):
    strict: Annotated[
        bool,
        Field(
            description="Return 404 if no data is held about the subject, unless damaged records leave that in doubt. "
            "`detail` counts the people stored under common spellings of the ID that differ only in case. Needs admin."
        ),
    ] = False


class RequestFilter(Query):
    """Filters for a list of requests; all of them apply."""

    status: sets.RequestStatus | None = optional("Only requests with this status.")
    subject_id: SubjectId | None = optional("Only requests about the person with this subject ID.")
    subject_sha256: Sha256 | None = optional("Only requests about the person whose subject ID has this SHA-256 (hex).")
    kind: Name | None = optional("Kind of the given subject ID, such as email. Default: customer_id.")
    model_id: str | None = optional("Only requests that concern this model. Needs accounting:read.")
    external_id: str | None = optional("Only requests with this external_id.")
    source: str | None = optional("Only requests that arrived through this deletion list or protocol.")
    regulation: str | None = optional("Only requests under this regulation.")
    refers_to: str | None = optional("Only requests that follow up the request with this ID.")
    received_from: Moment | None = optional("Only requests whose submitted_at is this time or later.")
    received_before: Moment | None = optional("Only requests whose submitted_at is before this time.")
    due_from: Moment | None = optional("Only open requests due at this time or later.")
    due_before: Moment | None = optional("Only open requests due before this time.")
    completed_from: Moment | None = optional("Only requests completed at this time or later.")
    completed_before: Moment | None = optional("Only requests completed before this time.")
    clock: OpenClock | None = optional("Only open requests in this clock state; running: neither paused nor overdue.")
    assignee: Annotated[str, Field(min_length=1, max_length=200)] | None = optional(
        f"Only requests assigned to the user with this ID, or to {NOBODY}. Needs requests:review."
    )
    made_before: Moment | None = optional("Only requests created before this time.")


class DeletionRequestsQuery(RequestFilter, Paging):
    order: sets.RequestOrder = Field(
        default=sets.RequestOrder.NEWEST,
        description="Sort order. deadline, latest_deadline: open requests only, by deadline; last_completed, "
        "first_completed: completed requests only, by completed_at.",
    )


class EventsQuery(Paging):
    limit: Annotated[int, Field(ge=1, le=500, description="Maximum number of events per page.")] = 500


REQUESTS = operation.ResourceOperations("Deletion requests", "/v1/deletion-requests", problems.RequestUnknown)

CREATE = REQUESTS.operation(
    "create_deletion_request",
    "POST",
    scope=sets.Scope.REQUESTS_WRITE,
    takes=DeletionRequestIn,
    query=CreateDeletionRequestQuery,
    gives=DeletionRequestOut,
    status=202,
    repeat="keyed",
    problems=(
        problems.DatasetUnknown,
        problems.SubjectUnknown,
        problems.RequestUnknown,
        problems.RequestOpen,
        problems.IdentityStatementRequired,
        problems.IdentityStatementInvalid,
    ),
    does="Request that a person's data be erased from all datasets and forgotten by all models trained on it.",
)
LIST = REQUESTS.operation(
    "list_deletion_requests",
    "GET",
    scope=sets.Scope.REQUESTS_READ,
    query=DeletionRequestsQuery,
    gives=PageOut[DeletionRequestOut],
    does="List deletion requests, newest first by default. All filters must match. The audit log records that a search "
    "for a person took place, but not for whom.",
)
GET = REQUESTS.of_one(
    "get_deletion_request",
    "GET",
    "/{request_id}",
    scope=sets.Scope.REQUESTS_READ,
    gives=DeletionRequestOut,
    does="Return a request's status and remaining work.",
)
EVENTS = REQUESTS.of_one(
    "list_events",
    "GET",
    "/{request_id}/events",
    scope=sets.Scope.REQUESTS_READ,
    query=EventsQuery,
    gives=PageOut[RequestEventOut],
    does="List all changes to a request, oldest first.",
)
CANCEL = REQUESTS.of_one(
    "cancel_deletion_request",
    "POST",
    "/{request_id}/cancel",
    scope=sets.Scope.REQUESTS_WRITE,
    gives=DeletionRequestOut,
    problems=(problems.TransitionForbidden,),
    does="Withdraw a request that is in review, in its grace period or not yet claimed by a worker. Callers who are "
    "not allowed to know whether data is held get 409 once the grace period has ended.",
)
APPROVE = REQUESTS.of_one(
    "approve_deletion_request",
    "POST",
    "/{request_id}/approve",
    scope=sets.Scope.REQUESTS_REVIEW,
    gives=DeletionRequestOut,
    repeat="idempotent",
    problems=(problems.TransitionForbidden,),
    does="Accept a request that is in review. Accepting it again is a no-op.",
)
REJECT = REQUESTS.of_one(
    "reject_deletion_request",
    "POST",
    "/{request_id}/reject",
    scope=sets.Scope.REQUESTS_REVIEW,
    takes=RejectionIn,
    gives=DeletionRequestOut,
    repeat="idempotent",
    problems=(problems.TransitionForbidden, problems.SealedTextDamaged),
    does="Reject a request in review or not yet claimed by a worker. Repeating it on the same ground is a no-op.",
)
EXTEND = REQUESTS.of_one(
    "extend_deletion_request",
    "POST",
    "/{request_id}/extend",
    scope=sets.Scope.REQUESTS_REVIEW,
    takes=ExtensionIn,
    gives=DeletionRequestOut,
    problems=(
        problems.TransitionForbidden,
        problems.AlreadyExtended,
        problems.ExtensionTooLate,
        problems.ExtensionNotProvided,
        problems.SealedTextDamaged,
    ),
    does="Extend a request's deadline, once and before it passes, by as much as the regulation allows.",
)
PAUSE = REQUESTS.of_one(
    "pause_deletion_request",
    "POST",
    "/{request_id}/pause",
    scope=sets.Scope.REQUESTS_REVIEW,
    takes=PauseIn,
    gives=DeletionRequestOut,
    repeat="idempotent",
    problems=(problems.TransitionForbidden, problems.ClockRunsOn),
    does="Pause the clock of a request in review while the person's identity is being verified.",
)
RESUME = REQUESTS.of_one(
    "resume_deletion_request",
    "POST",
    "/{request_id}/resume",
    scope=sets.Scope.REQUESTS_REVIEW,
    gives=DeletionRequestOut,
    repeat="idempotent",
    problems=(problems.TransitionForbidden,),
    does="Restart a request's paused clock.",
)
CERTIFICATES = REQUESTS.of_one(
    "get_certificates",
    "GET",
    "/{request_id}/certificate",
    scope=sets.Scope.ACCOUNTING_READ,
    gives=certificates.CertificatesOut,
    does="Return the certificates of all models that have forgotten the person so far, their joint guarantee and, if "
    "nothing was held, a signed statement of absence. The statement is withheld while a dataset that it would cover "
    "has damaged records.",
)
