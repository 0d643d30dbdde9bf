"""`client.webhooks`: payloads that receivers of callbacks were sent; and for receivers: is this call from Lethe?

    from lethe import webhooks

    webhooks.verify(secret, headers, body, now=datetime.datetime.now(datetime.UTC))

`body` is the bytes as they came, before anything parses them. `verify` returns the id of the delivery: it is the same
whenever the delivery is repeated, so a receiver that has seen it answers 200 and does nothing more.
"""

from lethe.contract import webhook_deliveries
from lethe.methods import H, Resource, call, pages
from lethe.proof.webhooks import (
    TOLERANCE,
    HeadersMalformed,
    SecretMalformed,
    SignatureWrong,
    TimestampOutsideTolerance,
    WebhookUnverified,
    verify,
)

__all__ = [
    "TOLERANCE",
    "HeadersMalformed",
    "SecretMalformed",
    "SignatureWrong",
    "TimestampOutsideTolerance",
    "WebhookUnverified",
    "Webhooks",
    "verify",
]


class Webhooks(Resource[H]):
    list = pages(webhook_deliveries.LIST)
    get = call(webhook_deliveries.GET)
    replay = call(webhook_deliveries.REPLAY)
    replay_all = call(webhook_deliveries.REPLAY_ALL)
    secret = call(webhook_deliveries.SECRET)
    rotate_secret = call(webhook_deliveries.ROTATE_SECRET)
