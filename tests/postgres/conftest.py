"""Installations on PostgreSQL with short leases, so that the runs of a dead worker are soon available again."""

import pytest

from app.config import Settings


@pytest.fixture(scope="session")
def kind() -> str:
    return "postgresql"


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return settings.model_copy(update={"lease_seconds": 0.8, "poll_seconds": 0.1})
