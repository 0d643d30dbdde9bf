"""Verification of webhooks by their receivers: is a call from Lethe?

    from lethe import webhooks

    webhooks.verify(secret, headers, body, now=datetime.datetime.now(datetime.UTC))

`body` is the bytes as they came, before anything parses them. `verify` returns the id of the delivery: it is the same
whenever the delivery is repeated, so a receiver that has seen it answers 200 and does nothing more.
"""

from lethe.features.webhooks.signatures import (  # type: ignore[import-not-found, unused-ignore]
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
    "verify",
]
