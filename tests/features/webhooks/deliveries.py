"""Deliveries sent to this machine, and their failures."""

from collections.abc import Sequence
from ipaddress import ip_network

from app.features.webhooks import dispatcher
from app.features.webhooks.dispatcher import DeliveryVerdict, SendResult
from tests.servers import Server

ALLOWED = [ip_network("127.0.0.0/8"), ip_network("::1/128")]
BODY = b'{"type":"deletion_request.completed"}'
NAME = "receiver.test"


def send(url: str, *, seconds: float = 10, body: bytes = BODY, allowed: Sequence[str] | None = None) -> SendResult:
    networks = ALLOWED if allowed is None else [ip_network(network) for network in allowed]
    return dispatcher.send(url, body, {}, allowed=networks, timeout_seconds=seconds)


def post(server: Server, *, seconds: float = 10, body: bytes = BODY) -> SendResult:
    return send(f"http://127.0.0.1:{server.port}/hook", seconds=seconds, body=body)


def failed(code: str, status: int | None = None) -> SendResult:
    return SendResult(verdict=DeliveryVerdict.FAILED, error_code=code, status=status)
