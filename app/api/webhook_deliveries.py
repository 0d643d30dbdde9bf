"""`/webhook-deliveries`: what receivers were told, and once more; `/webhook-secret`: what it is signed with."""

import datetime
from enum import StrEnum
from typing import Annotated

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, Field
from sqlalchemy.orm import Session

from app.access import tenants
from app.access.service import Caller
from app.api.calls import Call, Cursor, Limit, call_with
from app.api.problems import responses
from app.api.schemas import Body, PageOut, Text
from app.db import now
from app.db.tables import Tenant, WebhookDelivery
from app.webhooks import repository, secret, service
from lethe.contract.problems import DeliveryUnknown, SecretNotPresent
from lethe.contract.sets import Scope

router = APIRouter(tags=["Webhooks"])

Reading = Annotated[Call, call_with(Scope.REQUESTS_READ)]
Deciding = Annotated[Call, call_with(Scope.ADMIN)]


class DeliveryStatus(StrEnum):
    PENDING = "pending"
    DELIVERED = "delivered"
    GONE = "gone"
    DEAD = "dead"


class DeliveryOut(BaseModel):
    id: str = Field(description="The header webhook-id of every attempt.")
    request_id: str
    event: str
    status: DeliveryStatus = Field(description="gone: the receiver answered 410; dead: it was tried for three days.")
    host: str
    url: str | None = Field(description="For admins only: it may hold a secret.")
    attempts: int
    error: str | None = Field(description="Of the last attempt: a stable code.")
    next_attempt_at: datetime.datetime | None
    created_at: datetime.datetime
    ended_at: datetime.datetime | None


class SentOut(DeliveryOut):
    body: str | None = Field(description="What is sent, to the letter; for admins only.")


class SecretOut(BaseModel):
    secret: str = Field(description="whsec_ and the base64 of 32 bytes.")
    generation: int
    rotated_at: datetime.datetime | None
    previous_until: datetime.datetime | None = Field(description="Until then the secret before signs too.")


class SecretRotationIn(Body):
    generation: int = Field(ge=1, le=1_000_000_000, description="Of the secret that is to be replaced.")


@router.get("/webhook-deliveries", responses=responses())
def list_webhook_deliveries(
    call: Reading,
    status: DeliveryStatus | None = None,
    request_id: Annotated[Text | None, Query(max_length=100)] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> PageOut[DeliveryOut]:
    """Newest first. Callers who may not learn whether anything is held see those of such callers' requests."""
    with call.reading() as session:
        page = repository.deliveries(
            session,
            status=status,
            request_id=request_id,
            of_discreet_until=now(session) if call.caller.discreet else None,
            limit=limit,
            cursor=cursor,
        )
    return PageOut(items=[_shown(row, call.caller) for row in page.items], next_cursor=page.next_cursor)


@router.get("/webhook-deliveries/{delivery_id}", responses=responses(DeliveryUnknown))
def get_webhook_delivery(call: Reading, delivery_id: str) -> SentOut:
    """How a delivery stands, and what is sent."""
    with call.reading() as session:
        row = _found(session, call.caller, delivery_id)
    return _sent(row, call.caller)


@router.post("/webhook-deliveries/{delivery_id}/replay", status_code=202, responses=responses(DeliveryUnknown))
def replay_webhook_delivery(call: Deciding, delivery_id: str, response: Response) -> SentOut:
    """Send again, under the same id, what was delivered or given up. One that is still to be sent is left alone."""
    with call.writing() as session:
        row = service.get(session, delivery_id)
        service.replay(session, row)
    response.headers["Location"] = f"/v1/webhook-deliveries/{row.id}"
    return _sent(row, call.caller)


@router.get("/webhook-secret", responses=responses())
def get_webhook_secret(call: Deciding) -> SecretOut:
    """What receivers verify with."""
    with call.reading() as session:
        tenant = tenants.get(session, call.caller.tenant_id)
    return _secret(call, tenant)


@router.post("/webhook-secret/rotate", responses=responses(SecretNotPresent))
def rotate_webhook_secret(call: Deciding, body: SecretRotationIn) -> SecretOut:
    """Replace the present secret; for a day both sign. Repeated with the same `generation`, it changes nothing more."""
    with call.writing() as session:
        tenant = secret.rotate(session, generation=body.generation)
    return _secret(call, tenant)


def _found(session: Session, caller: Caller, delivery_id: str) -> WebhookDelivery:
    """Raises `DeliveryUnknown`, also for what the caller may not know of."""
    row = service.get(session, delivery_id)
    if caller.discreet and not repository.is_seen(session, row, at=now(session)):
        raise DeliveryUnknown(f"There is no delivery {delivery_id!r}.")
    return row


def _shown(row: WebhookDelivery, caller: Caller) -> DeliveryOut:
    return DeliveryOut(
        id=row.id,
        request_id=row.request_id,
        event=row.event,
        status=DeliveryStatus(row.status),
        host=row.host,
        url=row.letter.url if caller.has(Scope.ADMIN) else None,
        attempts=row.attempts,
        error=row.error,
        next_attempt_at=row.next_attempt_at if row.status == DeliveryStatus.PENDING else None,
        created_at=row.created_at,
        ended_at=row.ended_at,
    )


def _sent(row: WebhookDelivery, caller: Caller) -> SentOut:
    return SentOut(**_shown(row, caller).model_dump(), body=row.letter.body if caller.has(Scope.ADMIN) else None)


def _secret(call: Call, tenant: Tenant) -> SecretOut:
    rotated_at = tenant.webhook_rotated_at
    return SecretOut(
        secret=secret.present(call.installation.keys, tenant),
        generation=tenant.webhook_generation,
        rotated_at=rotated_at,
        previous_until=rotated_at and rotated_at + secret.OVERLAP,
    )
