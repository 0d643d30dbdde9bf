"""`/deletion-requests`: ask for a person to be forgotten, and watch it happen."""

import dataclasses
import datetime
import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from pydantic import BaseModel
from sqlalchemy.orm import Session

from app.access import service as access
from app.access import subjects
from app.access.idempotency import Once
from app.accounting import absences
from app.accounting import repository as accounting_repository
from app.accounting import service as accounting
from app.api import sentences
from app.api.calls import Call, page_of, respond
from app.api.certificates import joint_to_response
from app.api.certificates import to_response as certificate_to_response
from app.api.gateway import serves
from app.api.intake import Intake, to_response
from app.audit import access_events
from app.db import now
from app.db.tables import DeletionRequest, RequestModel
from app.deletion import completion, identity, repository, review, search_repository
from app.deletion import service as deletion
from app.deletion.identity import Statement
from app.deletion.search_repository import Sought
from app.deletion.service import Asked
from app.deletion.views import View
from app.rows import repository as rows_repository
from app.webhooks import receiver
from lethe.contract import deletion_requests as contract
from lethe.contract.certificates import AbsenceOut, CertificatesOut
from lethe.contract.deletion_requests import (
    CreateDeletionRequestQuery,
    DeletionRequestIn,
    DeletionRequestOut,
    DeletionRequestsQuery,
    EventsQuery,
    ExtensionIn,
    PauseIn,
    RejectionIn,
    RequestEventOut,
    RequestFilter,
)
from lethe.contract.fields import PageOut
from lethe.contract.problems import FieldError, IdentityStatementInvalid, InputInvalid
from lethe.contract.sets import RequestStatus, Scope
from lethe.contract.subjects import SubjectIn


class PlainRoute(APIRoute):
    """Sends what an endpoint returns (200) as it is: the framework would check it once more, in another thread. Not by
    `model_dump_json`, which leaves what it wrote in memory that nothing overwrites."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        super().__init__(path, endpoint if inspect.iscoroutinefunction(endpoint) else _answered(endpoint), **options)


def _answered(endpoint: Callable[..., BaseModel | JSONResponse]) -> Callable[..., JSONResponse]:
    @functools.wraps(endpoint)
    def answered(**arguments: Any) -> JSONResponse:
        found = endpoint(**arguments)
        return found if isinstance(found, JSONResponse) else JSONResponse(found.model_dump(mode="json", by_alias=True))

    return answered


router = APIRouter(route_class=PlainRoute)


async def _intake(request: Request) -> Intake:
    intake: Intake = request.app.state.intake
    return intake


TheIntake = Annotated[Intake, Depends(_intake)]


@serves(router, contract.CREATE)
async def create_deletion_request(
    call: Call, intake: TheIntake, body: DeletionRequestIn, once: Once, query: CreateDeletionRequestQuery
) -> JSONResponse:
    if query.strict:
        call.caller.require(Scope.ADMIN)
    statement = None
    if body.identity_statement is not None:
        statement = await run_in_threadpool(checked_statement, call, body, body.identity_statement)
    return respond(await intake.submit(once, asked(call, body, statement=statement, strict=query.strict)))


def asked(
    call: Call,
    body: DeletionRequestIn,
    *,
    statement: Statement | IdentityStatementInvalid | None = None,
    source: str | None = None,
    strict: bool = False,
) -> Asked:
    """Read what the caller asks for with `body`. Raises `InputInvalid` for a callback_url that nothing may be sent
    to."""
    if body.callback_url is not None:
        receiver.check_url(body.callback_url, call.installation.settings.webhook_networks())
    subject, aliases = subject_ref(call, body), aliases_of(call, body)
    return Asked(
        by=call.caller.actor,
        policy=call.caller.policy,
        maker=call.caller.maker,
        own_only=call.caller.own_requests_only,
        discreet=call.caller.discreet,
        subject_ref=subject,
        alias_refs=[alias for alias in aliases if alias != subject],
        dataset_ids=body.dataset_ids,
        regulation=body.regulation,
        ground=body.ground,
        submitted_at=body.submitted_at,
        external_id=body.external_id,
        metadata=dict(body.metadata),
        callback_urls=() if body.callback_url is None else (body.callback_url,),
        refers_to=body.refers_to,
        identity_verified=body.identity_verified,
        statement=statement,
        source=source,
        strict=strict,
    )


@serves(router, contract.LIST)
def list_deletion_requests(call: Call, query: DeletionRequestsQuery) -> PageOut[DeletionRequestOut]:
    sought = sought_by(call, query)
    if sought.subject_ref is not None:
        with call.writing() as session:
            access_events.requests_looked_up(session)
    with call.reading() as session:
        view = view_of(session, call)
        page = search_repository.requests(
            session, sought, view=view, order=query.order, limit=query.limit, cursor=query.cursor
        )
        owed = {} if view.discreet else repository.models_of_requests(session, request_ids=[r.id for r in page.items])
        names, horizon = names_of_assignees(session, call, page.items), horizon_of(call)
    items = [to_response(one, owed.get(one.id, ()), view=view, horizon=horizon, names=names) for one in page.items]
    return PageOut(items=items, next_cursor=page.next_cursor)


@serves(router, contract.GET)
def get_deletion_request(call: Call, intake: TheIntake, request_id: str) -> DeletionRequestOut:
    with call.reading() as session:
        found = None if call.caller.discreet else repository.request_with_models(session, request_id)
        request, owed = found or (deletion.get(session, request_id), None)
        return to_response_of(session, call, intake, request, owed)


@serves(router, contract.EVENTS)
def list_events(call: Call, request_id: str, query: EventsQuery) -> PageOut[RequestEventOut]:
    with call.reading() as session:
        request = deletion.get(session, request_id)
        events = view_of(session, call).events(request, repository.events(session, request_id=request_id))
        page = page_of(events, limit=query.limit, cursor=query.cursor)
        names = {} if call.caller.own_requests_only else access.names_of(session, {one.actor for one in page.items})
    items = [
        RequestEventOut(
            at=one.at,
            status=RequestStatus(one.status),
            kind=one.kind,
            detail=sentences.of_event(one),
            actor=one.actor,
            actor_name=names.get(one.actor),
        )
        for one in page.items
    ]
    return PageOut(items=items, next_cursor=page.next_cursor)


@serves(router, contract.CANCEL)
def cancel_deletion_request(call: Call, intake: TheIntake, request_id: str) -> DeletionRequestOut:
    with call.writing() as session:
        request = call.own(deletion.get(session, request_id))
        deletion.cancel(session, request, discreet=call.caller.discreet)
        return to_response_of(session, call, intake, request)


@serves(router, contract.APPROVE)
def approve_deletion_request(call: Call, intake: TheIntake, request_id: str) -> DeletionRequestOut:
    with call.writing() as session:
        request = deletion.get(session, request_id)
        review.approve(session, request, policy=call.caller.policy)
        out = to_response_of(session, call, intake, request)
    call.installation.notifier.wake()
    return out


@serves(router, contract.REJECT)
def reject_deletion_request(call: Call, intake: TheIntake, request_id: str, body: RejectionIn) -> DeletionRequestOut:
    with call.writing() as session:
        request = deletion.get(session, request_id)
        review.reject(session, request, ground=body.ground, explanation=body.explanation)
        return to_response_of(session, call, intake, request)


@serves(router, contract.EXTEND)
def extend_deletion_request(call: Call, intake: TheIntake, request_id: str, body: ExtensionIn) -> DeletionRequestOut:
    with call.writing() as session:
        request = deletion.get(session, request_id)
        review.extend(session, request, policy=call.caller.policy, reason=body.reason)
        return to_response_of(session, call, intake, request)


@serves(router, contract.PAUSE)
def pause_deletion_request(call: Call, intake: TheIntake, request_id: str, body: PauseIn) -> DeletionRequestOut:
    with call.writing() as session:
        request = deletion.get(session, request_id)
        review.pause(session, request, policy=call.caller.policy)
        return to_response_of(session, call, intake, request)


@serves(router, contract.RESUME)
def resume_deletion_request(call: Call, intake: TheIntake, request_id: str) -> DeletionRequestOut:
    with call.writing() as session:
        request = deletion.get(session, request_id)
        review.resume(session, request)
        return to_response_of(session, call, intake, request)


@serves(router, contract.CERTIFICATES)
def get_certificates(call: Call, request_id: str) -> CertificatesOut:
    with call.reading() as session:
        request = deletion.get(session, request_id)
        found = accounting_repository.certificates_of(session, request_id=request_id)
        rule = subjects.IN_WORDS[call.caller.policy.subject_rule]
        in_doubt = completion.is_in_doubt(request, rows_repository.doubtful(session))
        absence = None if in_doubt else absences.of(session, call.installation.keys, request, identity_rule=rule)
        return CertificatesOut(
            request_id=request_id,
            certificates=[certificate_to_response(c) for c in found],
            joint=joint_to_response(accounting.joint_of(session, request_id=request_id)),
            nothing_held=AbsenceOut(jws=absence.jws, statement=absence.statement) if absence else None,
        )


def sought_by(call: Call, query: RequestFilter) -> Sought:
    """The requests that are asked for. Raises `InputInvalid`, and `ScopeMissing` for those of a model, which tell of
    whom rows are held, and for those of an assignee, whom an app need not know."""
    if query.assignee is not None:
        call.caller.require(Scope.REQUESTS_REVIEW)
    if query.model_id is not None:
        call.caller.require(Scope.ACCOUNTING_READ)
    asked = query.model_dump(include={field.name for field in dataclasses.fields(Sought)})
    return Sought(**asked, subject_ref=_subject_sought(call, query), horizon=horizon_of(call))


def _subject_sought(call: Call, query: RequestFilter) -> str | None:
    """The person whose requests are asked for, if anybody's. Raises `InputInvalid`."""
    if query.subject_id is not None and query.subject_sha256 is not None:
        fault = FieldError("subject_sha256", "expected either subject_id or subject_sha256")
        raise InputInvalid("Name the subject once.", [fault])
    if query.subject_id or query.subject_sha256:
        return subject_ref_of(call, query.subject_id, query.subject_sha256)
    return None


def subject_ref(call: Call, body: SubjectIn) -> str:
    """The person whom a body is about."""
    return subject_ref_of(call, body.subject_id, body.subject_sha256)


def aliases_of(call: Call, body: DeletionRequestIn) -> list[str]:
    """The other identifiers that a body gives, each once."""
    refs = (call.subject_ref(alias, path=f"aliases.{place}") for place, alias in enumerate(body.aliases))
    return list(dict.fromkeys(refs))


def subject_ref_of(call: Call, subject_id: str | None, subject_sha256: str | None) -> str:
    """The person whom a call is about: by their id, or by its hash."""
    if subject_id is not None:
        return call.subject_ref(subject_id)
    return call.installation.keys.subject_ref_of_hash(call.caller.tenant_id, bytes.fromhex(subject_sha256 or ""))


def checked_statement(call: Call, body: SubjectIn, token: str) -> Statement | IdentityStatementInvalid:
    """A statement, or why it is not believed: that is said after it is known whether the call was made before."""
    sha256 = (
        identity.sha256_of(call.normal(body.subject_id))
        if body.subject_id
        else bytes.fromhex(body.subject_sha256 or "")
    )
    rule = call.caller.policy.subject_rule
    try:
        with call.reading() as session:
            return identity.check(session, call.installation.keys, token, subject_sha256=sha256, rule=rule)
    except IdentityStatementInvalid as refusal:
        return refusal


def to_response_of(
    session: Session, call: Call, intake: Intake, request: DeletionRequest, owed: Sequence[RequestModel] | None = None
) -> DeletionRequestOut:
    """A request as the caller may see it. `owed`: what it asks of models; None: it is looked up."""
    view = view_of(session, call)
    if view.discreet:
        return to_response(request, (), view=view, horizon=horizon_of(call))
    if owed is None:
        owed = repository.request_models(session, request_id=request.id)
    estimate = intake.estimates.of(session, request, owed)
    names = names_of_assignees(session, call, [request])
    return to_response(request, owed, estimate, view=view, horizon=horizon_of(call), names=names)


def names_of_assignees(session: Session, call: Call, requests: Iterable[DeletionRequest]) -> dict[str, str] | None:
    """The names of those whom these requests are assigned to; None for a caller who may not know them."""
    if not call.caller.has(Scope.REQUESTS_REVIEW):
        return None
    ids = {request.assignee for request in requests if request.assignee is not None}
    return access.names_of(session, ids) if ids else {}


def view_of(session: Session, call: Call) -> View:
    return View(discreet=call.caller.discreet, at=now(session))


def horizon_of(call: Call) -> datetime.timedelta:
    return datetime.timedelta(days=call.installation.settings.risk_days)
