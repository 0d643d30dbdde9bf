"""SQLite, for one machine: a database that loses nothing, in which writers take turns."""

from typing import Any

import sqlalchemy as sa

_PATIENCE_SECONDS = 30.0
"""How long a writer waits for its turn."""


def engine(url: sa.URL, *, read_only: bool) -> sa.Engine:
    """WAL, every commit synced, deleted content overwritten, foreign keys enforced."""
    arguments = {"timeout": _PATIENCE_SECONDS, "check_same_thread": False}
    engine = sa.create_engine(url, connect_args=arguments, hide_parameters=True)

    @sa.event.listens_for(engine, "connect")
    def _configure(connection: Any, _record: Any) -> None:
        connection.isolation_level = None
        pragmas = ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON", "secure_delete=ON")
        for pragma in ("query_only=ON",) if read_only else pragmas:
            connection.execute(f"PRAGMA {pragma}")

    @sa.event.listens_for(engine, "begin")
    def _begin(connection: sa.Connection) -> None:
        reads = connection.get_execution_options().get("lethe_read_only", False)
        connection.exec_driver_sql("BEGIN DEFERRED" if reads else "BEGIN IMMEDIATE")

    return engine
