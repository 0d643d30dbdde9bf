"""Fixtures: an installation that may call back to this machine, and receivers that verify signatures."""

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import sqlalchemy as sa
from standardwebhooks.webhooks import Webhook

from app.config import Settings
from app.db import now
from app.features.webhooks.tables import WebhookDelivery
from app.installations import Installation
from tests import servers
from tests.faults.processes import wait_until
from tests.servers import Answer, Server, serving


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return settings.model_copy(update={"webhook_allowed_networks": "127.0.0.0/8", "webhook_timeout_seconds": 60.0})


@dataclass(frozen=True, slots=True, kw_only=True)
class Receiver:
    """A server that gets callbacks."""

    server: Server
    host: str

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.server.port}/hook?token=t0ken"

    def got(self, count: int, *, seconds: float = 60) -> list[dict[str, Any]]:
        """Wait for `count` calls, and return their bodies."""
        wait_until(lambda: len(self.server.calls) >= count, seconds=seconds)
        return [json.loads(call.body) for call in self.server.calls[:count]]

    def types(self) -> list[str]:
        return [json.loads(call.body)["type"].removeprefix("deletion_request.") for call in self.server.calls]

    def ids(self) -> list[str]:
        return [call.headers["webhook-id"] for call in self.server.calls]

    def verify(self, secret: str) -> None:
        """Verify the signatures of all calls with the Standard Webhooks library, and raise if a signature is wrong."""
        for call in self.server.calls:
            Webhook(secret).verify(call.body, call.headers)


@pytest.fixture
def receiving() -> Callable[..., contextlib.AbstractContextManager[Receiver]]:
    """Return a function that starts a receiver. It gives these responses to successive calls, and repeats the last
    one."""

    @contextlib.contextmanager
    def start(*answers: Answer, host: str = "127.0.0.1") -> Iterator[Receiver]:
        left, turn = [*answers] or [servers.status(204)], threading.Lock()

        def answer(connection: Any) -> None:
            with turn:
                given = left.pop(0) if len(left) > 1 else left[0]
            given(connection)

        with serving(answer, host=host) as server:
            yield Receiver(server=server, host=host)

    return start


@pytest.fixture
def deliveries(installation: Installation) -> Callable[[], list[WebhookDelivery]]:
    """Return a function that lists all deliveries except withdrawn ones, in the order in which they were created."""
    is_told = WebhookDelivery.status != "withdrawn"

    def found() -> list[WebhookDelivery]:
        with installation.database.reading() as session:
            return list(session.scalars(sa.select(WebhookDelivery).where(is_told).order_by(WebhookDelivery.created_at)))

    return found


@pytest.fixture
def let_time_pass(installation: Installation) -> Callable[[], None]:
    """Return a function that makes all pending deliveries due."""

    def hurry() -> None:
        with installation.database.writing() as session:
            session.execute(
                sa.update(WebhookDelivery)
                .where(WebhookDelivery.status == "pending")
                .values(next_attempt_at=now(session))
            )

    return hurry


@pytest.fixture
def stop() -> Iterator[threading.Event]:
    """Yield an event that ends endless responses once the test has finished."""
    event = threading.Event()
    yield event
    event.set()
