"""Ask for a person to be forgotten, and watch it happen."""

import datetime
from typing import Annotated, Literal

from pydantic import Field, Strict

from lethe.contract.certificates import CertificatesOut
from lethe.contract.choices import ErasureGround, RequestOrder
from lethe.contract.fields import Answer, Body, Explanation, Moment, Name, PageOut, Paging, Query, Sha256, Text, example
from lethe.contract.operation import Resource, of_one
from lethe.contract.problems import (
    AlreadyExtended,
    ClockRunsOn,
    DatasetUnknown,
    ExtensionNotProvided,
    ExtensionTooLate,
    IdempotencyConflict,
    IdentityStatementInvalid,
    IdentityStatementRequired,
    RequestOpen,
    RequestUnknown,
    SubjectUnknown,
    TransitionForbidden,
)
from lethe.contract.sets import (
    ClockState,
    EventKind,
    Outcome,
    RejectionGround,
    RequestModelStatus,
    RequestStatus,
    RunKind,
    Scope,
)
from lethe.contract.subjects import SubjectIn

OpenClock = Literal[ClockState.AT_RISK, ClockState.OVERDUE, ClockState.PAUSED]
"""The clocks by which open requests are sought."""
RegulationName = Annotated[str, Field(pattern="^[a-z][a-z0-9_]{1,30}$")]


MOST_ALIASES = 50
NOBODY = "nobody"
"""Stands for an assignee where there is none."""


class DeletionRequestIn(SubjectIn):
    model_config = example(subject_id="customer-4711", regulation="gdpr", ground="consent_withdrawn")

    aliases: Annotated[list[Annotated[str, Field(min_length=1, max_length=500)]], Field(max_length=MOST_ALIASES)] = (
        Field(default_factory=list, description="Other subject ids of the same person, all of them forgotten too.")
    )
    dataset_ids: Annotated[list[Name], Field(min_length=1, max_length=1000)] | None = None
    regulation: RegulationName = Field(default="gdpr", description="gdpr, ccpa, other, or one of the tenant's policy.")
    ground: Annotated[ErasureGround, Strict(False)] | None = None
    submitted_at: Moment | None = None
    external_id: Name | None = None
    metadata: Annotated[dict[Name, Annotated[Text, Field(max_length=2000)]], Field(max_length=50)] = Field(
        default_factory=dict, description="The caller's own words: kept, shown again, and never looked at."
    )
    refers_to: Name | None = Field(
        default=None, description="An ended request about the same subject that this one follows."
    )
    callback_url: Annotated[Text, Field(max_length=2048)] | None = Field(
        default=None, description="Where to report what becomes of the request."
    )
    identity_verified: bool = Field(
        default=True,
        description="False: the request waits in review, its clock paused where the regulation lets it pause.",
    )
    identity_statement: Annotated[Text, Field(max_length=16_000)] | None = Field(
        default=None, description="A JWT of a registered issuer about the subject, good for one request."
    )


class RejectionIn(Body):
    model_config = example(ground="legal_claims", explanation="We need the records for a claim that is before court.")

    ground: Annotated[RejectionGround, Strict(False)]
    explanation: Explanation = Field(description="For the person: why they are not forgotten.")


class ExtensionIn(Body):
    model_config = example(reason="Very many people have asked at the same time.")

    reason: Explanation = Field(description="For the person: why it takes longer.")


class PauseIn(Body):
    reason: Literal["identity"]


class EstimateModelOut(Answer):
    model_id: str
    kind: RunKind
    steps: int


class EstimateOut(Answer):
    steps: int
    models: list[EstimateModelOut]


class RequestModelOut(Answer):
    model_id: str
    status: RequestModelStatus = Field(
        description="pending, running, completed, cancelled, destroyed (nothing is left of the model), or "
        "nothing_published (it never had a version)."
    )
    run_id: str | None
    version: int | None
    certificate_id: str | None


class ClockOut(Answer):
    state: ClockState
    deadline: datetime.datetime = Field(description="due_at, or extended_due_at once there is one.")
    paused_since: datetime.datetime | None
    days_left: int | None = Field(description="Whole days until the deadline, below 0 once it has passed.")


class RejectionOut(Answer):
    ground: RejectionGround
    explanation: str | None = Field(repr=False)


class DeletionRequestOut(Answer):
    """For a caller without accounting:read, outcome, estimate and models are empty whatever is held."""

    id: str
    status: RequestStatus
    outcome: Outcome | None = Field(
        description="forgotten; nothing_held; target_widened: the rows are erased, but a model's target is weaker than "
        "epsilon 8 or delta 1/n, which is not called forgotten."
    )
    subject_ref: str = Field(repr=False)
    alias_refs: list[str] = Field(description="Of the aliases, one each.", repr=False)
    regulation: str
    ground: str | None
    external_id: str | None = Field(repr=False)
    metadata: dict[str, str] = Field(repr=False)
    submitted_at: datetime.datetime
    due_at: datetime.datetime
    extended_due_at: datetime.datetime | None
    extension_reason: str | None = Field(repr=False)
    clock: ClockOut
    held_until: datetime.datetime | None = Field(description="No worker takes it before: so long it can be cancelled.")
    rejection: RejectionOut | None = Field(repr=False)
    source: str | None
    refers_to: str | None
    created_at: datetime.datetime
    completed_at: datetime.datetime | None
    kept: str = Field(
        description="details: everything; request: no longer external_id, metadata, callback_url, reasons and "
        "explanations; trace: no longer whom it was about either. The tenant's policy says how long."
    )
    assignee: str | None = Field(
        default=None, description="The person whose case it is; null for nobody, and without requests:review."
    )
    assignee_name: str | None = Field(default=None, description="Their name.")
    estimate: EstimateOut | None = Field(description="What the request will take, while it is waiting.")
    models: list[RequestModelOut]


class RequestEventOut(Answer):
    at: datetime.datetime
    status: RequestStatus
    kind: EventKind = Field(
        description="Named after the status that the request took on; nothing_held: completed, as nothing is held; "
        "handed_back: accepted again, because a run did not end well; noted: detail alone says what happened."
    )
    detail: str | None
    actor: str = Field(description="The person or the API key that did it, or lethe.")
    actor_name: str | None = Field(
        default=None, description="Their name; null for lethe, and for keys that see their own requests only."
    )


class CreateDeletionRequestQuery(Query):
    strict: Annotated[
        bool,
        Field(description="404 if nothing is held about the subject, and no damage leaves that in doubt; needs admin"),
    ] = False


class RequestFilter(Query):
    """Filters of the list; of several, those that satisfy all."""

    status: RequestStatus | None = None
    subject_id: Annotated[str, Field(min_length=1, max_length=500)] | None = None
    subject_sha256: Sha256 | None = None
    model_id: str | None = Field(default=None, description="Needs the scope accounting:read.")
    external_id: str | None = None
    source: str | None = None
    regulation: str | None = None
    refers_to: str | None = None
    received_from: Moment | None = Field(default=None, description="Requests with this submitted_at or a later one.")
    received_before: Moment | None = Field(default=None, description="Requests with an earlier submitted_at.")
    due_from: Moment | None = Field(default=None, description="Open requests with this deadline or a later one.")
    due_before: Moment | None = Field(default=None, description="Open requests with an earlier deadline.")
    completed_from: Moment | None = Field(default=None, description="Requests completed at this time or later.")
    completed_before: Moment | None = Field(default=None, description="Requests completed earlier.")
    clock: OpenClock | None = Field(
        default=None, description="Open requests whose clock says so: as the overview counts them."
    )
    assignee: Annotated[str, Field(min_length=1, max_length=200)] | None = Field(
        default=None, description=f"The id of a person, or {NOBODY}. Needs the scope requests:review."
    )
    made_before: Moment | None = Field(default=None, description="Requests that came in earlier.")


class DeletionRequestsQuery(RequestFilter, Paging):
    order: RequestOrder = Field(
        default=RequestOrder.NEWEST,
        description="deadline, latest_deadline: open requests alone, the most urgent first or last; last_completed, "
        "first_completed: completed ones alone, by when they were.",
    )


class EventsQuery(Paging):
    limit: Annotated[int, Field(ge=1, le=500)] = 500


_DELETION_REQUESTS = Resource("Deletion requests", "/v1/deletion-requests")

CREATE = _DELETION_REQUESTS.operation(
    "create_deletion_request",
    "POST",
    scope=Scope.REQUESTS_WRITE,
    takes=DeletionRequestIn,
    query=CreateDeletionRequestQuery,
    gives=DeletionRequestOut,
    status=202,
    keyed=True,
    problems=(
        DatasetUnknown,
        SubjectUnknown,
        RequestUnknown,
        IdempotencyConflict,
        RequestOpen,
        IdentityStatementRequired,
        IdentityStatementInvalid,
    ),
    does="Ask for a person to be forgotten by every dataset and model that holds them.",
)
LIST = _DELETION_REQUESTS.operation(
    "list_deletion_requests",
    "GET",
    scope=Scope.REQUESTS_READ,
    query=DeletionRequestsQuery,
    gives=PageOut[DeletionRequestOut],
    does="Newest first, if nothing else is asked for; of several filters, those that satisfy all. That "
    "somebody looked for a person, not for whom, is in the audit log.",
)
GET = of_one(
    _DELETION_REQUESTS.operation(
        "get_deletion_request",
        "GET",
        "/{request_id}",
        scope=Scope.REQUESTS_READ,
        gives=DeletionRequestOut,
        problems=(RequestUnknown,),
        does="What has become of a request, and what is left to do.",
    )
)
EVENTS = of_one(
    _DELETION_REQUESTS.operation(
        "list_events",
        "GET",
        "/{request_id}/events",
        scope=Scope.REQUESTS_READ,
        query=EventsQuery,
        gives=PageOut[RequestEventOut],
        problems=(RequestUnknown,),
        does="Every change of the request, oldest first.",
    )
)
CANCEL = of_one(
    _DELETION_REQUESTS.operation(
        "cancel_deletion_request",
        "POST",
        "/{request_id}/cancel",
        scope=Scope.REQUESTS_WRITE,
        gives=DeletionRequestOut,
        problems=(RequestUnknown, TransitionForbidden),
        does="Withdraw a request: in review, in its grace time, and after it until a worker has taken it. Callers "
        "who may not learn whether anything is held get 409 as soon as the grace time is over.",
    )
)
APPROVE = of_one(
    _DELETION_REQUESTS.operation(
        "approve_deletion_request",
        "POST",
        "/{request_id}/approve",
        scope=Scope.REQUESTS_REVIEW,
        gives=DeletionRequestOut,
        idempotent=True,
        problems=(RequestUnknown, TransitionForbidden),
        does="Accept a request that is in review; one that was accepted before stays as it is.",
    )
)
REJECT = of_one(
    _DELETION_REQUESTS.operation(
        "reject_deletion_request",
        "POST",
        "/{request_id}/reject",
        scope=Scope.REQUESTS_REVIEW,
        takes=RejectionIn,
        gives=DeletionRequestOut,
        idempotent=True,
        problems=(RequestUnknown, TransitionForbidden),
        does="Refuse to forget, in review or before a worker has taken the request; twice on one ground is once.",
    )
)
EXTEND = of_one(
    _DELETION_REQUESTS.operation(
        "extend_deletion_request",
        "POST",
        "/{request_id}/extend",
        scope=Scope.REQUESTS_REVIEW,
        takes=ExtensionIn,
        gives=DeletionRequestOut,
        problems=(RequestUnknown, TransitionForbidden, AlreadyExtended, ExtensionTooLate, ExtensionNotProvided),
        does="Extend the deadline as the regulation allows, once, before it has passed.",
    )
)
PAUSE = of_one(
    _DELETION_REQUESTS.operation(
        "pause_deletion_request",
        "POST",
        "/{request_id}/pause",
        scope=Scope.REQUESTS_REVIEW,
        takes=PauseIn,
        gives=DeletionRequestOut,
        idempotent=True,
        problems=(RequestUnknown, TransitionForbidden, ClockRunsOn),
        does="Stop the clock of a request in review while the person's identity is being established.",
    )
)
RESUME = of_one(
    _DELETION_REQUESTS.operation(
        "resume_deletion_request",
        "POST",
        "/{request_id}/resume",
        scope=Scope.REQUESTS_REVIEW,
        gives=DeletionRequestOut,
        idempotent=True,
        problems=(RequestUnknown, TransitionForbidden),
        does="Let a paused clock run again.",
    )
)
CERTIFICATES = of_one(
    _DELETION_REQUESTS.operation(
        "get_certificates",
        "GET",
        "/{request_id}/certificate",
        scope=Scope.ACCOUNTING_READ,
        gives=CertificatesOut,
        problems=(RequestUnknown,),
        does="The certificate of every model that has forgotten so far, what all of them tell together, and, of a "
        "request that held nothing, a signed statement of exactly that; not while a dataset that it would "
        "speak of has damaged records.",
    )
)
