"""PostgreSQL, for several hosts: snapshot reads, one writer at a time, and retries while the server is unreachable."""

import datetime
import time
from typing import Any

import sqlalchemy as sa

from app import errors, telemetry

_WRITE_LOCK = int.from_bytes(b"lethe")
"""Advisory lock of writers, held to the end of the transaction, so that the next writer sees its commit."""

_CLOCK = "lethe.clock"
_CONNECTION = {
    "application_name": "lethe",
    "client_encoding": "utf8",
    "connect_timeout": 5,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}
"""Parameters for libpq unless the URL sets them. Times are in seconds, except `tcp_user_timeout` in milliseconds."""

_SERVER = {"statement_timeout": "60s", "lock_timeout": "30s", "idle_in_transaction_session_timeout": "60s"}
"""Server parameters unless the URL's `options` set them. The last one frees the write lock of a host gone silent."""

_GIVEN = "lethe.options"
"""Marker in `options`. If it is missing, a pooler between this process and the server has dropped the options."""
_SAFE = "'0' NOT IN (" + ", ".join(f"current_setting('{name}')" for name in _SERVER) + ")"
_POOLED = (
    "A pooler drops the start-up `options` of connections, so time-outs would be off: connect to PostgreSQL itself, or "
    "see docs/deployment.md for PgBouncer."
)

_POOL: dict[str, Any] = {
    "pool_size": 5,
    "max_overflow": 15,
    "pool_timeout": 10.0,
    "pool_recycle": 1800,
    "pool_use_lifo": True,
    "pool_pre_ping": True,
}


def engine(url: sa.URL, *, read_only: bool, patience_seconds: float) -> sa.Engine:
    """Create an engine that retries connections until the server has been unreachable for `patience_seconds`. Raises
    `DatabaseUnreadable` if the driver is not installed; connections raise it if a pooler drops their options and the
    role does not set them either."""
    server = [f"-c {name}={value}" for name, value in (_SERVER | {_GIVEN: "on"}).items()]
    server += [str(url.query.get("options", ""))] + ["-c default_transaction_read_only=on"] * read_only
    arguments: dict[str, Any] = {name: value for name, value in _CONNECTION.items() if name not in url.query}
    arguments["options"] = " ".join(filter(None, server))
    url = url.set(drivername="postgresql+psycopg")
    try:
        engine = sa.create_engine(url, connect_args=arguments, hide_parameters=True, **_POOL)
    except ModuleNotFoundError as error:
        raise errors.DatabaseUnreadable("PostgreSQL needs its driver: pip install 'lethe-server[postgres]'.") from error
    outage = _Outage(patience_seconds)
    safe = _SAFE + " AND current_setting('default_transaction_read_only') = 'on'" * read_only

    @sa.event.listens_for(engine, "do_connect")
    def _connect(dialect: sa.Dialect, _record: Any, args: list[Any], named: dict[str, Any]) -> Any:
        assert dialect.dbapi
        while True:
            try:
                connection = dialect.connect(*args, **named)
            except dialect.dbapi.OperationalError as error:
                if not outage.may_end(error):
                    raise
            else:
                outage.ended()
                _check_options(connection, safe)
                return connection

    @sa.event.listens_for(engine, "begin")
    def _begin(connection: sa.Connection) -> None:
        connection.info.pop(_CLOCK, None)
        options = connection.get_execution_options()
        reads = options.get("lethe_read_only", False)
        driver: Any = connection.connection.driver_connection
        psycopg: Any = connection.dialect.dbapi
        # A writer's snapshot must be newer than its lock; REPEATABLE READ would take it before the wait for the lock.
        level = psycopg.IsolationLevel.REPEATABLE_READ if reads else None
        # The level takes effect with the BEGIN that the first statement sends, or fails to send on a closed connection.
        if driver.isolation_level != level and not driver.closed:
            driver.isolation_level = level
        # Neither migrations nor their wait for another migration have a time limit.
        if options.get("lethe_migrating", False):
            connection.exec_driver_sql("SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = 0")
            connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_WRITE_LOCK})")
            connection.exec_driver_sql("SET LOCAL lock_timeout TO DEFAULT")
        elif not reads and options.get("lethe_exclusive", True):
            clock(connection, source=f"FROM pg_advisory_xact_lock({_WRITE_LOCK})")

    return engine


def clock(connection: sa.Connection, *, source: str = "") -> tuple[datetime.datetime, float]:
    """Return the server's time and the monotonic time, read once per transaction; writers read it with their lock."""
    if _CLOCK not in connection.info:
        # now() is the start of the transaction, which may have waited for the lock since.
        at: datetime.datetime = connection.exec_driver_sql(f"SELECT clock_timestamp() {source}").scalar_one()
        connection.info[_CLOCK] = at.astimezone(datetime.UTC), time.monotonic()
    known: tuple[datetime.datetime, float] = connection.info[_CLOCK]
    return known


def _check_options(connection: Any, safe: str) -> None:
    """Raise `DatabaseUnreadable` if a pooler dropped the connection's options and the expression `safe` is false.
    Behind such a pooler, disable prepared statements: the next transaction may use another server connection."""
    with connection.transaction():
        given, is_safe = connection.execute(f"SELECT current_setting('{_GIVEN}', true), {safe}").fetchone()
    if given is None:
        connection.prepare_threshold = None
        if not is_safe:
            connection.close()
            raise errors.DatabaseUnreadable(_POOLED)


class _Outage:
    """Server outage, shared by the threads of one process. The threads wait together for it to end, instead of each
    waiting for the full time."""

    def __init__(self, patience_seconds: float) -> None:
        self._patience = patience_seconds
        self._began: float | None = None
        self._seen = 0.0

    def may_end(self, error: Exception) -> bool:
        """Pause after a failed connection and return True if the caller should try again."""
        at = time.monotonic()
        # A failure long after the last one belongs to a new outage.
        if self._began is None or at - self._seen > max(self._patience, 10.0):
            self._began = at
            telemetry.logger().warning("database.unreachable", error=type(error).__name__)
        self._seen = at
        if at - self._began >= self._patience:
            return False
        time.sleep(0.1)
        return True

    def ended(self) -> None:
        self._began = None
