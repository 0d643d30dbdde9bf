"""A thread of its own: the driver of the browser leaves an event loop running in the thread of the tests after it."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


def apart(function: Callable[..., T], *arguments: object) -> T:
    """Call a function, which may run an event loop, where none is running."""
    with ThreadPoolExecutor(max_workers=1) as alone:
        return alone.submit(function, *arguments).result()
