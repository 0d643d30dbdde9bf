"""`/deletion-requests`: ask for a person to be forgotten, and watch it happen."""

from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import JSONResponse
from sqlalchemy.orm import Session

from app.access import idempotency
from app.access.idempotency import Answer, Once
from app.access.service import Caller, Scope
from app.accounting import repository as accounting_repository
from app.api.calls import At, Cursor, Limit, caller_with, once_with, respond
from app.api.certificates import shown as certificate_shown
from app.api.problems import responses
from app.api.schemas import (
    CertificatesOut,
    DeletionRequestIn,
    DeletionRequestOut,
    EstimateModelOut,
    EstimateOut,
    PageOut,
    RequestEventOut,
    RequestModelOut,
)
from app.db.tables import DeletionRequest
from app.deletion import repository
from app.deletion import service as deletion
from app.deletion.status import OPEN, Status
from app.errors import DatasetUnknown, IdempotencyConflict, RequestUnknown, SubjectUnknown, TransitionForbidden
from app.privacy.errors import PrivacyError
from app.unlearning import service as unlearning

router = APIRouter(prefix="/deletion-requests", tags=["Deletion requests"])


@router.post(
    "",
    status_code=202,
    response_model=DeletionRequestOut,
    responses=responses(DatasetUnknown, IdempotencyConflict, SubjectUnknown),
)
def create_deletion_request(
    at: At,
    body: DeletionRequestIn,
    once: Annotated[Once, once_with(Scope.REQUESTS_WRITE)],
    caller: Annotated[Caller, caller_with(Scope.REQUESTS_WRITE)],
    strict: Annotated[
        bool, Query(description="404 if nothing is held about the subject; needs the scope admin")
    ] = False,
) -> JSONResponse:
    """Ask for a person to be forgotten by every dataset and model that holds them."""
    if strict:
        caller.require(Scope.ADMIN)
    with at.database.writing() as session:
        answer = idempotency.replay(session, once)
        if answer is None:
            request = deletion.submit(
                session,
                subject_ref=at.keys.subject_ref(body.subject_id),
                dataset_ids=body.dataset_ids,
                regulation=body.regulation,
                ground=body.ground,
                submitted_at=body.submitted_at,
                external_id=body.external_id,
                metadata=dict(body.metadata),
            )
            if strict and request.outcome == "nothing_held":
                raise SubjectUnknown("Nothing is held about this subject; no request was made.")
            shown_body = shown(session, request).model_dump(mode="json", by_alias=True)
            location = f"/v1/deletion-requests/{request.id}"
            answer = idempotency.remember(session, once, Answer(status=202, location=location, body=shown_body))
    at.bell.wake()
    return respond(answer)


@router.get("", dependencies=[caller_with(Scope.REQUESTS_READ)], responses=responses())
def list_deletion_requests(
    at: At,
    status: Status | None = None,
    subject_id: Annotated[str | None, Query(min_length=1, max_length=500)] = None,
    model_id: str | None = None,
    external_id: str | None = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> PageOut[DeletionRequestOut]:
    with at.database.reading() as session:
        page = repository.requests(
            session,
            status=status,
            subject_ref=at.keys.subject_ref(subject_id) if subject_id else None,
            model_id=model_id,
            external_id=external_id,
            limit=limit,
            cursor=cursor,
        )
        return PageOut(
            items=[shown(session, request, listed=True) for request in page.items], next_cursor=page.next_cursor
        )


@router.get("/{request_id}", dependencies=[caller_with(Scope.REQUESTS_READ)], responses=responses(RequestUnknown))
def get_deletion_request(at: At, request_id: str) -> DeletionRequestOut:
    with at.database.reading() as session:
        return shown(session, deletion.get(session, request_id))


@router.get(
    "/{request_id}/events", dependencies=[caller_with(Scope.REQUESTS_READ)], responses=responses(RequestUnknown)
)
def list_events(at: At, request_id: str) -> PageOut[RequestEventOut]:
    """Every change of the request, oldest first; there are never so many that they need another page."""
    with at.database.reading() as session:
        deletion.get(session, request_id)
        events = repository.events(session, request_id=request_id)
    items = [RequestEventOut(at=event.at, status=event.status, detail=event.detail) for event in events]
    return PageOut(items=items, next_cursor=None)


@router.post(
    "/{request_id}/cancel",
    dependencies=[caller_with(Scope.REQUESTS_WRITE)],
    responses=responses(RequestUnknown, TransitionForbidden),
)
def cancel_deletion_request(at: At, request_id: str) -> DeletionRequestOut:
    """Withdraw a request; 409 once a worker has taken it, because erasing has no way back."""
    with at.database.writing() as session:
        request = deletion.get(session, request_id)
        deletion.cancel(session, request)
        return shown(session, request)


@router.get(
    "/{request_id}/certificate",
    dependencies=[caller_with(Scope.REQUESTS_READ)],
    responses=responses(RequestUnknown),
)
def get_certificates(at: At, request_id: str) -> CertificatesOut:
    """The certificate of every model that has forgotten so far."""
    with at.database.reading() as session:
        deletion.get(session, request_id)
        found = accounting_repository.certificates_of(session, request_id=request_id)
        return CertificatesOut(request_id=request_id, certificates=[certificate_shown(c) for c in found])


def shown(session: Session, request: DeletionRequest, *, listed: bool = False) -> DeletionRequestOut:
    """A request; without its estimate if it is one of many."""
    owed = repository.request_models(session, request_id=request.id)
    return DeletionRequestOut(
        id=request.id,
        status=request.status,
        outcome=request.outcome,
        subject_ref=request.subject_ref,
        regulation=request.regulation,
        ground=request.ground,
        external_id=request.external_id,
        metadata=request.request_metadata,
        submitted_at=request.submitted_at,
        due_at=request.due_at,
        extended_due_at=request.extended_due_at,
        created_at=request.created_at,
        completed_at=request.completed_at,
        estimate=_estimate(session, request) if request.status in OPEN and not listed else None,
        models=[
            RequestModelOut(
                model_id=m.model_id,
                status=m.status,
                run_id=m.run_id,
                version=m.version,
                certificate_id=m.certificate_id,
            )
            for m in owed
        ],
    )


def _estimate(session: Session, request: DeletionRequest) -> EstimateOut | None:
    try:
        plans = unlearning.estimate(session, request_id=request.id)
    except PrivacyError:  # the worker will say so; a request is never refused for it
        return None
    models = [EstimateModelOut(model_id=model_id, kind=plan.kind, steps=plan.steps) for model_id, plan in plans]
    return EstimateOut(steps=sum(model.steps for model in models), models=models)
