"""The headers of callbacks to those who came by a protocol of others."""

from collections.abc import Mapping

from app.config import Settings
from app.protocols import certificate, drp, opendsr
from app.webhooks.dispatcher import Dialect


def dialects(settings: Settings) -> Mapping[str, Dialect]:
    """By the source of a request. OpenDSR signs with its certificate; the Data Rights Protocol has no signature."""

    def signed(body: bytes) -> Mapping[str, str]:
        return certificate.signer(settings).headers(body)

    return {opendsr.SOURCE: signed, drp.SOURCE: lambda body: {}}
