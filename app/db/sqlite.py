"""SQLite, for one host: durable commits, one writer at a time, and no recovery of deleted values.

Deleted and overwritten values are zeroed in the file's pages (`secure_delete`), with two exceptions. The log
(`lethe.db-wal`) keeps them until it is copied into the file and truncated. Unused space in a page may retain copies of
rows that have moved to another page until the file is rewritten.
"""

import contextlib
import os
import secrets
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sa

from app.db import driver

PATIENCE_SECONDS = 30.0
"""Maximum time that a writer waits for the write lock."""
_SCRUB_SECONDS = 0.5
"""Maximum time for which a scrub keeps writers waiting while a reader still needs the log."""
_HOUR, _DAY = 3600.0, 86400.0
_REWRITE_SHARE = 1000
"""The file is rewritten hourly, or less often (but at least daily) if writers would otherwise wait for more than 1/1000
of the time."""

_LOG_PAGES = 8192
"""Number of log pages (4 KiB each) at which a commit copies the log into the file. With SQLite's default of 1000, one
batch of requests would trigger this about ten times."""


def engine(url: sa.URL, *, read_only: bool) -> sa.Engine:
    """Create an engine that uses WAL and synced commits, overwrites deleted values, enforces foreign keys and writes no
    temporary files."""
    arguments = {"timeout": PATIENCE_SECONDS, "check_same_thread": False}
    # A connection that has missed a commit reads its pages again, so the connection used last is taken first.
    engine = sa.create_engine(
        url, connect_args=arguments, hide_parameters=True, poolclass=sa.QueuePool, pool_use_lifo=True
    )

    @sa.event.listens_for(engine, "do_connect")
    def _own(_dialect: sa.Dialect, _record: Any, args: list[Any], _named: dict[str, Any]) -> None:
        _make_private(args[0])

    @sa.event.listens_for(engine, "connect")
    def _configure(connection: Any, _record: Any) -> None:
        # Otherwise Python's sqlite3 module begins transactions itself, and only before a statement that writes.
        connection.isolation_level = None
        pragmas = ("synchronous=FULL", "foreign_keys=ON", "secure_delete=ON", f"wal_autocheckpoint={_LOG_PAGES}")
        for pragma in ("temp_store=MEMORY", *(("query_only=ON",) if read_only else pragmas)):
            connection.execute(f"PRAGMA {pragma}")
        if not read_only:
            _log_ahead(connection)

    @sa.event.listens_for(engine, "begin")
    def _begin(connection: sa.Connection) -> None:
        reads = connection.get_execution_options().get("lethe_read_only", False)
        # A deferred transaction that reads before it writes can fail with SQLITE_BUSY_SNAPSHOT, whatever the timeout.
        driver.run(connection, "BEGIN DEFERRED" if reads else "BEGIN IMMEDIATE")

    return engine


def _make_private(name: str) -> None:
    """Create a missing file with mode 0600, because SQLite would make it readable by others. The log and its index
    inherit the mode. An existing file is never opened: closing it would drop all locks that SQLite holds on it in this
    process, and another process would consider itself the last user and remove the log."""
    if name and name != ":memory:" and not name.startswith("file:") and not os.path.exists(name):
        empty = f"{name}.{secrets.token_hex(8)}"
        # If this fails, SQLite reports why it cannot open the file.
        with contextlib.suppress(OSError):
            os.close(os.open(empty, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
            try:
                os.link(empty, name)
            finally:
                os.unlink(empty)


def _log_ahead(connection: sqlite3.Connection) -> None:
    """Switch a new database to WAL; an existing one keeps its mode. SQLite ignores its timeout if another process
    switches at the same time, so retry here."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def scrub(engine: sa.Engine) -> bool:
    """Copy the log into the file and truncate it. Return False if a reader still needs the log. Afterwards, every
    connection reads the file again, so that a file that was replaced in place is noticed."""
    with _outside_transactions(engine) as connection:
        connection.execute(f"PRAGMA busy_timeout={int(1000 * _SCRUB_SECONDS)}")
        try:
            busy, _, _ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        finally:
            connection.execute(f"PRAGMA busy_timeout={int(1000 * PATIENCE_SECONDS)}")
    return not busy


def rewrite(engine: sa.Engine) -> bool:
    """If a rewrite of the database file is due, rewrite it (VACUUM) and return True. Writers wait for it to finish. It
    needs as much memory as the file's size. The file's `user_version` holds the minute of the next rewrite."""
    with _outside_transactions(engine) as connection:
        (due_minute,) = connection.execute("PRAGMA user_version").fetchone()
        # A time further ahead was written by a wrong clock.
        if 0 < 60 * due_minute - time.time() <= _DAY:
            return False
        began = time.monotonic()
        # A rewrite would store the contents of damaged pages as sound ones.
        _require_sound(connection)
        connection.execute("VACUUM")
        pause = min(max(_HOUR, _REWRITE_SHARE * (time.monotonic() - began)), _DAY)
        connection.execute(f"PRAGMA user_version={int((time.time() + pause) / 60)}")
    return True


def check(engine: sa.Engine) -> None:
    """Read every page, and compare tables with their indexes. Raises `sqlite3.DatabaseError` (SQLITE_CORRUPT)."""
    with _outside_transactions(engine) as connection:
        _require_sound(connection)


def _require_sound(connection: sqlite3.Connection) -> None:
    (result,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
    if result != "ok":
        error = sqlite3.DatabaseError("tables and indexes do not agree")
        error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
        raise error


@contextmanager
def _outside_transactions(engine: sa.Engine) -> Iterator[Any]:
    borrowed = engine.raw_connection()
    try:
        yield borrowed.driver_connection
    finally:
        borrowed.close()
