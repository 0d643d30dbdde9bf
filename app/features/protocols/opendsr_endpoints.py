"""Endpoints under `/opendsr/v2`: OpenDSR 2.0, for erasure by controllers. docs/protocols.md has the mapping."""

from collections.abc import Collection, Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import JSONResponse
from sqlalchemy.orm import Session

from app.api import calls, deletion_requests
from app.db import now, tables
from app.deletion import service as deletion
from app.features.protocols import dialects, opendsr, service
from app.features.webhooks import receiver
from lethe.contract import problems, sets


def _refusal(status: int, problem: dict[str, Any]) -> Response:
    """Return the specification's error object, which quotes no part of the request."""
    domain = "Validation" if status == 400 else "Processing"
    faults = [f"{fault['path']}: {fault['message']}" for fault in problem.get("errors", ())]
    error = {
        "code": status,
        "message": problem["detail"],
        "errors": [
            {"domain": domain, "reason": problem["code"], "message": message}
            for message in faults or [problem["detail"]]
        ],
    }
    return JSONResponse({"error": error}, status, headers=_PRIVATE)


_PRIVATE = {"Cache-Control": "no-store", "Pragma": "no-cache"}

router = APIRouter(tags=["OpenDSR"], route_class=dialects.speaking(_refusal))


def _signer(installation: calls.At) -> opendsr.Signer:
    return opendsr.signer(installation.settings)


Signing = Annotated[opendsr.Signer, Depends(_signer)]


@router.get("/discovery", response_class=Response)
def discover(
    request: Request, call: Annotated[calls.Call, calls.call_with(sets.Scope.REQUESTS_READ)], signer: Signing
) -> Response:
    """Describe what this processor supports for the key's tenant, and where its certificate can be fetched."""
    url = request.url_for("get_processor_certificate")
    # Proxies may address this server by another name.
    if call.installation.settings.opendsr_domain is not None:
        url = url.replace(scheme="https", netloc=signer.domain)
    body = opendsr.discovery_body(identity_types=call.caller.policy.opendsr_identities, certificate_url=str(url))
    return _signed(signer, 200, body)


@router.get("/certificate.pem", response_class=Response)
def get_processor_certificate(signer: Signing) -> Response:
    """Return the X.509 certificate that verifies signed responses and callbacks (public endpoint)."""
    return Response(signer.certificate, media_type="application/x-pem-file")


@router.post("/requests/", status_code=201, response_class=Response)
@router.post("/requests", status_code=201, response_class=Response)
def create_subject_request(
    call: Annotated[calls.Call, calls.call_with(sets.Scope.REQUESTS_WRITE)],
    signer: Signing,
    body: Annotated[bytes, Depends(dialects.small_body)],
) -> Response:
    """Submit an erasure request. A repeated call gets the same response; another request with its id gets 409."""
    subject_request = opendsr.read(body, identity_types=call.caller.policy.opendsr_identities, domain=signer.domain)
    for place, url in enumerate(subject_request.status_callback_urls):
        receiver.check_url(url, call.installation.settings.webhook_networks(), path=f"status_callback_urls.{place}")
    rule = call.caller.policy.subject_rule
    email = dialects.by_kind(call, opendsr.EMAIL)
    kinds = opendsr.subject_kinds(
        subject_request,
        keys=call.installation.keys,
        tenant_id=call.caller.tenant_id,
        rule=rule,
        of_email=call.references(email) if email else None,
    )
    with call.writing() as session:
        requests = service.requests(session, source=opendsr.SOURCE, external_id=subject_request.subject_request_id)
        if not requests:
            requests = dialects.submit(
                session,
                call,
                kinds,
                source=opendsr.SOURCE,
                external_id=subject_request.subject_request_id,
                regulation=subject_request.regulation,
                callback_urls=subject_request.status_callback_urls,
                own_only=call.caller.own_requests_only,
                discreet=call.caller.discreet,
                submitted_at=subject_request.submitted_time,
                metadata={},
            )
        elif not _is_own(call, requests) or not _is_same(requests, subject_request, kinds):
            raise problems.IdempotencyConflict("This subject_request_id came before with another request.")
        standing = _standing(session, call, requests)
    call.installation.notifier.wake()
    return _signed(signer, 201, opendsr.receipt_body(standing, received=body))


@router.get("/requests/{subject_request_id}", response_class=Response)
def get_subject_request(
    call: Annotated[calls.Call, calls.call_with(sets.Scope.REQUESTS_READ)], signer: Signing, subject_request_id: str
) -> Response:
    with call.reading() as session:
        standing = _standing(session, call, _found(session, subject_request_id))
    return _signed(signer, 200, opendsr.status_body(standing))


@router.delete("/requests/{subject_request_id}", status_code=202, response_class=Response)
def cancel_subject_request(
    call: Annotated[calls.Call, calls.call_with(sets.Scope.REQUESTS_WRITE)], signer: Signing, subject_request_id: str
) -> Response:
    """Withdraw a pending request; return 409 if it is no longer pending."""
    with call.writing() as session:
        requests = [call.own(request) for request in _found(session, subject_request_id)]
        if _standing(session, call, requests).status not in (
            opendsr.OpenDsrStatus.PENDING,
            opendsr.OpenDsrStatus.CANCELLED,
        ):
            raise problems.TransitionForbidden("Only a request that is pending can be cancelled.")
        for request in requests:
            if request.status not in (sets.RequestStatus.REJECTED, sets.RequestStatus.CANCELLED):
                deletion.cancel(session, request, discreet=call.caller.discreet)
        standing, at = _standing(session, call, requests), now(session)
    return _signed(signer, 202, opendsr.cancellation_body(standing, received_at=at))


def _found(session: Session, subject_request_id: str) -> list[tables.DeletionRequest]:
    requests = service.requests(session, source=opendsr.SOURCE, external_id=subject_request_id)
    if not requests:
        raise problems.RequestUnknown("There is no request with this subject_request_id.")
    return requests


def _is_own(call: calls.Call, requests: Sequence[tables.DeletionRequest]) -> bool:
    return not call.caller.own_requests_only or {request.maker for request in requests} == {call.caller.maker}


def _is_same(
    requests: Sequence[tables.DeletionRequest], subject_request: opendsr.SubjectRequest, refs: Collection[str]
) -> bool:
    first = requests[0]
    return {request.subject_ref for request in requests} == set(refs) and (
        (first.regulation, first.submitted_at, first.particulars.callback_urls)
        == (subject_request.regulation, subject_request.submitted_time, subject_request.status_callback_urls)
    )


def _standing(
    session: Session, call: calls.Call, requests: Sequence[tables.DeletionRequest]
) -> opendsr.SubjectRequestState:
    """Return the subject request's state as visible to the caller."""
    view = deletion_requests.view_of(session, call)
    return opendsr.standing(requests, statuses=[view.status(request) for request in requests])


def _signed(signer: opendsr.Signer, status: int, body: bytes) -> Response:
    return Response(body, status, headers=signer.headers(body) | _PRIVATE, media_type="application/json")
