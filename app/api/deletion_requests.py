"""`/deletion-requests`: ask for a person to be forgotten, and watch it happen."""

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import JSONResponse
from sqlalchemy.orm import Session

from app.access.idempotency import Once
from app.access.service import Caller, Scope
from app.accounting import repository as accounting_repository
from app.api.calls import At, Cursor, Limit, caller_with, once_with, respond
from app.api.certificates import shown as certificate_shown
from app.api.intake import Intake, shown
from app.api.problems import responses
from app.api.schemas import CertificatesOut, DeletionRequestIn, DeletionRequestOut, PageOut, RequestEventOut
from app.db.tables import DeletionRequest
from app.deletion import repository
from app.deletion import service as deletion
from app.deletion.service import Asked
from app.deletion.status import Status
from app.errors import DatasetUnknown, IdempotencyConflict, RequestUnknown, SubjectUnknown, TransitionForbidden

router = APIRouter(prefix="/deletion-requests", tags=["Deletion requests"])


async def _intake(request: Request) -> Intake:
    intake: Intake = request.app.state.intake
    return intake


@router.post(
    "",
    status_code=202,
    response_model=DeletionRequestOut,
    responses=responses(DatasetUnknown, IdempotencyConflict, SubjectUnknown),
)
async def create_deletion_request(
    at: At,
    intake: Annotated[Intake, Depends(_intake)],
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
    asked = Asked(
        subject_ref=at.keys.subject_ref(body.subject_id),
        dataset_ids=body.dataset_ids,
        regulation=body.regulation,
        ground=body.ground,
        submitted_at=body.submitted_at,
        external_id=body.external_id,
        metadata=dict(body.metadata),
        strict=strict,
    )
    return respond(await intake.submit(once, asked))


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
        owed = repository.models_of_requests(session, request_ids=[request.id for request in page.items])
    items = [shown(request, owed.get(request.id, ())) for request in page.items]
    return PageOut(items=items, next_cursor=page.next_cursor)


@router.get("/{request_id}", dependencies=[caller_with(Scope.REQUESTS_READ)], responses=responses(RequestUnknown))
def get_deletion_request(at: At, intake: Annotated[Intake, Depends(_intake)], request_id: str) -> DeletionRequestOut:
    with at.database.reading() as session:
        return _shown(session, intake, deletion.get(session, request_id))


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
def cancel_deletion_request(at: At, intake: Annotated[Intake, Depends(_intake)], request_id: str) -> DeletionRequestOut:
    """Withdraw a request; 409 once a worker has taken it, because erasing has no way back."""
    with at.database.writing() as session:
        request = deletion.get(session, request_id)
        deletion.cancel(session, request)
        return _shown(session, intake, request)


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


def _shown(session: Session, intake: Intake, request: DeletionRequest) -> DeletionRequestOut:
    owed = repository.request_models(session, request_id=request.id)
    return shown(request, owed, intake.estimates.of(session, request, owed))
