"""Fixtures for the command line, alone and with a live gateway and worker, and for a fixed clock."""

import time
from collections.abc import Callable

import pytest

from tests.command_line import certified, lethe, live, people

__all__ = ["certified", "lethe", "live", "people"]


@pytest.fixture
def minute(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Fix the clock at the tenth second of the current minute; calling the fixture sets it to the minute with
    the given number."""

    def at(number: int) -> None:
        monkeypatch.setattr(time, "time", lambda: number * 60 + 10.0)

    at(int(time.time()) // 60)
    return at
