import datetime
import threading
from collections.abc import Callable
from typing import Any

import pytest
from fastapi.testclient import TestClient
from prometheus_client import generate_latest

from app import telemetry
from app.config import Settings
from app.db import Actor
from app.features.webhooks import dispatcher
from app.features.webhooks.tables import WebhookDelivery
from app.installations import Installation
from app.main import create_app
from lethe import webhooks
from tests import servers
from tests.faults.processes import wait_until
from tests.features.webhooks.submitting import asked, submit

Make = Callable[..., dict[str, Any]]
Receiving = Callable[..., Any]
Deliveries = Callable[[], list[WebhookDelivery]]


@pytest.fixture(autouse=True)
def long_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lengthen the pauses between attempts, so that failed deliveries are retried only when a test lets time pass."""
    monkeypatch.setattr(dispatcher, "_PAUSES", (datetime.timedelta(days=1),) * len(dispatcher._PAUSES))


@pytest.fixture
def ended(deliveries: Deliveries) -> Callable[[], list[WebhookDelivery]]:
    """Return a function that waits until no delivery is pending, and returns all deliveries."""

    def wait() -> list[WebhookDelivery]:
        found = wait_until(lambda: (rows := deliveries()) and all(row.ended_at for row in rows) and rows, seconds=90)
        assert isinstance(found, list)
        return found

    return wait


def test_a_receiver_gets_acceptance_and_completion_events(
    new_dataset: Make,
    new_model: Make,
    forget: Make,
    work: Callable[[], int],
    get: Callable[[str], Any],
    receiving: Receiving,
    ended: Deliveries,
) -> None:
    """A receiver gets a request's acceptance and completion events, both with signatures that it can verify."""
    new_model(new_dataset()["id"])
    work()
    with receiving() as receiver:
        request = forget("p1", callback_url=receiver.url, external_id="ticket 7")
        [accepted] = receiver.got(1)
        assert work() == 1
        _, completed = receiver.got(2)
        rows = ended()
    known = {"api_version": "1", "id": request["id"], "external_id": "ticket 7", "refers_to": None}
    assert (accepted["type"], completed["type"]) == ("deletion_request.accepted", "deletion_request.completed")
    assert accepted["data"].items() >= (known | {"status": "accepted", "completed_at": None, "outcome": None}).items()
    assert completed["data"].items() >= (known | {"status": "completed", "outcome": "forgotten"}).items()
    shown = get(f"/deletion-requests/{request['id']}")
    for name, value in (("completed_at", shown["completed_at"]), ("due_at", shown["due_at"])):
        sent, seen = (datetime.datetime.fromisoformat(text) for text in (completed["data"][name], value))
        assert abs(sent - seen) < datetime.timedelta(milliseconds=1)
    assert "p1" not in receiver.server.calls[0].body.decode()
    assert request["subject_ref"] not in receiver.server.calls[1].body.decode()

    secret = get("/webhook-secret")["secret"]
    receiver.verify(secret)
    for call, row in zip(receiver.server.calls, rows, strict=True):
        message_id = webhooks.verify(secret, call.headers, call.body, now=datetime.datetime.now(datetime.UTC))
        assert (message_id, row.status, row.attempts, row.error) == (row.id, "delivered", 1, None)
        assert call.body.decode() == row.letter.body


@pytest.fixture
def looks_rarely(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatcher, "_POLL_SECONDS", 600.0)


@pytest.mark.usefixtures("looks_rarely")
def test_a_commit_wakes_the_dispatcher(forget: Make, receiving: Receiving) -> None:
    """Each commit wakes the dispatcher, so it does not need to poll."""
    with receiving() as receiver:
        for number in range(7):
            forget(f"p{number}", callback_url=receiver.url)
            receiver.got(2 * number + 2)


def test_a_recovered_receiver_gets_events_in_order(
    new_dataset: Make,
    forget: Make,
    work: Callable[[], int],
    receiving: Receiving,
    deliveries: Deliveries,
    ended: Deliveries,
    let_time_pass: Callable[[], None],
) -> None:
    """After a failure, the delivery is repeated with the same id, and later events wait until it succeeds."""
    new_dataset()
    with receiving(servers.status(500), servers.status(503), servers.status(200)) as receiver:
        forget("p1", callback_url=receiver.url)
        wait_until(lambda: deliveries()[0].attempts == 1)
        assert deliveries()[0].error == "http_500"
        assert work() == 1
        assert [row.event.rpartition(".")[2] for row in deliveries()] == ["accepted", "completed"]
        let_time_pass()
        wait_until(lambda: deliveries()[0].attempts == 2)
        let_time_pass()
        accepted, completed = ended()
    assert receiver.types() == ["accepted", "accepted", "accepted", "completed"]
    assert receiver.ids() == [accepted.id] * 3 + [completed.id]
    assert (accepted.status, accepted.attempts, completed.attempts) == ("delivered", 3, 1)


def test_silent_receivers_do_not_delay_other_tenants(
    gateway: TestClient, receiving: Receiving, stop: threading.Event
) -> None:
    """A tenant with many deliveries to many hosts that never answer does not delay another tenant's delivery."""
    key = gateway.post("/v1/tenants", json={"name": "quiet"}).json()["admin_key"]
    with servers.serving(servers.silent(stop), host="0.0.0.0") as silent, receiving() as receiver:
        requests = [
            {"subject_id": "nobody", "callback_url": f"http://127.0.0.{1 + number % 50}:{silent.port}/"}
            for number in range(100)
        ]
        gateway.post("/v1/deletion-requests:batch", json={"requests": requests})
        wait_until(lambda: len(silent.calls) >= 16)
        asked = {"subject_id": "nobody", "callback_url": receiver.url}
        gateway.post("/v1/deletion-requests", json=asked, headers={"Authorization": f"Bearer {key}"})
        receiver.got(1, seconds=30)
        assert len(silent.calls) == 16
        stop.set()


def test_private_addresses_are_not_called(
    settings: Settings, installation: Installation, by: Actor, receiving: Receiving, deliveries: Deliveries
) -> None:
    """Unless the operator has allowed a private network, the gateway does not connect to private addresses, even if a
    request specifies one."""
    closed = settings.model_copy(update={"webhook_allowed_networks": ""})
    with receiving() as receiver:
        submit(installation, by, asked(installation, by, callback_urls=(receiver.url,)))
        with TestClient(create_app(closed)):
            wait_until(lambda: deliveries()[0].attempts == 1)
        assert (deliveries()[0].status, deliveries()[0].error) == ("pending", "refused_address")
        assert not receiver.server.connections


def test_a_slow_receiver_does_not_delay_others(forget: Make, receiving: Receiving) -> None:
    """Slow receivers on one host do not delay receivers on another."""
    stop = threading.Event()
    with receiving(servers.silent(stop)) as slow, receiving(host="127.0.0.2") as quick:
        try:
            for number in range(30):
                forget(f"p{number}", callback_url=slow.url)
            forget("nobody", callback_url=quick.url)
            # The quick receiver is served before a slow delivery times out.
            quick.got(1, seconds=40)
            wait_until(lambda: len(slow.server.connections) >= 4)
            assert len(slow.server.connections) == 4
        finally:
            stop.set()


def test_the_log_names_no_receiver(
    forget: Make, receiving: Receiving, deliveries: Deliveries, capfd: pytest.CaptureFixture[str]
) -> None:
    """A failure is logged and counted by delivery, event and code, without URLs, hosts or bodies."""
    before = generate_latest(telemetry.registry).decode()
    with receiving(servers.status(500)) as receiver:
        forget("nobody", callback_url=receiver.url, external_id="ticket7")
        wait_until(lambda: deliveries()[0].attempts == 1)
        wait_until(lambda: generate_latest(telemetry.registry).decode() != before)
    logged = capfd.readouterr().err
    assert deliveries()[0].id in logged
    assert "http_500" in logged
    assert not any(text in logged for text in ("127.0.0.1", "t0ken", "/hook", "ticket7", "nobody"))
    assert 'lethe_webhook_deliveries_total{outcome="failed"}' in generate_latest(telemetry.registry).decode()
