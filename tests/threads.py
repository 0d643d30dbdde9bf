"""Threads of tests: a separate thread, since the browser's driver leaves an event loop running in that of later tests,
and threads that wait for a place."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from app.turns import Turns

T = TypeVar("T")


def apart(function: Callable[..., T], *arguments: object) -> T:
    """Call a function that may run an event loop in a thread without a running one, and return its result."""
    with ThreadPoolExecutor(max_workers=1) as alone:
        return alone.submit(function, *arguments).result()


def num_waiting(turns: Turns) -> int:
    """Return the number of waiting threads."""
    with turns._lock:
        return sum(map(len, turns._waiting.values()))
