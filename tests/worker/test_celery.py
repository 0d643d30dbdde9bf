"""The worker behind a broker: a real Redis or RabbitMQ, a real Celery worker, and either of them dying."""

import base64
import contextlib
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import amqp
import kombu
import kombu.pidbox
import pytest
import redis
import sqlalchemy as sa
from fastapi.testclient import TestClient
from pydantic import SecretStr

from app import dispatch
from app.backup import verification
from app.config import Settings
from app.db.tables import Version
from app.installations import Installation
from tests.conftest import FORM, people
from tests.faults import deployment, hops, processes
from tests.faults.checks import assert_all_done_once
from tests.faults.deployment import Service
from tests.faults.processes import wait_until

Make = Callable[..., dict[str, Any]]
Get = Callable[[str], Any]
Worker = Callable[..., Service]
Broker = processes.Redis | processes.RabbitMQ

pytestmark = pytest.mark.redis


def on_rabbitmq_too(*marks: pytest.MarkDecorator) -> pytest.MarkDecorator:
    brokers = [processes.Redis, pytest.param(processes.RabbitMQ, marks=[pytest.mark.rabbitmq, *marks])]
    return pytest.mark.parametrize("broker", brokers, indirect=True)


BOTH_BROKERS, BOTH_AT_LENGTH = on_rabbitmq_too(), on_rabbitmq_too(pytest.mark.soak)


@pytest.fixture
def broker(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Broker]:
    """A Redis, if a test asks for nothing else."""
    server: Broker = getattr(request, "param", processes.Redis)(tmp_path)
    yield server
    server.kill()


@pytest.fixture
def settings(settings: Settings, broker: Broker) -> Iterator[Settings]:
    """An installation that rings through the broker, and whose leases are short."""
    changed = {"broker_url": SecretStr(broker.url), "lease_seconds": 1.5, "poll_seconds": 0.1}
    yield settings.model_copy(update=changed)
    dispatch.celery_client(broker.url).close()


@pytest.fixture
def worker(settings: Settings, tmp_path: Path) -> Iterator[Worker]:
    """Start a Celery worker of this name, which may do `act` when it comes to `hop`; killed when the test ends."""
    with contextlib.ExitStack() as stack:

        def start(name: str, *, lease_seconds: float = settings.lease_seconds, **where: Any) -> Service:
            own = settings.model_copy(update={"lease_seconds": lease_seconds})
            service = deployment.celery_worker(name, own, folder=tmp_path)
            service.start(**where)
            stack.callback(service.kill)
            return service

        yield start


@pytest.fixture
def beat(settings: Settings, tmp_path: Path) -> Iterator[Service]:
    """What makes the workers look every second; a test starts it. Killed when the test ends."""
    service = deployment.celery_beat(settings, folder=tmp_path)
    yield service
    service.kill()


@pytest.fixture
def live(new_model: Make, new_dataset: Make, work: Callable[[], int]) -> dict[str, Any]:
    """A live model."""
    model = new_model(new_dataset()["id"], noise_scale=0.02)
    assert work() == 1
    return model


def _completed(get: Get, request: dict[str, Any]) -> bool:
    return bool(get(f"/deletion-requests/{request['id']}")["status"] == "completed")


def _runs(get: Get) -> list[tuple[str, str]]:
    return [(run["kind"], run["status"]) for run in get("/runs")["items"]]


def test_message_says_nothing(
    broker: processes.Redis, gateway: TestClient, new_model: Make, forget: Make, work: Callable[[], int]
) -> None:
    """What waits in the broker names no person, request, model, dataset or run: its task has no arguments."""
    person = "somebody-by-name"
    file = people(person, *(f"p{number}" for number in range(30)))
    dataset = gateway.post("/v1/datasets", data=FORM, files={"file": ("people.npz", file)}).json()
    model = new_model(dataset["id"])
    work()
    request = forget(person)
    with redis.Redis(port=broker.port) as client:
        wait_until(lambda: client.llen("celery") == 2)
        messages = client.lrange("celery", 0, -1)
        everything = b"".join(client.dump(key) for key in client.scan_iter())
    for message in messages:
        body = json.loads(base64.b64decode(json.loads(message)["body"]))
        assert body == [[], {}, {"callbacks": None, "errbacks": None, "chain": None, "chord": None}]
        for name in (dataset["id"], model["id"], request["id"], request["subject_ref"], person):
            assert name.encode() not in message
            assert name.encode() not in everything


@BOTH_AT_LENGTH
def test_request_completes(
    settings: Settings,
    broker: Broker,
    installation: Installation,
    tmp_path: Path,
    new_dataset: Make,
    new_model: Make,
    forget: Make,
    get: Get,
) -> None:
    """A Celery worker learns a model and completes a request when it is notified, without a sweeper."""
    command = [sys.executable, "-m", "celery", "-A", "worker.celery_app", "worker", "--pool", "solo"]
    environment = processes.environment_of(settings.data_dir, broker_url=broker.url)
    with (
        (tmp_path / "celery.log").open("ab") as log,
        subprocess.Popen(command, env=environment, cwd=tmp_path, stdout=log, stderr=log) as started,
    ):
        try:
            model = new_model(new_dataset()["id"], noise_scale=0.02)
            wait_until(lambda: get(f"/models/{model['id']}")["status"] == "live")
            request = forget("p3")
            wait_until(lambda: _completed(get, request))
            started.terminate()
            assert started.wait(120) == 0
        finally:
            started.kill()
    assert_all_done_once(installation)


@pytest.mark.soak
@BOTH_BROKERS
def test_work_from_before_any_worker_is_found(
    worker: Worker,
    beat: Service,
    broker: Broker,
    installation: Installation,
    new_dataset: Make,
    new_model: Make,
    forget: Make,
    get: Get,
) -> None:
    """A worker that starts last, on a broker that lost every message, finds what was asked for by itself."""
    new_model(new_dataset()["id"], noise_scale=0.02)
    request = forget("p3")
    broker.kill()
    broker.start()
    one = worker("one")
    beat.start()
    wait_until(lambda: _completed(get, request))
    assert one.child.stop() == 0
    assert_all_done_once(installation)


@BOTH_AT_LENGTH
@pytest.mark.parametrize("how", ["gone", "silent"])
def test_broker_away_while_submitting(
    how: str,
    worker: Worker,
    beat: Service,
    broker: Broker,
    installation: Installation,
    live: dict[str, Any],
    forget: Make,
    get: Get,
) -> None:
    """Without a broker, or with one that does not answer, requests are accepted within 5 s; they are done once it is
    back, also where the worker ended for want of it and was started again."""
    one = worker("one")
    one.ready()
    if how == "gone":
        broker.kill()
    else:
        broker.send(signal.SIGSTOP)
    made, waits = [], []
    for person in range(3):
        started = time.monotonic()
        made.append(forget(f"p{person}"))
        waits.append(time.monotonic() - started)
    assert sorted(waits)[1] < 5  # the machine itself may be late once
    if how == "gone":
        broker.start()
    else:
        broker.send(signal.SIGCONT)
    beat.start()

    def all_completed() -> bool:
        for service in (one, beat):
            service.restart_if_ended()
        return all(_completed(get, request) for request in made)

    wait_until(all_completed)
    assert one.child.stop() == 0
    assert_all_done_once(installation)


def test_worker_killed_in_a_run(
    worker: Worker, beat: Service, installation: Installation, live: dict[str, Any], forget: Make, get: Get
) -> None:
    """What a Celery worker held that was killed -9 is done by another when its lease is over, once."""
    one = worker("one", hop="mid-chain", act=hops.die)
    request = forget("p3")
    assert one.child.died() == -signal.SIGKILL
    two = worker("two")
    beat.start()
    wait_until(lambda: _completed(get, request))
    assert two.child.stop() == 0
    assert _runs(get) == [("unlearn", "published"), ("unlearn", "abandoned"), ("learn", "published")]
    assert_all_done_once(installation)


def _versions(installation: Installation) -> list[tuple[str, str]]:
    with installation.database.reading() as session:
        return [(version.id, version.weights_sha256) for version in session.scalars(sa.select(Version))]


def test_a_message_lost_with_its_worker(
    worker: Worker,
    beat: Service,
    broker: processes.Redis,
    installation: Installation,
    live: dict[str, Any],
    forget: Make,
    get: Get,
) -> None:
    """A request whose only message was given to a worker that died before it looked is done by the next sweep."""
    with redis.Redis(port=broker.port) as client:
        client.flushall()  # what was rung for the model
        one = worker("one", hop="heard", act=hops.die)
        one.ready()
        request = forget("p3")
        assert one.child.died() == -signal.SIGKILL
        client.flushall()
    two = worker("two")
    two.ready()
    assert not _completed(get, request)
    beat.start()
    wait_until(lambda: _completed(get, request))
    assert two.child.stop() == 0
    assert _runs(get) == [("unlearn", "published"), ("learn", "published")]
    assert_all_done_once(installation)


def test_a_message_doubled(
    worker: Worker, broker: processes.Redis, installation: Installation, live: dict[str, Any], forget: Make, get: Get
) -> None:
    """Two workers that hear the bell a hundred times, before, during and after a request, do one run."""
    for _ in range(50):
        installation.notifier.wake()
    request = forget("p3")
    workers = [worker(name, lease_seconds=30.0) for name in ("one", "two")]
    wait_until(lambda: _completed(get, request))
    for _ in range(50):
        installation.notifier.wake()
    with redis.Redis(port=broker.port) as client:
        wait_until(lambda: client.llen("celery") == 0)
    assert [one.child.stop() for one in workers] == [0, 0]
    assert _runs(get) == [("unlearn", "published"), ("learn", "published")]
    assert_all_done_once(installation)


def test_a_message_delayed(
    worker: Worker,
    beat: Service,
    broker: processes.Redis,
    installation: Installation,
    live: dict[str, Any],
    forget: Make,
    get: Get,
) -> None:
    """A message that arrives when everything was done long ago changes nothing; nobody waited for it."""
    request = forget("p3")
    with redis.Redis(port=broker.port) as client:
        wait_until(lambda: client.llen("celery") == 2)  # one for the model
        held = client.lrange("celery", 0, -1)
        client.delete("celery")
        one = worker("one")
        beat.start()
        wait_until(lambda: _completed(get, request))
        beat.kill()
        before = _versions(installation), _runs(get)
        client.rpush("celery", *held)
        wait_until(lambda: client.llen("celery") == 0)
    assert one.child.stop() == 0
    assert (_versions(installation), _runs(get)) == before
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
"""What is no message, what is none of Celery's, and what is none of ours; for RabbitMQ they are bodies."""


def _headers(number: int) -> dict[str, Any]:
    ours = {"task": dispatch.TASK}
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
def test_worker_outlives_whatever_is_in_the_broker(
    worker: Worker, broker: Broker, installation: Installation, live: dict[str, Any], forget: Make, get: Get
) -> None:
    """Strings that are no JSON, messages of others and broken ones are dropped; the worker that read them goes on, and
    does what the next ring is about."""
    one = worker("one")
    one.ready()
    _no_rings(broker)
    wait_until(lambda: _waiting(broker) == 0)
    request = forget("p3")
    wait_until(lambda: _completed(get, request))
    assert one.child.logged("worker.message_dropped")
    assert not one.child.logged("worker.consumer_begins_anew")
    assert "no JSON" not in one.log()
    assert one.child.stop() == 0
    assert_all_done_once(installation)


def test_no_message_ends_a_worker(
    worker: Worker, broker: processes.Redis, live: dict[str, Any], forget: Make, get: Get
) -> None:
    """A worker takes no commands by the broker: one that should shut it down, as Celery's remote control does, changes
    nothing."""
    one = worker("one")
    one.ready()
    with kombu.Connection(broker.url) as connection:
        kombu.pidbox.Mailbox("celery", type="fanout", accept=["json"])(connection)._broadcast("shutdown")
    request = forget("p3")
    wait_until(lambda: _completed(get, request))
    assert one.child.stop() == 0


def test_a_worker_that_starts_verifies_the_tombstones(settings: Settings, worker: Worker) -> None:
    """Damage is known before there is a run, though no gateway looks."""
    settings.resolved_tombstones().write_text("no line of ours\n")
    worker("first")
    wait_until(lambda: (verdict := verification.last_verdict(settings)) is not None and verdict.found == "damaged")


def test_celery_worker_without_a_broker_says_what_to_do(tmp_path: Path) -> None:
    """Without LETHE_BROKER_URL the Celery worker ends with a sentence that says which setting is missing."""
    command = [sys.executable, "-c", "import worker.celery_app"]
    done = subprocess.run(
        command, env=processes.environment_of(tmp_path), cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr.startswith("LETHE_BROKER_URL is not set")
