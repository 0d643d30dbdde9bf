import datetime

import pytest

from lethe import webhooks
from lethe.proof import webhooks as signature


def test_a_receiver_believes_what_was_signed_and_nothing_else() -> None:
    """What Lethe signs is verified by what receivers import; another body, secret or time is not."""
    secret, other = signature.secret_from(bytes(32)), signature.secret_from(bytes([1] * 32))
    sent_at = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    headers = signature.sign(b"{}", message_id="whd_1", sent_at=sent_at, secrets=[secret])
    assert webhooks.verify(secret, headers, b"{}", now=sent_at) == "whd_1"
    late = sent_at + datetime.timedelta(hours=1)
    for key, body, now in ((secret, b"[]", sent_at), (other, b"{}", sent_at), (secret, b"{}", late)):
        with pytest.raises(webhooks.WebhookUnverified):
            webhooks.verify(key, headers, body, now=now)
