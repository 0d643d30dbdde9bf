"""Threads of tests: a separate thread, since the browser's driver leaves an event loop running in that of later tests,
and threads that wait for a place."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from app.turns import Turns

T = TypeVar("T")


def apart(function: Callable[..., T], *arguments: object) -> T:
    """Call a function, which may run an event loop, in a thread without one."""
    with ThreadPoolExecutor(max_workers=1) as alone:
        return alone.submit(function, *arguments).result()


def num_waiting(turns: Turns) -> int:
    """Count the waiting threads."""
    with turns._lock:
        return sum(map(len, turns._waiting.values()))
