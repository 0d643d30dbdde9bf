"""Fixtures: a real Redis or RabbitMQ broker, and real Celery workers behind it."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from app.config import Settings
from app.features.brokers import notifiers
from tests.faults import deployment, processes
from tests.faults.deployment import Service

Make = Callable[..., dict[str, Any]]
Worker = Callable[..., Service]
Broker = processes.Redis | processes.RabbitMQ


@pytest.fixture
def broker(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Broker]:
    """Start a Redis server, unless the test specifies another broker."""
    server: Broker = getattr(request, "param", processes.Redis)(tmp_path)
    yield server
    server.kill()


@pytest.fixture
def settings(settings: Settings, broker: Broker) -> Iterator[Settings]:
    """Return the settings of an installation that notifies through the broker and has short leases."""
    changed = {"broker_url": SecretStr(broker.url), "lease_seconds": 1.5, "poll_seconds": 0.1}
    yield settings.model_copy(update=changed)
    notifiers.celery_client(broker.url).close()


@pytest.fixture
def worker(settings: Settings, tmp_path: Path) -> Iterator[Worker]:
    """Return a function that starts a Celery worker of the given name, which can apply an act to itself when it reaches
    a hop. The worker is killed when the test ends."""
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
    """Return Celery beat, which wakes the workers every second. The test starts it; the fixture kills it."""
    service = deployment.celery_beat(settings, folder=tmp_path)
    yield service
    service.kill()


@pytest.fixture
def live(new_model: Make, new_dataset: Make, work: Callable[[], int]) -> dict[str, Any]:
    """Return a live model."""
    model = new_model(new_dataset()["id"], noise_scale=0.02)
    assert work() == 1
    return model
