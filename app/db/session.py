"""Sessions: one for reading, one for writing. Nothing else in the project commits."""

import datetime
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session, sessionmaker

UTC = datetime.UTC


class Database:
    """The database of one process; `close` gives its connections back.

    `read_only`: the database itself refuses whatever would change it.
    """

    def __init__(self, url: str, *, read_only: bool = False) -> None:
        sqlite = sa.make_url(url).get_backend_name() == "sqlite"
        self.engine = _sqlite(url, read_only=read_only) if sqlite else _server(url, read_only=read_only)
        self._sessions = sessionmaker(self.engine, expire_on_commit=False)

    @contextmanager
    def reading(self) -> Iterator[Session]:
        """A session on one snapshot; whatever it changed is rolled back."""
        with self._sessions() as session:
            session.connection(execution_options={"lethe_read_only": True})
            yield session

    @contextmanager
    def writing(self) -> Iterator[Session]:
        """A session that is committed when the block ends, and rolled back if it raises."""
        with self._sessions.begin() as session:
            yield session

    def close(self) -> None:
        self.engine.dispose()


def now(session: Session) -> datetime.datetime:
    """The database's clock (aware UTC): leases are compared on it, whatever the hosts believe."""
    if session.get_bind().dialect.name == "sqlite":
        text = session.scalar(sa.text("SELECT strftime('%Y-%m-%dT%H:%M:%f', 'now')"))
        return datetime.datetime.fromisoformat(str(text)).replace(tzinfo=UTC)
    stamp = session.scalar(sa.select(sa.func.clock_timestamp()))
    assert isinstance(stamp, datetime.datetime)
    return stamp.astimezone(UTC)


def _server(url: str, *, read_only: bool) -> sa.Engine:
    arguments = {"options": "-c default_transaction_read_only=on"} if read_only else {}
    return sa.create_engine(url, pool_pre_ping=True, hide_parameters=True, connect_args=arguments)


def _sqlite(url: str, *, read_only: bool) -> sa.Engine:
    """SQLite that loses nothing: WAL, every commit synced, deleted content overwritten, writers queue up in turn."""
    engine = sa.create_engine(url, connect_args={"timeout": 30.0, "check_same_thread": False}, hide_parameters=True)

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
