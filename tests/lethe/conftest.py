"""Fixtures: the SDK over real HTTP with a real gateway and worker, or with a server that misbehaves on purpose."""

from collections.abc import Iterator

import pytest

from app.config import Settings
from lethe import Client
from tests.command_line import people
from tests.faults import processes
from tests.lethe import scripted
from tests.lethe.scripted import Script

__all__ = ["people"]


@pytest.fixture
def client(settings: Settings, admin_key: str) -> Iterator[Client]:
    """Yield a client of a gateway, with the admin key. No worker runs unless the test starts one."""
    with processes.gateway(settings) as (_, address), Client(address, admin_key) as opened:
        yield opened


@pytest.fixture
def worker(settings: Settings) -> Iterator[None]:
    with processes.worker(settings):
        yield


@pytest.fixture
def script() -> Iterator[Script]:
    with scripted.running() as started:
        yield started


@pytest.fixture
def scripted_client(script: Script) -> Iterator[Client]:
    with Client(script.url, "lethe_key", retry_seconds=60.0) as opened:
        yield opened
