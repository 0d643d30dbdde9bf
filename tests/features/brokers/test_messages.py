"""Messages in the broker contain no data, and the work is done once, whatever happens to the messages."""

import base64
import json
import signal
from collections.abc import Callable
from typing import Any

import amqp
import kombu
import kombu.pidbox
import pytest
import redis
import sqlalchemy as sa
from fastapi.testclient import TestClient

from app.db.tables import Version
from app.features.brokers import notifiers
from app.installations import Installation
from tests.conftest import FORM, people
from tests.faults import hops, processes
from tests.faults.checks import assert_all_done_once
from tests.faults.deployment import Service
from tests.faults.processes import wait_until
from tests.features.brokers.brokers import BOTH_AT_LENGTH, is_completed, runs_of

pytestmark = pytest.mark.redis
Make = Callable[..., dict[str, Any]]
Get = Callable[[str], Any]
Worker = Callable[..., Service]
Broker = processes.Redis | processes.RabbitMQ


def test_a_message_has_no_arguments(
    broker: processes.Redis, gateway: TestClient, new_model: Make, forget: Make, work: Callable[[], int]
) -> None:
    """A message in the broker names no person, request, model, dataset or run, because its task has no arguments."""
    person = "somebody-by-name"
    file = people(person, *(f"p{number}" for number in range(30)))
    dataset = gateway.post("/v1/datasets", data=FORM, files={"file": ("people.npz", file)}).json()
    model = new_model(dataset["id"])
    work()
    with redis.Redis(port=broker.port) as client:
        # Notifications that follow each other at once are sent as one message.
        wait_until(lambda: client.llen("celery"))
        sent = client.llen("celery")
        request = forget(person)
        wait_until(lambda: client.llen("celery") > sent)
        messages = client.lrange("celery", 0, -1)
        everything = b"".join(client.dump(key) for key in client.scan_iter())
    for message in messages:
        body = json.loads(base64.b64decode(json.loads(message)["body"]))
        assert body == [[], {}, {"callbacks": None, "errbacks": None, "chain": None, "chord": None}]
        for name in (dataset["id"], model["id"], request["id"], request["subject_ref"], person):
            assert name.encode() not in message
            assert name.encode() not in everything


def _versions(installation: Installation) -> list[tuple[str, str]]:
    with installation.database.reading() as session:
        return [(version.id, version.weights_sha256) for version in session.scalars(sa.select(Version))]


def test_the_sweep_compensates_for_a_lost_message(
    worker: Worker,
    beat: Service,
    broker: processes.Redis,
    installation: Installation,
    live: dict[str, Any],
    forget: Make,
    get: Get,
) -> None:
    """If the worker that received the only message about a request dies, the request is served at the next sweep."""
    with redis.Redis(port=broker.port) as client:
        # Drop the notification about the model.
        client.flushall()
        one = worker("one", hop="heard", act=hops.die)
        one.ready()
        request = forget("p3")
        assert one.child.died() == -signal.SIGKILL
        client.flushall()
    two = worker("two")
    two.ready()
    assert not is_completed(get, request)
    beat.start()
    wait_until(lambda: is_completed(get, request))
    assert two.child.stop() == 0
    assert runs_of(get) == [("unlearn", "published"), ("learn", "published")]
    assert_all_done_once(installation)


def test_duplicate_messages_cause_one_run(
    worker: Worker, broker: processes.Redis, installation: Installation, live: dict[str, Any], forget: Make, get: Get
) -> None:
    """Two workers that receive a hundred notifications before, during and after a request execute one run."""
    for _ in range(50):
        installation.notifier.wake()
    request = forget("p3")
    workers = [worker(name, lease_seconds=30.0) for name in ("one", "two")]
    wait_until(lambda: is_completed(get, request))
    for _ in range(50):
        installation.notifier.wake()
    with redis.Redis(port=broker.port) as client:
        wait_until(lambda: client.llen("celery") == 0)
    assert [one.child.stop() for one in workers] == [0, 0]
    assert runs_of(get) == [("unlearn", "published"), ("learn", "published")]
    assert_all_done_once(installation)


def test_a_late_message_changes_nothing(
    worker: Worker,
    beat: Service,
    broker: processes.Redis,
    installation: Installation,
    live: dict[str, Any],
    forget: Make,
    get: Get,
) -> None:
    """A message that arrives long after its work was done neither changes nor delays any work."""
    request = forget("p3")
    with redis.Redis(port=broker.port) as client:
        # One of the two messages is about the model.
        wait_until(lambda: client.llen("celery") == 2)
        held = client.lrange("celery", 0, -1)
        client.delete("celery")
        one = worker("one")
        beat.start()
        wait_until(lambda: is_completed(get, request))
        beat.kill()
        before = _versions(installation), runs_of(get)
        client.rpush("celery", *held)
        wait_until(lambda: client.llen("celery") == 0)
    assert one.child.stop() == 0
    assert (_versions(installation), runs_of(get)) == before
    assert_all_done_once(installation)


_NO_RINGS = [
    b"",
    b"no JSON",
    b"\xff\xfe",
    b"[" * 100_000,
    *(b"null", b"5", b'"text"', b"[]", b"{}", b'{"properties": null}', b'{"properties": {}}'),
    b'{"properties": {"delivery_tag": {"a": 1}}, "body": 7}',
    b'{"properties": {"delivery_tag": "a", "body_encoding": "base64"}, "body": "%%%"}',
    b'{"properties": {"delivery_tag": "b"}, "headers": null, "body": "x"}',
    b'{"properties": {"delivery_tag": "c"}, "headers": {"task": "lethe.work"}, "body": "x"}',
    b'{"properties": {"delivery_tag": "d"}, "headers": {"task": ["lethe.work"]}, "body": "W10="}',
    b'{"__type__": "datetime", "__value__": "never"}',
]
"""Malformed messages, messages not from Celery and messages of unknown tasks; RabbitMQ gets them as bodies."""


def _headers(number: int) -> dict[str, Any]:
    ours = {"task": notifiers.TASK}
    strange: list[dict[str, Any]] = [
        {"task": "celery.nothing"},
        {"task": 5},
        {"id": "x"},
        {},
        ours,
        ours | {"id": 5, "eta": "never"},
        ours | {"id": "x", "retries": "many", "expires": []},
    ]
    return strange[number % len(strange)]


def _no_rings(broker: Broker) -> None:
    if isinstance(broker, processes.Redis):
        with redis.Redis(port=broker.port) as client:
            client.lpush("celery", *_NO_RINGS)
        return
    with kombu.Connection(broker.url) as connection:
        channel = connection.channel()
        for number, body in enumerate(_NO_RINGS * 2):
            kinds = {"content_type": ("application/json", "application/x-python-serialize", "", "x")[number % 4]}
            message = amqp.Message(body, application_headers=_headers(number), content_encoding="utf-8", **kinds)
            channel.basic_publish(message, routing_key="celery")


def _waiting(broker: Broker) -> int:
    if isinstance(broker, processes.Redis):
        with redis.Redis(port=broker.port) as client:
            return int(client.llen("celery")) + int(client.hlen("unacked"))
    with kombu.Connection(broker.url) as connection:
        return int(connection.default_channel.queue_declare("celery", passive=True).message_count)


@BOTH_AT_LENGTH
def test_malformed_messages_are_dropped(
    worker: Worker, broker: Broker, installation: Installation, live: dict[str, Any], forget: Make, get: Get
) -> None:
    """Invalid JSON and foreign or malformed messages are dropped. The worker that reads them continues and serves the
    next notification."""
    one = worker("one")
    one.ready()
    _no_rings(broker)
    wait_until(lambda: _waiting(broker) == 0)
    request = forget("p3")
    wait_until(lambda: is_completed(get, request))
    assert one.child.logged("worker.message_dropped")
    assert not one.child.logged("worker.consumer_begins_anew")
    assert "no JSON" not in one.log()
    assert one.child.stop() == 0
    assert_all_done_once(installation)


def test_remote_control_is_refused(
    worker: Worker, broker: processes.Redis, live: dict[str, Any], forget: Make, get: Get
) -> None:
    """A worker accepts no commands from the broker: a shutdown command of Celery's remote control has no effect."""
    one = worker("one")
    one.ready()
    with kombu.Connection(broker.url) as connection:
        kombu.pidbox.Mailbox("celery", type="fanout", accept=["json"])(connection)._broadcast("shutdown")
    request = forget("p3")
    wait_until(lambda: is_completed(get, request))
    assert one.child.stop() == 0
