"""A measure of SQLite's work that does not depend on the machine."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import sqlalchemy as sa

_EACH = 1_000


@contextlib.contextmanager
def instructions() -> Iterator[Callable[[], int]]:
    """Count the SQLite virtual-machine instructions of all statements in this process, in thousands, rounded down for
    each statement."""
    counted = 0

    def count() -> None:
        nonlocal counted
        counted += _EACH

    def watch(connection: sa.Connection, *_: Any) -> None:
        connection.connection.driver_connection.set_progress_handler(count, _EACH)  # type: ignore[union-attr]

    sa.event.listen(sa.Engine, "before_cursor_execute", watch)
    try:
        yield lambda: counted
    finally:
        sa.event.remove(sa.Engine, "before_cursor_execute", watch)
