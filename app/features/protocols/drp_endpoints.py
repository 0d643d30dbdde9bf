"""Endpoints under `/drp/v1`: Data Rights Protocol 1.0, for people's agents. docs/protocols.md has the mapping."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse
from sqlalchemy.orm import Session

from app.api.calls import At, Call, call_with
from app.db import Actor, now
from app.db.tables import DeletionRequest
from app.deletion import service as deletion, views
from app.features.protocols import dialects, drp, parsing, service, tables
from app.features.webhooks import receiver
from app.installations import Installation
from lethe.contract import problems, sets
from lethe.features.protocols.contract import MessageEarly, MessageRefused


def _refusal(status: int, problem: dict[str, Any]) -> Response:
    """Return the protocol's error object; `fatal` means that resending the message cannot succeed."""
    fatal = status in _FATAL and problem["code"] != MessageEarly.code
    faults = [f" {fault['path']}: {fault['message']}." for fault in problem.get("errors", ())]
    body: dict[str, Any] = {"code": str(status), "message": problem["detail"] + "".join(faults)}
    return JSONResponse(body | ({"fatal": True} if fatal else {}), status)


_FATAL = (400, 403, 409, 413)

router = APIRouter(tags=["Data Rights Protocol"], route_class=dialects.speaking(_refusal))

Message = Annotated[bytes, Depends(dialects.small_body)]
AgentCall = Annotated[Call, call_with(sets.Scope.AGENT)]


@router.post("/data-rights-request/", response_class=JSONResponse)
@router.post("/data-rights-request", response_class=JSONResponse)
def exercise(call: AgentCall, message: Message) -> Response:
    """Submit a deletion request for a person. Repeated calls get the same response."""
    with call.reading() as session:
        agent, at = _agent(session, call), now(session)
    body = parsing.parsed(drp.Exercise, drp.open_message(message, verify_key=agent.verify_key))
    policy = call.caller.policy
    drp.check(body, agent_id=agent.agent_id, business_id=policy.drp_business_id, at=at)
    person = drp.subject(body, claim=policy.drp_claim)
    kind = dialects.by_kind(call, person.kind) if person.kind else None
    ref = call.references(kind)([person.subject_id])[0] if kind else call.subject_ref(person.subject_id)
    if body.status_callback is not None:
        receiver.check_url(body.status_callback, call.installation.settings.webhook_networks(), path="status_callback")
    name = body.agent_request_id or "message:" + call.installation.keys.fingerprint(b"drp", message.strip())
    with call.writing() as session:
        before = [
            request
            for request in service.requests(session, source=drp.SOURCE, external_id=name)
            if request.particulars.metadata["agent_id"] == agent.agent_id
        ]
        if before:
            [request] = before
            if not _is_same(request, body, ref):
                raise problems.IdempotencyConflict("This agent-request-id came before with another request.")
        else:
            [request] = dialects.submit(
                session,
                call,
                {ref: kind},
                source=drp.SOURCE,
                external_id=name,
                regulation=_regulation(body),
                callback_urls=_callback_urls(body),
                discreet=True,
                submitted_at=None,
                metadata=drp.retained_metadata(body, person),
                identity_verified=person.verified,
            )
        status = _status(session, call, request)
    call.installation.notifier.wake()
    return JSONResponse(status)


@router.get("/data-rights-request/{request_id}", response_class=JSONResponse)
def get_status(call: AgentCall, request_id: str) -> Response:
    with call.reading() as session:
        status = _status(session, call, _managed(session, _agent(session, call), request_id))
    return JSONResponse(status)


@router.delete("/data-rights-request/{request_id}", response_class=JSONResponse)
def revoke(call: AgentCall, request_id: str, message: Message) -> Response:
    """Withdraw a request; return 409 once the erasure of the person's rows has begun."""
    with call.writing() as session:
        agent = _agent(session, call)
        request = _managed(session, agent, request_id)
        parsing.parsed(drp.Revocation, drp.open_message(message, verify_key=agent.verify_key))
        if request.status != sets.RequestStatus.CANCELLED:
            deletion.cancel(session, request, discreet=True)
        status = _status(session, call, request)
    return JSONResponse(status)


@router.post("/agent/{agent_id}", response_class=JSONResponse)
async def set_up_key(request: Request, installation: At, agent_id: str, message: Message) -> Response:
    """Return a token for the agent that signed the message, and revoke its previous token. An invalid message counts as
    a wrong key from the caller's address."""
    rates, address = request.app.state.known.rates, request.client.host if request.client else ""
    rates.admit(address)
    try:
        token = await run_in_threadpool(_set_up, installation, agent_id, message)
    except MessageRefused:
        rates.failed(address)
        # The protocol prescribes no body, so the reason is not disclosed.
        return Response(status_code=403)
    return JSONResponse({"agent-id": agent_id, "token": token}, headers={"Cache-Control": "no-store"})


@router.get("/agent/{agent_id}", response_class=JSONResponse)
def get_agent(call: AgentCall, agent_id: str) -> Response:
    """Return an empty document if the agent's token is valid."""
    with call.reading() as session:
        if _agent(session, call).agent_id != agent_id:
            raise MessageRefused("This is the token of another agent.")
    return JSONResponse({})


def _set_up(installation: Installation, agent_id: str, message: bytes) -> str:
    with installation.database.reading() as session:
        agent = service.addressee(session, agent_id=agent_id, message=message)
    with installation.database.writing(by=Actor(tenant_id=agent.tenant_id, name=agent.id)) as session:
        return service.set_up(session, agent.id, message=message)


def _agent(session: Session, call: Call) -> tables.Agent:
    return service.calling(session, api_key_id=call.caller.id)


def _managed(session: Session, agent: tables.Agent, request_id: str) -> DeletionRequest:
    """Return one of the agent's requests. Raises `MessageRefused` for any other request, whether or not it exists."""
    try:
        request = deletion.get(session, request_id)
        if request.source == drp.SOURCE and request.particulars.metadata.get("agent_id") == agent.agent_id:
            return request
    except problems.RequestUnknown:
        pass
    raise MessageRefused("This agent has made no request with this id.")


def _is_same(request: DeletionRequest, body: drp.Exercise, subject_ref: str) -> bool:
    return (request.subject_ref, request.regulation, request.particulars.callback_urls) == (
        subject_ref,
        _regulation(body),
        _callback_urls(body),
    )


def _regulation(body: drp.Exercise) -> str:
    return "ccpa" if body.regime == "ccpa" else "other"


def _callback_urls(body: drp.Exercise) -> list[str]:
    return [] if body.status_callback is None else [body.status_callback]


def _status(session: Session, call: Call, request: DeletionRequest) -> dict[str, Any]:
    view = views.View(discreet=True, at=now(session))
    verification_url = call.caller.policy.drp_verification_url
    return drp.status_of(request, status=view.status(request), verification_url=verification_url)
