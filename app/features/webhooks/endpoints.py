"""Endpoints `/webhook-deliveries`, to list and resend deliveries, and `/webhook-secret`, for their signing secret."""

from fastapi import APIRouter, Response
from sqlalchemy.orm import Session

from app.access import tenants
from app.access.service import Caller
from app.api import calls, gateway
from app.db import now, tables
from app.features.webhooks import repository, service
from app.features.webhooks.tables import WebhookDelivery
from lethe.contract import fields, sets
from lethe.features.webhooks import contract

router = APIRouter()


@gateway.serves(router, contract.LIST)
def list_webhook_deliveries(
    call: calls.Call, query: contract.WebhookDeliveriesQuery
) -> fields.PageOut[contract.DeliveryOut]:
    with call.reading() as session:
        of_discreet_until = now(session) if call.caller.discreet else None
        page = repository.deliveries(session, of_discreet_until=of_discreet_until, **dict(query))
    return fields.PageOut(items=[_to_response(row, call.caller) for row in page.items], next_cursor=page.next_cursor)


@gateway.serves(router, contract.GET)
def get_webhook_delivery(call: calls.Call, delivery_id: str) -> contract.SentOut:
    with call.reading() as session:
        row = _found(session, call.caller, delivery_id)
    return _sent(row, call.caller)


@gateway.serves(router, contract.REPLAY)
def replay_webhook_delivery(call: calls.Call, delivery_id: str, response: Response) -> contract.SentOut:
    with call.writing() as session:
        row = service.get(session, delivery_id)
        service.replay(session, row)
    response.headers["Location"] = f"/v1/webhook-deliveries/{row.id}"
    return _sent(row, call.caller)


@gateway.serves(router, contract.REPLAY_ALL)
def replay_webhook_deliveries(call: calls.Call, body: contract.RedeliveriesIn) -> contract.RedeliveriesOut:
    with call.writing() as session:
        replayed, more = service.replay_all(session, **dict(body))
    return contract.RedeliveriesOut(replayed=replayed, more=more)


@gateway.serves(router, contract.SECRET)
def get_webhook_secret(call: calls.Call) -> contract.SecretOut:
    with call.reading() as session:
        tenant = tenants.get(session, call.caller.tenant_id)
    return _secret(call, tenant)


@gateway.serves(router, contract.ROTATE_SECRET)
def rotate_webhook_secret(call: calls.Call, body: contract.SecretRotationIn) -> contract.SecretOut:
    with call.writing() as session:
        tenant = service.rotate(session, generation=body.generation)
    return _secret(call, tenant)


def _found(session: Session, caller: Caller, delivery_id: str) -> WebhookDelivery:
    """Return a delivery. Raises `DeliveryUnknown` if it does not exist or the caller may not see it."""
    row = service.get(session, delivery_id)
    if caller.discreet and not repository.is_seen(session, row, at=now(session)):
        raise contract.DeliveryUnknown(delivery_id=delivery_id)
    return row


def _to_response(row: WebhookDelivery, caller: Caller) -> contract.DeliveryOut:
    return contract.DeliveryOut.of(
        row,
        url=row.letter.url if caller.has(sets.Scope.ADMIN) and not row.letter.is_damaged else None,
        next_attempt_at=row.next_attempt_at if row.status == contract.DeliveryStatus.PENDING else None,
    )


def _sent(row: WebhookDelivery, caller: Caller) -> contract.SentOut:
    return contract.SentOut(
        **_to_response(row, caller).model_dump(), body=row.letter.body if caller.has(sets.Scope.ADMIN) else None
    )


def _secret(call: calls.Call, tenant: tables.Tenant) -> contract.SecretOut:
    rotated_at = tenant.webhook_rotated_at
    return contract.SecretOut(
        secret=service.present(call.installation.keys, tenant),
        generation=tenant.webhook_generation,
        rotated_at=rotated_at,
        previous_until=rotated_at and rotated_at + service.OVERLAP,
    )


MOUNTS = (gateway.Mount(router=router),)
