"""Deliveries of webhooks, and replays of them; `/webhook-secret`: what they are signed with."""

import datetime
from typing import Annotated, Literal

from pydantic import Field

from lethe.contract.fields import Answer, Body, Moment, PageOut, Paging, Text, example
from lethe.contract.operation import Resource, of_one
from lethe.contract.problems import DeliveryUnknown, SecretNotPresent
from lethe.contract.sets import DeliveryStatus, Scope


class DeliveryOut(Answer):
    id: str = Field(description="The header webhook-id of every attempt.")
    request_id: str
    event: str
    status: DeliveryStatus = Field(description="gone: the receiver answered 410; dead: it was tried for three days.")
    host: str
    url: str | None = Field(description="For admins only: it may hold a secret.", repr=False)
    attempts: int
    error: str | None = Field(description="Of the last attempt: a stable code.")
    next_attempt_at: datetime.datetime | None
    created_at: datetime.datetime
    ended_at: datetime.datetime | None


class SentOut(DeliveryOut):
    body: str | None = Field(description="What is sent, to the letter; for admins only.", repr=False)


class RedeliveriesIn(Body):
    model_config = example(status="dead", ended_before="2026-02-01T00:00:00Z")

    status: Literal[DeliveryStatus.DEAD, DeliveryStatus.GONE, DeliveryStatus.DELIVERED]
    request_id: Annotated[Text | None, Field(max_length=100)] = None
    ended_before: Moment | None = Field(
        default=None, description="Only those that ended earlier. Default: whenever they ended."
    )
    limit: Annotated[int, Field(ge=1, le=1000)] = Field(
        default=500, description="Most deliveries that this call sends again."
    )


class RedeliveriesOut(Answer):
    replayed: int
    more: bool = Field(description="Others match still: repeat the call, with the same `ended_before`.")


class SecretOut(Answer):
    secret: str = Field(description="whsec_ and the base64 of 32 bytes.", repr=False)
    generation: int
    rotated_at: datetime.datetime | None
    previous_until: datetime.datetime | None = Field(description="Until then the secret before signs too.")


class SecretRotationIn(Body):
    generation: int = Field(ge=1, le=1_000_000_000, description="Of the secret that is to be replaced.")


class WebhookDeliveriesQuery(Paging):
    status: DeliveryStatus | None = None
    undelivered: bool = Field(
        default=False, description="Only those that did not arrive: dead, or pending after an attempt that failed."
    )
    request_id: Annotated[Text | None, Field(max_length=100)] = None


_WEBHOOK_DELIVERIES = Resource("Webhooks", "/v1")

LIST = _WEBHOOK_DELIVERIES.operation(
    "list_webhook_deliveries",
    "GET",
    "/webhook-deliveries",
    scope=Scope.REQUESTS_READ,
    query=WebhookDeliveriesQuery,
    gives=PageOut[DeliveryOut],
    does="Newest first. Callers who may not learn whether anything is held see those of such callers' requests.",
)
GET = of_one(
    _WEBHOOK_DELIVERIES.operation(
        "get_webhook_delivery",
        "GET",
        "/webhook-deliveries/{delivery_id}",
        scope=Scope.REQUESTS_READ,
        gives=SentOut,
        problems=(DeliveryUnknown,),
        does="How a delivery stands, and what is sent.",
    )
)
REPLAY = of_one(
    _WEBHOOK_DELIVERIES.operation(
        "replay_webhook_delivery",
        "POST",
        "/webhook-deliveries/{delivery_id}/replay",
        scope=Scope.ADMIN,
        gives=SentOut,
        status=202,
        problems=(DeliveryUnknown,),
        does="Send again, under the same id, what was delivered or given up. One that is still to be sent is left "
        "alone.",
    )
)
REPLAY_ALL = _WEBHOOK_DELIVERIES.operation(
    "replay_webhook_deliveries",
    "POST",
    "/webhook-deliveries:replay",
    scope=Scope.ADMIN,
    takes=RedeliveriesIn,
    gives=RedeliveriesOut,
    does="Send again, each under its id, those that match, the oldest first; `limit` of them in one transaction.",
)
SECRET = _WEBHOOK_DELIVERIES.operation(
    "get_webhook_secret",
    "GET",
    "/webhook-secret",
    scope=Scope.ADMIN,
    gives=SecretOut,
    does="What receivers verify with.",
)
ROTATE_SECRET = _WEBHOOK_DELIVERIES.operation(
    "rotate_webhook_secret",
    "POST",
    "/webhook-secret/rotate",
    scope=Scope.ADMIN,
    takes=SecretRotationIn,
    gives=SecretOut,
    idempotent=True,
    problems=(SecretNotPresent,),
    does="Replace the present secret; for a day both sign. Repeated with the same `generation`, it changes "
    "nothing more.",
)
