"""Deletion requests, and decisions about them."""

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
"""Clock states by which open requests can be filtered; running: neither paused nor overdue."""
RegulationName = Annotated[str, Field(pattern="^[a-z][a-z0-9_]{1,30}$"), WHOLE]


MAX_ALIASES = 50
NOBODY = "nobody"
"""Assignee of unassigned requests, in filters and assignments."""


class DeletionRequestIn(SubjectIn):
    model_config = example(subject_id="customer-4711", regulation="gdpr", ground="consent_withdrawn")

    aliases: Annotated[list[SubjectId], Field(max_length=MAX_ALIASES)] = Field(
        default_factory=list, description="Other subject IDs of the same person, which are forgotten too."
    )
    dataset_ids: Annotated[list[Name], Field(min_length=1, max_length=1000)] | None = optional(
        "IDs of the datasets to erase from. Default: all datasets that hold the person."
    )
    regulation: RegulationName = Field(default="gdpr", description="gdpr, ccpa, other, or a regulation of the policy.")
    ground: Annotated[sets.ErasureGround, Strict(False)] | None = optional("Ground under GDPR Art. 17(1).")
    submitted_at: Moment | None = optional("Time at which the person asked, from which deadlines count. Default: now.")
    external_id: Name | None = optional("ID of the request in the caller's system, searchable.")
    metadata: Annotated[
        dict[Name, Annotated[Text, Field(max_length=2000)]], BeforeValidator(first_entries), Field(max_length=50)
    ] = Field(default_factory=dict, description="Further data of the caller, returned unchanged, never evaluated.")
    refers_to: Name | None = optional("ID of an ended request about this subject that this one follows.")
    callback_url: Annotated[Text, Field(max_length=2048)] | None = optional(
        "URL that receives the events of the request."
    )
    identity_verified: bool = Field(
        default=True,
        description="False if not verified: hold in review, with the clock paused if the regulation allows.",
    )
    identity_statement: Annotated[Text, Field(max_length=16_000)] | None = optional(
        "JWT of a registered issuer about the subject, valid for one request."
    )


class RejectionIn(Body):
    model_config = example(ground="legal_claims", explanation="We need the records for a claim that is before court.")

    ground: Annotated[sets.RejectionGround, Strict(False)] = Field(
        description="Ground under GDPR Art. 17(3) or Art. 12."
    )
    explanation: Explanation = Field(description="Explanation for the person.")


class ExtensionIn(Body):
    model_config = example(reason="Very many people have asked at the same time.")

    reason: Explanation = Field(description="Reason for the delay, for the person.")


class PauseIn(Body):
    reason: Literal["identity"] = Field(description="Reason for the pause: the identity is being verified.")


class EstimateModelOut(Answer):
    model_id: str = Field(description="ID of the model.")
    kind: sets.RunKind = Field(description="Kind of the run that would forget now: learn, unlearn or relearn.")
    steps: int = Field(description="Number of steps of the run that would forget now.")


class EstimateOut(Answer):
    steps: int = Field(description="Number of steps of all runs together.")
    models: list[EstimateModelOut] = Field(description="One run per model that still has to forget, as if started now.")


class RequestModelOut(Answer):
    model_id: str = Field(description="ID of the model.")
    status: sets.RequestModelStatus = Field(
        description="Progress: pending, running, completed, cancelled, destroyed (the model's weights are gone), or "
        "nothing_published (it never had a version)."
    )
    run_id: str | None = Field(description="ID of the run that serves the request; null before it starts.")
    version: int | None = Field(description="Number of the version without the person; null until published.")
    certificate_id: str | None = Field(description="ID of the certificate; null until issued.")


class ClockOut(Answer):
    state: sets.ClockState = Field(
        description="on_time, at_risk (due within LETHE_RISK_DAYS), overdue, paused or ended."
    )
    deadline: datetime.datetime = Field(description="extended_due_at if the deadline was extended, else due_at.")
    paused_since: datetime.datetime | None = Field(description="Time at which the clock was paused; null if it runs.")
    days_left: int | None = Field(description="Whole days until the deadline, negative once passed; null if ended.")


class RejectionOut(Answer):
    ground: sets.RejectionGround = Field(description="Legal ground of the rejection: GDPR Art. 17(3) or Art. 12.")
    explanation: str | None = Field(description="Explanation for the person; null once erased.", repr=False)


class DeletionRequestOut(Answer):
    """Deletion request. For callers without accounting:read, outcome and estimate are null and models is empty,
    whatever is held."""

    id: str = Field(description="ID of the request.")
    status: sets.RequestStatus = Field(description="Status of the request.")
    outcome: sets.Outcome | None = Field(
        description="Outcome: forgotten; nothing_held; erased_already: another request erased the person's rows after "
        "this one was submitted; target_widened: rows are erased, but a model's target exceeds epsilon 8 or delta 1/n "
        "and does not count as forgetting. Null until completed."
    )
    erased_by: str | None = Field(
        description="ID of the request that erased the rows, whose certificates apply; null for other outcomes."
    )
    identity_unknown: bool = Field(
        default=False,
        description="True if no rows are named by the identifier's kind or a kind that the identity map links to it: "
        "the request waits for a map or an officer. False for callers without accounting:read.",
    )
    subject_ref: str = Field(description="Pseudonym of the person: a keyed hash of the subject ID.", repr=False)
    alias_refs: list[str] = Field(description="Pseudonyms of the aliases.", repr=False)
    regulation: str = Field(description="Regulation that sets the deadline.")
    ground: str | None = Field(description="Ground under GDPR Art. 17(1); null if none was given.")
    external_id: str | None = Field(description="ID given by the caller; null if none or erased.", repr=False)
    metadata: dict[str, str] = Field(description="Data given by the caller; empty once erased.", repr=False)
    submitted_at: datetime.datetime = Field(description="Time at which the person asked, from which deadlines count.")
    time_zone: str = Field(description="Time zone of its days: that of the tenant's policy at creation.")
    due_at: datetime.datetime = Field(description="Deadline without extension, moved by pauses.")
    extended_due_at: datetime.datetime | None = Field(description="Deadline after its extension; null if not extended.")
    extension_reason: str | None = Field(description="Reason for the extension; null if none or erased.", repr=False)
    clock: ClockOut = Field(description="State of the deadline.")
    held_until: datetime.datetime | None = Field(description="Time before which no worker starts; null if none.")
    rejection: RejectionOut | None = Field(description="Ground and explanation; null unless rejected.", repr=False)
    source: str | None = Field(description="List or protocol by which the request arrived; null if none.")
    refers_to: str | None = Field(description="ID of the ended request that this one follows; null if none.")
    created_at: datetime.datetime = Field(description="Time at which the request was created.")
    completed_at: datetime.datetime | None = Field(description="Time of completion; null until then.")
    kept: str = Field(
        description="Data still stored, by the tenant's policy. details: everything; request: without external_id, "
        "metadata, callback_url, reasons and explanations; trace: also without the person. damaged: details are "
        "stored and cannot be read, until an operator restores their key or text."
    )
    assignee: str | None = optional(
        "ID of the assigned person; null if unassigned or the caller lacks requests:review."
    )
    assignee_name: str | None = optional("Name of the assigned person, if known.")
    estimate: EstimateOut | None = Field(description="Remaining work; null if there is none or it is unknown.")
    models: list[RequestModelOut] = Field(description="Progress with each model that may carry the person.")


class RequestEventOut(Answer):
    at: datetime.datetime = Field(description="Time of the event.")
    status: sets.RequestStatus = Field(description="Status of the request after the event.")
    kind: sets.EventKind = Field(
        description="Kind of the event, usually the new status. nothing_held: completed because nothing is held; "
        "handed_back: accepted again because its run did not succeed."
    )
    detail: str | None = Field(description="Sentence about the event; null if its kind is self-explanatory.")
    actor: str = Field(description="ID of the person or API key that acted; `lethe` for the service.")
    actor_name: str | None = optional(
        "Name of the actor; null for `lethe` and for keys that see only their own requests."
    )


class CreateDeletionRequestQuery(Query):
    strict: Annotated[
        bool,
        Field(
            description="Answer 404 if nothing is held about the subject and no damaged record leaves that in doubt. "
            "`detail` counts people held under the usual spellings of the id in another case. Needs admin."
        ),
    ] = False


class RequestFilter(Query):
    """Filters of a list of requests; all of them apply."""

    status: sets.RequestStatus | None = optional("Only requests with this status.")
    subject_id: SubjectId | None = optional("Only requests about the person with this subject ID.")
    subject_sha256: Sha256 | None = optional(
        "Only requests about the person with this SHA-256 (hex) of the subject ID."
    )
    kind: Name | None = optional("Kind of this subject ID, such as email. Default: customer_id.")
    model_id: str | None = optional("Only requests that concern this model. Needs accounting:read.")
    external_id: str | None = optional("Only requests with this external_id.")
    source: str | None = optional("Only requests that arrived by this list or protocol.")
    regulation: str | None = optional("Only requests under this regulation.")
    refers_to: str | None = optional("Only requests that follow the request with this ID.")
    received_from: Moment | None = optional("Only requests with this submitted_at or later.")
    received_before: Moment | None = optional("Only requests with an earlier submitted_at.")
    due_from: Moment | None = optional("Only open requests with this deadline or later.")
    due_before: Moment | None = optional("Only open requests with an earlier deadline.")
    completed_from: Moment | None = optional("Only requests completed at this time or later.")
    completed_before: Moment | None = optional("Only requests completed earlier.")
    clock: OpenClock | None = optional("Only open requests with this clock state; running: neither paused nor overdue.")
    assignee: Annotated[str, Field(min_length=1, max_length=200)] | None = optional(
        f"Only requests of this person (ID) or of {NOBODY}. Needs requests:review."
    )
    made_before: Moment | None = optional("Only requests with an earlier created_at.")


class DeletionRequestsQuery(RequestFilter, Paging):
    order: sets.RequestOrder = Field(
        default=sets.RequestOrder.NEWEST,
        description="Order of the list. deadline, latest_deadline: open requests only, by deadline; "
        "last_completed, first_completed: completed requests only, by completed_at.",
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
    does="Request that every dataset and model that holds a person forgets them.",
)
LIST = REQUESTS.operation(
    "list_deletion_requests",
    "GET",
    scope=sets.Scope.REQUESTS_READ,
    query=DeletionRequestsQuery,
    gives=PageOut[DeletionRequestOut],
    does="List deletion requests, newest first by default; all filters apply. The audit log records that a search for "
    "a person took place, but not for whom.",
)
GET = REQUESTS.of_one(
    "get_deletion_request",
    "GET",
    "/{request_id}",
    scope=sets.Scope.REQUESTS_READ,
    gives=DeletionRequestOut,
    does="Return the status of a request and the remaining work.",
)
EVENTS = REQUESTS.of_one(
    "list_events",
    "GET",
    "/{request_id}/events",
    scope=sets.Scope.REQUESTS_READ,
    query=EventsQuery,
    gives=PageOut[RequestEventOut],
    does="List every change of the request, oldest first.",
)
CANCEL = REQUESTS.of_one(
    "cancel_deletion_request",
    "POST",
    "/{request_id}/cancel",
    scope=sets.Scope.REQUESTS_WRITE,
    gives=DeletionRequestOut,
    problems=(problems.TransitionForbidden,),
    does="Withdraw a request in review, in its grace period, or until a worker has claimed it. Callers who may not "
    "learn whether anything is held get 409 once the grace period is over.",
)
APPROVE = REQUESTS.of_one(
    "approve_deletion_request",
    "POST",
    "/{request_id}/approve",
    scope=sets.Scope.REQUESTS_REVIEW,
    gives=DeletionRequestOut,
    repeat="idempotent",
    problems=(problems.TransitionForbidden,),
    does="Accept a request that is in review. A request accepted before stays unchanged.",
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
    does="Reject a request in review, or before a worker has claimed it. Repeating the same ground is a no-op.",
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
    does="Extend the deadline as the regulation allows, once and before it has passed.",
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
    does="Pause the clock of a request in review while the person's identity is being established.",
)
RESUME = REQUESTS.of_one(
    "resume_deletion_request",
    "POST",
    "/{request_id}/resume",
    scope=sets.Scope.REQUESTS_REVIEW,
    gives=DeletionRequestOut,
    repeat="idempotent",
    problems=(problems.TransitionForbidden,),
    does="Resume a paused clock.",
)
CERTIFICATES = REQUESTS.of_one(
    "get_certificates",
    "GET",
    "/{request_id}/certificate",
    scope=sets.Scope.ACCOUNTING_READ,
    gives=certificates.CertificatesOut,
    does="Return the certificates of all models that have forgotten so far, their joint guarantee, and, if nothing "
    "was held, a signed statement of absence. The statement is withheld while a dataset that it would cover has "
    "damaged records.",
)
