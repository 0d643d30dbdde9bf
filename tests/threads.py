"""Threads of tests: one of its own, since the driver of the browser leaves an event loop running in that of the tests
after it, and those that wait for a turn."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from app.turns import Turns

T = TypeVar("T")


def apart(function: Callable[..., T], *arguments: object) -> T:
    """Call a function, which may run an event loop, where none is running."""
    with ThreadPoolExecutor(max_workers=1) as alone:
        return alone.submit(function, *arguments).result()


def num_waiting(turns: Turns) -> int:
    """Count the waiting threads."""
    with turns._lock:
        return sum(map(len, turns._waiting.values()))
