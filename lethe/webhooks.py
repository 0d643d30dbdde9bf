"""`client.webhooks`: what receivers of callbacks were told; and for receivers: is this call from Lethe?

    from lethe import webhooks

    webhooks.verify(secret, headers, body, now=datetime.datetime.now(datetime.UTC))

`body` is the bytes as they came, before anything parses them. What `verify` returns is the id of the delivery: it is
the same whenever the delivery is repeated, so whoever has seen it answers 200 and does nothing more.
"""

import datetime
from collections.abc import Iterator
from dataclasses import dataclass, field

from app.webhooks.signature import (
    TOLERANCE,
    HeadersMalformed,
    SecretMalformed,
    SignatureWrong,
    TimestampOutsideTolerance,
    WebhookUnverified,
    verify,
)
from lethe.endpoints import Endpoint
from lethe.http import Http
from lethe.values import Page

__all__ = [
    "TOLERANCE",
    "Delivery",
    "HeadersMalformed",
    "SecretMalformed",
    "Sent",
    "SignatureWrong",
    "TimestampOutsideTolerance",
    "WebhookSecret",
    "WebhookUnverified",
    "Webhooks",
    "verify",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """`status`: pending, delivered, gone (the receiver answered 410) or dead (it was tried for three days). `error`: of
    the last attempt. `url`: for admins."""

    id: str
    request_id: str
    event: str
    status: str
    host: str
    url: str | None = field(repr=False)
    attempts: int
    error: str | None
    next_attempt_at: datetime.datetime | None
    created_at: datetime.datetime
    ended_at: datetime.datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent(Delivery):
    """`body`: what is sent, to the letter; for admins."""

    body: str | None = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookSecret:
    """What receivers verify with. `previous_until`: until then the secret before signs too."""

    secret: str = field(repr=False)
    generation: int
    rotated_at: datetime.datetime | None
    previous_until: datetime.datetime | None


LIST = Endpoint("GET", "/v1/webhook-deliveries", Page[Delivery])
GET = Endpoint("GET", "/v1/webhook-deliveries/{delivery_id}", Sent)
REPLAY = Endpoint("POST", "/v1/webhook-deliveries/{delivery_id}/replay", Sent)
SECRET = Endpoint("GET", "/v1/webhook-secret", WebhookSecret)
ROTATE_SECRET = Endpoint("POST", "/v1/webhook-secret/rotate", WebhookSecret, idempotent=True)


class Webhooks:
    def __init__(self, http: Http) -> None:
        self._http = http

    def list(self, *, status: str | None = None, request_id: str | None = None) -> Iterator[Delivery]:
        """All deliveries, or those that are so, newest first."""
        return self._http.pages(LIST, status=status, request_id=request_id)

    def get(self, delivery_id: str) -> Sent:
        return self._http.call(GET, delivery_id)

    def replay(self, delivery_id: str) -> Sent:
        """Send again, under the same id, what was delivered or given up. This and the two below need the scope
        admin."""
        return self._http.call(REPLAY, delivery_id)

    def secret(self) -> WebhookSecret:
        return self._http.call(SECRET)

    def rotate_secret(self, *, generation: int) -> WebhookSecret:
        """Replace the secret of this generation; for a day both sign."""
        return self._http.call(ROTATE_SECRET, json={"generation": generation})
