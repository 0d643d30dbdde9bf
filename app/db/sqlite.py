"""SQLite, for one machine: a database that loses nothing but what is to be forgotten, with one writer at a time.

What is deleted or updated is overwritten in the pages of the file (`secure_delete`), with two exceptions: the log
(`lethe.db-wal`) keeps it until it is copied into the file and truncated, and where rows moved between pages the page
that they left may keep a copy, in space that nothing uses, until the file is written anew.
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

_PATIENCE_SECONDS = 30.0
"""Longest time that a writer waits for the write lock."""
_SCRUB_SECONDS = 0.5
"""Longest time that writers may have to wait because a reader still needs the log."""
_HOUR, _DAY = 3600.0, 86400.0
_REWRITE_SHARE = 1000
"""The file is written anew every hour; where that keeps writers waiting for more than a thousandth of the time, more
rarely, but every day."""

_LOG_PAGES = 8192
"""Pages (4 KiB) in the log from which on the one who commits copies it into the file: with SQLite's own 1000 a batch of
requests would do so some ten times."""


def engine(url: sa.URL, *, read_only: bool) -> sa.Engine:
    """WAL, every commit synced, deleted content overwritten, foreign keys enforced, no temporary files."""
    arguments = {"timeout": _PATIENCE_SECONDS, "check_same_thread": False}
    engine = sa.create_engine(url, connect_args=arguments, hide_parameters=True)

    @sa.event.listens_for(engine, "do_connect")
    def _own(_dialect: sa.Dialect, _record: Any, given: list[Any], _named: dict[str, Any]) -> None:
        _make_private(given[0])

    @sa.event.listens_for(engine, "connect")
    def _configure(connection: Any, _record: Any) -> None:
        connection.isolation_level = None
        pragmas = ("synchronous=FULL", "foreign_keys=ON", "secure_delete=ON", f"wal_autocheckpoint={_LOG_PAGES}")
        for pragma in ("temp_store=MEMORY", *(("query_only=ON",) if read_only else pragmas)):
            connection.execute(f"PRAGMA {pragma}")
        if not read_only:
            _log_ahead(connection)

    @sa.event.listens_for(engine, "begin")
    def _begin(connection: sa.Connection) -> None:
        reads = connection.get_execution_options().get("lethe_read_only", False)
        connection.exec_driver_sql("BEGIN DEFERRED" if reads else "BEGIN IMMEDIATE")

    return engine


def _make_private(name: str) -> None:
    """Make a file that is not there, for its owner only, before SQLite would make it readable; its log and index get
    the modes it has.

    One that is there is never opened: to close it again would drop all locks that SQLite holds on it in this process,
    and another process would take itself for the last, and remove the log.
    """
    if name and name != ":memory:" and not name.startswith("file:") and not os.path.exists(name):
        empty = f"{name}.{secrets.token_hex(8)}"
        with contextlib.suppress(OSError):  # SQLite will say what it cannot do
            os.close(os.open(empty, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
            try:
                os.link(empty, name)
            finally:
                os.unlink(empty)


def _log_ahead(connection: sqlite3.Connection) -> None:
    """Make a new database one with a log (WAL); others stay what they are. SQLite waits for no other process that does
    so at the same moment, whatever the timeout says: this does."""
    until = time.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > until:
                raise
            time.sleep(0.01)


def scrub(engine: sa.Engine) -> bool:
    """Copy the log into the file and truncate it; whether that could be done: a reader may need the log."""
    with _outside_transactions(engine) as connection:
        connection.execute(f"PRAGMA busy_timeout={int(1000 * _SCRUB_SECONDS)}")
        try:
            busy, _, _ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        finally:
            connection.execute(f"PRAGMA busy_timeout={int(1000 * _PATIENCE_SECONDS)}")
    return not busy


def rewrite(engine: sa.Engine) -> bool:
    """Write the file anew from what is in it (VACUUM), if it is time to; whether it was. Writers wait meanwhile, and
    it takes as much memory as the file is long. When it is due next is noted in the file itself, as its version."""
    with _outside_transactions(engine) as connection:
        (due_minute,) = connection.execute("PRAGMA user_version").fetchone()
        if 0 < 60 * due_minute - time.time() <= _DAY:  # more, and it was noted by a clock that went wrong
            return False
        began = time.monotonic()
        _require_sound(connection)  # else what a damaged page says would be written anew as if it were so
        connection.execute("VACUUM")
        pause = min(max(_HOUR, _REWRITE_SHARE * (time.monotonic() - began)), _DAY)
        connection.execute(f"PRAGMA user_version={int((time.time() + pause) / 60)}")
    return True


def check(engine: sa.Engine) -> None:
    """Read every page, and compare tables with their indexes. Raises `sqlite3.DatabaseError` (SQLITE_CORRUPT)."""
    with _outside_transactions(engine) as connection:
        _require_sound(connection)


def _require_sound(connection: sqlite3.Connection) -> None:
    (found,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
    if found != "ok":
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
