"""Installations with short leases, so that the runs of a dead worker are soon available again."""

import pytest

from app.config import Settings
from tests.conftest import npz


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return settings.model_copy(update={"lease_seconds": 0.8, "poll_seconds": 0.1})


@pytest.fixture
def upload() -> bytes:
    """Return an upload of 2000 made-up people, one row each."""
    return npz(rows=2000)
