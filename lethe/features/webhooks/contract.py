"""Operations on webhook deliveries, and on the secret that signs them."""

import datetime
from typing import Annotated, Literal

from pydantic import Field

from lethe.contract import fields, operation, problems, sets


class DeliveryStatus(sets.ClosedSet):
    PENDING = "pending"
    DELIVERED = "delivered"
    GONE = "gone"
    DEAD = "dead"


class DeliveryUnknown(problems.NotFound, title="There is no such delivery"):
    template = "There is no delivery {delivery_id!r}."


class SecretNotPresent(problems.Conflict, title="The named webhook secret is not the current one"):
    template = "The present secret is {generation}; GET /v1/webhook-secret shows it."


class WebhookEvent(sets.ClosedSet):
    ACCEPTED = "deletion_request.accepted"
    IN_REVIEW = "deletion_request.in_review"
    REJECTED = "deletion_request.rejected"
    CANCELLED = "deletion_request.cancelled"
    COMPLETED = "deletion_request.completed"
    EXTENDED = "deletion_request.extended"
    AT_RISK = "deletion_request.at_risk"
    OVERDUE = "deletion_request.overdue"


class DeliveryOut(fields.Answer):
    id: str = Field(description="ID of the delivery, sent in the webhook-id header of every attempt.")
    request_id: str = Field(description="ID of the deletion request.")
    event: str = Field(description="Type of event, such as deletion_request.completed.")
    status: DeliveryStatus = Field(
        description="Status: pending, delivered, gone (the receiver returned 410) or dead (abandoned after three days)."
    )
    host: str = Field(description="Host of the receiver.")
    url: str | None = Field(description="URL of the receiver; null without admin: it may contain a secret.", repr=False)
    attempts: int = Field(description="Number of attempts so far.")
    error: str | None = Field(description="Stable error code of the last attempt; null if there was no error.")
    next_attempt_at: datetime.datetime | None = Field(description="Time of the next attempt; null unless pending.")
    created_at: datetime.datetime = Field(description="Time from which the delivery may be sent.")
    ended_at: datetime.datetime | None = Field(description="Time at which the delivery ended; null while pending.")


class SentOut(DeliveryOut):
    body: str | None = Field(description="Body exactly as sent; null for callers without admin.", repr=False)


class RedeliveriesIn(fields.Body):
    model_config = fields.example(status="dead", ended_before="2026-02-01T00:00:00Z")

    status: Literal[DeliveryStatus.DEAD, DeliveryStatus.GONE, DeliveryStatus.DELIVERED] = Field(
        description="Status of the deliveries to send again."
    )
    request_id: Annotated[
        fields.Text | None, Field(max_length=100, description="Only deliveries about this deletion request.")
    ] = None
    ended_before: fields.Moment | None = fields.optional(
        "Only deliveries that ended before this time. Default: any time."
    )
    limit: Annotated[int, Field(ge=1, le=1000)] = Field(
        default=500, description="Maximum number of deliveries to send again in this call."
    )


class RedeliveriesOut(fields.Answer):
    replayed: int = Field(description="Number of deliveries that are being sent again.")
    more: bool = Field(description="True if more deliveries match; repeat the call with the same `ended_before`.")


class SecretOut(fields.Answer):
    secret: str = Field(description="Secret that signs webhooks: `whsec_` and 32 bytes in base64.", repr=False)
    generation: int = Field(description="Generation of the secret; each rotation increases it by 1.")
    rotated_at: datetime.datetime | None = Field(description="Time of the last rotation; null if never rotated.")
    previous_until: datetime.datetime | None = Field(description="End of the previous secret's use; null if none.")


class SecretRotationIn(fields.Body):
    generation: int = Field(ge=1, le=1_000_000_000, description="Generation of the secret that is to be replaced.")


class WebhookDeliveriesQuery(fields.Paging):
    status: DeliveryStatus | None = fields.optional("Only deliveries with this status.")
    undelivered: bool = Field(
        default=False, description="Only deliveries that are dead or pending, including those not yet attempted."
    )
    request_id: Annotated[
        fields.Text | None, Field(max_length=100, description="Only deliveries about this deletion request.")
    ] = None


_WEBHOOK_DELIVERIES = operation.ResourceOperations("Webhooks", "/v1", DeliveryUnknown)

LIST = _WEBHOOK_DELIVERIES.operation(
    "list_webhook_deliveries",
    "GET",
    "/webhook-deliveries",
    scope=sets.Scope.REQUESTS_READ,
    query=WebhookDeliveriesQuery,
    gives=fields.PageOut[DeliveryOut],
    does="List deliveries, newest first. Callers who are not allowed to know whether data is held see only deliveries "
    "for requests created by callers with this restriction.",
)
GET = _WEBHOOK_DELIVERIES.of_one(
    "get_webhook_delivery",
    "GET",
    "/webhook-deliveries/{delivery_id}",
    scope=sets.Scope.REQUESTS_READ,
    gives=SentOut,
    does="Return a delivery's state and its body.",
)
REPLAY = _WEBHOOK_DELIVERIES.of_one(
    "replay_webhook_delivery",
    "POST",
    "/webhook-deliveries/{delivery_id}/replay",
    scope=sets.Scope.ADMIN,
    gives=SentOut,
    status=202,
    does="Send a delivered or abandoned message again under the same ID. Pending deliveries are left unchanged.",
)
REPLAY_ALL = _WEBHOOK_DELIVERIES.operation(
    "replay_webhook_deliveries",
    "POST",
    "/webhook-deliveries:replay",
    scope=sets.Scope.ADMIN,
    takes=RedeliveriesIn,
    gives=RedeliveriesOut,
    does="Send matching deliveries again under their original IDs, oldest first, up to `limit` in one transaction.",
)
SECRET = _WEBHOOK_DELIVERIES.operation(
    "get_webhook_secret",
    "GET",
    "/webhook-secret",
    scope=sets.Scope.ADMIN,
    gives=SecretOut,
    does="Return the secret for verifying webhooks.",
)
ROTATE_SECRET = _WEBHOOK_DELIVERIES.operation(
    "rotate_webhook_secret",
    "POST",
    "/webhook-secret/rotate",
    scope=sets.Scope.ADMIN,
    takes=SecretRotationIn,
    gives=SecretOut,
    repeat="idempotent",
    problems=(SecretNotPresent,),
    does="Replace the secret; old and new sign for one day. Repeating the call with the same `generation` is a no-op.",
)
