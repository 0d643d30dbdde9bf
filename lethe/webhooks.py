"""Verification of webhooks by their receivers: did this call come from Lethe?

    from lethe import webhooks

    webhooks.verify(secret, headers, body, now=datetime.datetime.now(datetime.UTC))

`body` is the raw bytes as received, before any parsing. `verify` returns the delivery's id, which is the same whenever
the delivery is repeated, so a receiver that has already seen it should respond with 200 and do nothing more.
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
