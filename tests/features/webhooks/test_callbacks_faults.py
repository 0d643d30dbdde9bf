"""Receivers get every delivery, whatever happens to the gateways in between."""

import contextlib
import json
import os
import signal
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
import sqlalchemy as sa

from app.config import Settings
from app.db import now
from app.features.webhooks.tables import WebhookDelivery
from app.installations import Installation
from tests import servers
from tests.faults import processes
from tests.faults.processes import wait_until
from tests.servers import Server, serving


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return settings.model_copy(
        update={"webhook_allowed_networks": "127.0.0.0/8", "webhook_timeout_seconds": 60.0, "calls_per_minute": 0}
    )


def submit(address: str, admin_key: str, subject: str, server: Server) -> str:
    body = {"subject_id": subject, "callback_url": f"http://127.0.0.1:{server.port}/hook"}
    headers = {"Authorization": f"Bearer {admin_key}"}
    answer = httpx.post(f"{address}/v1/deletion-requests", json=body, headers=headers, timeout=240)
    assert answer.status_code == 202
    request_id: str = answer.json()["id"]
    return request_id


def pending(installation: Installation) -> int:
    with installation.database.reading() as session:
        count = sa.select(sa.func.count()).where(WebhookDelivery.status == "pending")
        return session.scalar(count) or 0


def end_leases(installation: Installation) -> None:
    """Make pending deliveries due, as if the leases of a dead gateway had expired."""
    with installation.database.writing() as session:
        session.execute(
            sa.update(WebhookDelivery).where(WebhookDelivery.status == "pending").values(next_attempt_at=now(session))
        )


def listens(address: str) -> bool:
    with contextlib.suppress(OSError):
        socket.create_connection(("127.0.0.1", int(address.rpartition(":")[2])), 1).close()
        return True
    return False


def ids(server: Server) -> list[str]:
    return [call.headers["webhook-id"] for call in server.calls]


def test_a_gateway_killed_before_recording_repeats_the_delivery(
    settings: Settings, installation: Installation, admin_key: str
) -> None:
    """If a gateway is killed after a receiver has received a call but before the call is recorded, the next gateway
    repeats the delivery under the same id and then sends later events."""
    victim: list[int] = []

    def answer(connection: socket.socket) -> None:
        if victim:
            os.kill(victim.pop(), signal.SIGKILL)
        servers.status(200)(connection)

    with serving(answer) as server:
        with processes.gateway(settings) as (child, address):
            assert child.process.pid
            victim.append(child.process.pid)
            # The gateway may be killed before it responds.
            with contextlib.suppress(httpx.HTTPError):
                submit(address, admin_key, "nobody", server)
            assert child.died() == -signal.SIGKILL
        assert len(server.calls) == 1
        assert pending(installation) == 2
        with processes.gateway(settings) as (_, address), serving(servers.status(200)) as other:
            submit(address, admin_key, "somebody", other)
            # By now this gateway has polled for due deliveries twice.
            wait_until(lambda: len(other.calls) == 2)
            # The lease of the dead gateway has not expired yet.
            assert len(server.calls) == 1
            end_leases(installation)
            wait_until(lambda: pending(installation) == 0)
    first, again, then = ids(server)
    assert first == again != then
    assert [json.loads(call.body)["type"].rpartition(".")[2] for call in server.calls] == [
        *("accepted", "accepted", "completed")
    ]


@pytest.mark.soak
def test_repeated_kills_lose_no_delivery(settings: Settings, installation: Installation, admin_key: str) -> None:
    """Although the gateway is killed several times while sending, every delivery arrives. A repeated delivery keeps its
    id."""
    with serving(servers.status(200)) as server:
        with processes.gateway(settings) as (child, address):
            with ThreadPoolExecutor(4) as threads:
                list(threads.map(lambda n: submit(address, admin_key, f"n{n}", server), range(30)))
            child.kill()
        for _ in range(3):
            end_leases(installation)
            seen = len(server.calls)
            with processes.gateway(settings) as (child, _):
                wait_until(lambda seen=seen: len(server.calls) > seen or pending(installation) == 0)
                child.kill()
        end_leases(installation)
        with processes.gateway(settings):
            wait_until(lambda: pending(installation) == 0)
    with installation.database.reading() as session:
        rows = session.scalars(sa.select(WebhookDelivery)).all()
    assert len(rows) == 60
    assert {row.status for row in rows} == {"delivered"}
    assert {row.id for row in rows} == set(ids(server))
    order: dict[str, list[str]] = {}
    for call in server.calls:
        body = json.loads(call.body)
        order.setdefault(body["data"]["id"], []).append(body["type"].rpartition(".")[2])
    # In alphabetical order, "accepted" comes before "completed".
    assert all(events == sorted(events) for events in order.values())


def test_a_stopping_gateway_records_its_delivery(
    settings: Settings, installation: Installation, admin_key: str
) -> None:
    """A gateway that receives SIGTERM during a call waits for the response and records it, and no delivery is sent
    twice."""
    arrived, answered = threading.Event(), threading.Event()

    def answer(connection: socket.socket) -> None:
        arrived.set()
        answered.wait(50)
        servers.status(200)(connection)

    with serving(answer) as server, processes.gateway(settings) as (child, address):
        submit(address, admin_key, "nobody", server)
        assert arrived.wait(60)
        stopping = threading.Thread(target=child.stop)
        stopping.start()
        wait_until(lambda: not listens(address))
        # Shortly after the gateway stops listening, it claims no more deliveries.
        time.sleep(2)
        answered.set()
        stopping.join(120)
        assert child.process.exitcode == 0
        with installation.database.reading() as session:
            statuses = session.scalars(sa.select(WebhookDelivery.status).order_by(WebhookDelivery.created_at)).all()
        assert statuses == ["delivered", "pending"]
        assert len(server.calls) == 1
