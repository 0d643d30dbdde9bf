"""Endpoints for deletion requests."""

import dataclasses
import datetime
import functools
import inspect
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse, Response
from fastapi.routing import APIRoute
from pydantic import BaseModel
from sqlalchemy.orm import Session
from starlette.requests import ClientDisconnect

from app.access import idempotency, service as access, subjects
from app.accounting import certificates, repository as accounting_repository, service as accounting
from app.api import gateway, sentences
from app.api.accounting import certificate_to_response, joint_to_response
from app.api.calls import CALLER, MAX_KEY_LENGTH, Call, once_of, page_of, respond
from app.api.intake import Intake, to_response
from app.audit import service as audit
from app.db import now
from app.db.tables import DeletionRequest, RequestModel
from app.deletion import admission, completion, repository, search_repository, service as deletion, views
from app.rows import repository as rows_repository
from lethe.contract import deletion_requests as contract, fields, problems, sets
from lethe.contract.certificates import AbsenceOut, CertificatesOut


class PlainRoute(APIRoute):
    """Route that sends its endpoint's response without validating it a second time in another thread.

    It avoids `model_dump_json`, which would leave the response text in memory without ever overwriting it.
    """

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        super().__init__(path, endpoint if inspect.iscoroutinefunction(endpoint) else _answered(endpoint), **options)

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        resolve = super().get_route_handler()
        if self.name != contract.CREATE.name:
            return resolve

        async def handle(request: Request) -> Response:
            arguments = await _ordinary(request)
            return await (create_deletion_request(**arguments) if arguments else resolve(request))

        return handle


async def _ordinary(request: Request) -> dict[str, Any] | None:
    """Return the arguments of an ordinary `create_deletion_request` call, or None if the call has a query or is
    invalid. In that case FastAPI resolves the arguments, which takes half of the response time."""
    headers = request.headers
    key = headers.get("idempotency-key")
    is_json = headers.get("content-type", "").lower() == "application/json"
    if request.scope["query_string"] or not is_json or not (key is None or 1 <= len(key) <= MAX_KEY_LENGTH):
        return None
    try:
        body = contract.DeletionRequestIn.model_validate(await request.json())
    except (ValueError, ClientDisconnect):
        return None
    call = Call(installation=request.app.state.installation, caller=request.scope[CALLER])
    return {
        "call": call,
        "intake": request.app.state.intake,
        "body": body,
        "once": await once_of(request, call, key),
        "query": _NO_QUERY,
    }


def _answered(endpoint: Callable[..., BaseModel | JSONResponse]) -> Callable[..., JSONResponse]:
    @functools.wraps(endpoint)
    def answered(**arguments: Any) -> JSONResponse:
        answer = endpoint(**arguments)
        return (
            answer if isinstance(answer, JSONResponse) else JSONResponse(answer.model_dump(mode="json", by_alias=True))
        )

    return answered


router = APIRouter(route_class=PlainRoute)


_NO_QUERY = contract.CreateDeletionRequestQuery()


async def _intake(request: Request) -> Intake:
    intake: Intake = request.app.state.intake
    return intake


TheIntake = Annotated[Intake, Depends(_intake)]


@gateway.serves(router, contract.CREATE)
async def create_deletion_request(
    call: Call,
    intake: TheIntake,
    body: contract.DeletionRequestIn,
    once: idempotency.Once,
    query: contract.CreateDeletionRequestQuery,
) -> JSONResponse:
    if query.strict:
        call.caller.require(sets.Scope.ADMIN)
    statement = None
    if body.identity_statement is not None:
        statement = await run_in_threadpool(checked_statement, call, body, body.identity_statement)
    draft = functools.partial(asked, call, body, statement=statement, strict=query.strict)
    return respond(await intake.submit(once, await run_in_threadpool(draft) if body.kind else draft()))


def asked(
    call: Call,
    body: contract.DeletionRequestIn,
    *,
    statement: admission.IdentityStatement | problems.IdentityStatementInvalid | None = None,
    source: str | None = None,
    strict: bool = False,
) -> deletion.RequestDraft:
    """Return a draft of the request in `body`. Raises `InputInvalid`, for example for a refused callback URL."""
    if body.callback_url is not None:
        admission.check_callback_url(body.callback_url, call.installation.settings.webhook_networks())
    subject, aliases = subject_ref(call, body), aliases_of(call, body)
    return deletion.RequestDraft(
        by=call.caller.actor,
        policy=call.caller.policy,
        maker=call.caller.maker,
        own_only=call.caller.own_requests_only,
        discreet=call.caller.discreet,
        subject_ref=subject,
        kind=body.kind,
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
        other_cases=call.in_other_cases(*filter(None, [body.subject_id, *body.aliases])) if strict else (),
    )


@gateway.serves(router, contract.LIST)
def list_deletion_requests(
    call: Call, query: contract.DeletionRequestsQuery
) -> fields.PageOut[contract.DeletionRequestOut]:
    search = audited_search(call, query)
    with call.reading() as session:
        view = view_of(session, call)
        page = search_repository.requests(
            session, search, view=view, order=query.order, limit=query.limit, cursor=query.cursor
        )
        models = {} if view.discreet else repository.by_request(session, RequestModel, [r.id for r in page.items])
        names, horizon = names_of_assignees(session, call, page.items), horizon_of(call)
    items = [
        to_response(request, models.get(request.id, ()), view=view, horizon=horizon, names=names)
        for request in page.items
    ]
    return fields.PageOut(items=items, next_cursor=page.next_cursor)


@gateway.serves(router, contract.GET)
def get_deletion_request(call: Call, intake: TheIntake, request_id: str) -> contract.DeletionRequestOut:
    with call.reading() as session:
        with_models = None if call.caller.discreet else repository.request_with_models(session, request_id)
        request, models = with_models or (deletion.get(session, request_id), None)
        return to_response_of(session, call, intake, request, models)


@gateway.serves(router, contract.EVENTS)
def list_events(call: Call, request_id: str, query: contract.EventsQuery) -> fields.PageOut[contract.RequestEventOut]:
    with call.reading() as session:
        request = deletion.get(session, request_id)
        events = view_of(session, call).events(request, repository.events(session, request_id=request_id))
        page = page_of(events, limit=query.limit, cursor=query.cursor)
        names = {} if call.caller.own_requests_only else access.names_of(session, {event.actor for event in page.items})
    items = [
        contract.RequestEventOut.of(event, detail=sentences.of_event(event), actor_name=names.get(event.actor))
        for event in page.items
    ]
    return fields.PageOut(items=items, next_cursor=page.next_cursor)


@gateway.serves(router, contract.CANCEL)
def cancel_deletion_request(call: Call, intake: TheIntake, request_id: str) -> contract.DeletionRequestOut:
    def cancel(session: Session, request: DeletionRequest) -> None:
        deletion.cancel(session, call.own(request), discreet=call.caller.discreet)

    return _change(call, intake, request_id, cancel)


@gateway.serves(router, contract.APPROVE)
def approve_deletion_request(call: Call, intake: TheIntake, request_id: str) -> contract.DeletionRequestOut:
    out = _change(call, intake, request_id, functools.partial(deletion.approve, policy=call.caller.policy))
    call.installation.notifier.wake()
    return out


@gateway.serves(router, contract.REJECT)
def reject_deletion_request(
    call: Call, intake: TheIntake, request_id: str, body: contract.RejectionIn
) -> contract.DeletionRequestOut:
    reject = functools.partial(deletion.reject, ground=body.ground, explanation=body.explanation)
    return _change(call, intake, request_id, reject)


@gateway.serves(router, contract.EXTEND)
def extend_deletion_request(
    call: Call, intake: TheIntake, request_id: str, body: contract.ExtensionIn
) -> contract.DeletionRequestOut:
    extend = functools.partial(deletion.extend, policy=call.caller.policy, reason=body.reason)
    return _change(call, intake, request_id, extend)


@gateway.serves(router, contract.PAUSE)
def pause_deletion_request(
    call: Call, intake: TheIntake, request_id: str, body: contract.PauseIn
) -> contract.DeletionRequestOut:
    return _change(call, intake, request_id, functools.partial(deletion.pause, policy=call.caller.policy))


@gateway.serves(router, contract.RESUME)
def resume_deletion_request(call: Call, intake: TheIntake, request_id: str) -> contract.DeletionRequestOut:
    return _change(call, intake, request_id, deletion.resume)


def _change(
    call: Call, intake: Intake, request_id: str, change: Callable[[Session, DeletionRequest], object]
) -> contract.DeletionRequestOut:
    """Apply `change` to a deletion request, and return the request as the caller may see it."""
    with call.writing() as session:
        request = deletion.get(session, request_id)
        change(session, request)
        return to_response_of(session, call, intake, request)


@gateway.serves(router, contract.CERTIFICATES)
def get_certificates(call: Call, request_id: str) -> CertificatesOut:
    with call.reading() as session:
        request = deletion.get(session, request_id)
        stored = accounting_repository.certificates_of(session, request_id=request_id)
        rule = subjects.IN_WORDS[call.caller.policy.subject_rule]
        in_doubt = request.resolution is not None or completion.is_in_doubt(request, rows_repository.doubtful(session))
        absence = None if in_doubt else certificates.of(session, call.installation.keys, request, identity_rule=rule)
        damaged = certificates.damaged(call.installation.keys, stored)
        joint = None if damaged else accounting.joint_of(session, request_id=request_id)
        return CertificatesOut(
            request_id=request_id,
            certificates=[certificate_to_response(whole) for whole in stored if whole.id not in damaged],
            damaged=damaged,
            joint=joint_to_response(joint),
            nothing_held=AbsenceOut(jws=absence.jws, statement=absence.statement) if absence else None,
        )


def sought_by(call: Call, query: contract.RequestFilter) -> search_repository.Sought:
    """Return the search described by a query. Raises `InputInvalid`; `ScopeMissing` for filters by assignee or model.

    Filtering by model would otherwise let a caller find out which people have rows.
    """
    if query.assignee is not None:
        call.caller.require(sets.Scope.REQUESTS_REVIEW)
    if query.model_id is not None:
        call.caller.require(sets.Scope.ACCOUNTING_READ)
    filters = query.model_dump(include={field.name for field in dataclasses.fields(search_repository.Sought)})
    return search_repository.Sought(**filters, subject_ref=_subject_sought(call, query), horizon=horizon_of(call))


def audited_search(call: Call, query: contract.RequestFilter) -> search_repository.Sought:
    """Return the search described by a query; a search by subject is first written to the audit log."""
    search = sought_by(call, query)
    if search.subject_ref is not None:
        with call.writing() as session:
            audit.record(session, "deletion_requests.looked_up", call.caller.tenant_id)
    return search


def _subject_sought(call: Call, query: contract.RequestFilter) -> str | None:
    """Return the pseudonym of the subject in a query; None if no subject is named. Raises `InputInvalid`."""
    if query.subject_id is not None and query.subject_sha256 is not None:
        fault = problems.FieldError("subject_sha256", "expected either subject_id or subject_sha256")
        raise problems.InputInvalid("Name the subject once.", [fault])
    if query.subject_id or query.subject_sha256:
        return subject_ref_of(call, query.subject_id, query.subject_sha256, query.kind)
    if query.kind:
        raise problems.InputInvalid(
            "Name the subject too.", [problems.FieldError("subject_id", "expected an identifier of the kind")]
        )
    return None


def subject_ref(call: Call, body: fields.SubjectIn) -> str:
    """Return the pseudonym of the subject in a body. Raises `InputInvalid`."""
    return subject_ref_of(call, body.subject_id, body.subject_sha256, body.kind)


def aliases_of(call: Call, body: contract.DeletionRequestIn) -> list[str]:
    """Return the pseudonyms of the aliases in a body, without duplicates. Raises `InputInvalid`."""
    refs = (call.subject_ref(alias, path=f"aliases.{place}") for place, alias in enumerate(body.aliases))
    return list(dict.fromkeys(refs))


def subject_ref_of(call: Call, subject_id: str | None, subject_sha256: str | None, kind: str | None = None) -> str:
    """Return the pseudonym of an id of `kind` (None: a subject id), or of its SHA-256. Raises `InputInvalid`."""
    if kind:
        return call.references(kind)([subject_id or f"sha256:{subject_sha256}"])[0]
    if subject_id is not None:
        return call.subject_ref(subject_id)
    return call.installation.keys.subject_ref_of_hash(call.caller.tenant_id, bytes.fromhex(subject_sha256 or ""))


def checked_statement(
    call: Call, body: fields.SubjectIn, token: str
) -> admission.IdentityStatement | problems.IdentityStatementInvalid:
    """Return the verified identity statement, or the problem to be raised unless the call is a repeat."""
    sha256 = (
        admission.sha256_of(call.normal(body.subject_id))
        if body.subject_id
        else bytes.fromhex(body.subject_sha256 or "")
    )
    rule = call.caller.policy.subject_rule
    try:
        with call.reading() as session:
            return admission.judge().check(session, call.installation.keys, token, subject_sha256=sha256, rule=rule)
    except problems.IdentityStatementInvalid as refusal:
        return refusal


def to_response_of(
    session: Session, call: Call, intake: Intake, request: DeletionRequest, models: Sequence[RequestModel] | None = None
) -> contract.DeletionRequestOut:
    """Return a request as the caller may see it. Without `models`, the request's models are looked up."""
    view = view_of(session, call)
    if view.discreet:
        return to_response(request, (), view=view, horizon=horizon_of(call))
    if models is None:
        models = repository.request_models(session, request_id=request.id)
    estimate = intake.estimates.of(session, request, models)
    names = names_of_assignees(session, call, [request])
    return to_response(request, models, estimate, view=view, horizon=horizon_of(call), names=names)


def names_of_assignees(session: Session, call: Call, requests: Iterable[DeletionRequest]) -> dict[str, str] | None:
    """Map the requests' assignees to their names, or return None if the caller may not see assignees."""
    if not call.caller.has(sets.Scope.REQUESTS_REVIEW):
        return None
    ids = {request.assignee for request in requests if request.assignee is not None}
    return access.names_of(session, ids) if ids else {}


def view_of(session: Session, call: Call) -> views.View:
    return views.View(discreet=call.caller.discreet, at=now(session))


def horizon_of(call: Call) -> datetime.timedelta:
    return datetime.timedelta(days=call.installation.settings.risk_days)
