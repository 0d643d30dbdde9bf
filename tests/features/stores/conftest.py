"""Fixtures: a PostgreSQL with pgvector, and the fixtures of systems."""

from collections.abc import Iterator

import pytest

from benchmarks import ghosts
from tests.command_line import lethe
from tests.features.systems.conftest import new_system, settings, settled, system_key, task_of
from tests.lethe.conftest import client

__all__ = ["client", "lethe", "new_system", "settings", "settled", "system_key", "task_of"]


@pytest.fixture(scope="session")
def pgvector() -> Iterator[str]:
    """Yield the URL of a database on a PostgreSQL server with pgvector."""
    with ghosts.postgres() as url:
        yield url
