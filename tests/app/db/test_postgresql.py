import re
import statistics
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa
from psycopg.errors import PipelineAborted, UniqueViolation
from sqlalchemy.exc import DBAPIError, IntegrityError, OperationalError

import app
from app.access import service as access
from app.db import Actor, Database, driver
from app.db.tables import ApiKey
from app.errors import DatabaseUnreadable
from app.installations import Installation
from tests.faults.processes import wait_until

pytestmark = pytest.mark.postgres


@pytest.fixture(scope="session")
def kind() -> str:
    return "postgresql"


@pytest.fixture
def url(new_url: str) -> str:
    return new_url


def setting(database: Database, name: str) -> str:
    with database.reading() as session:
        return session.scalars(sa.text(f"SHOW {name}")).one()


@contextmanager
def opened(url: str, **options: object) -> Iterator[Database]:
    with closing(Database(url, **options)) as database:  # type: ignore[arg-type]
        yield database


def test_a_connection_has_safe_limits(url: str) -> None:
    """PostgreSQL connections have timeouts and an application name."""
    with opened(url) as database:
        names = ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout", "application_name")
        assert [setting(database, name) for name in names] == ["1min", "30s", "1min", "lethe"]


def test_the_url_overrides_connection_limits(url: str) -> None:
    """The URL can override every limit of a connection, but cannot make a read-only connection writable."""
    chosen = "?application_name=other&options=-c%20lock_timeout%3D7s%20-c%20default_transaction_read_only%3Doff"
    with opened(url + chosen, read_only=True) as database:
        names = ("application_name", "lock_timeout", "statement_timeout", "default_transaction_read_only")
        assert [setting(database, name) for name in names] == ["other", "7s", "1min", "on"]


def test_a_read_only_database_refuses_writes(installation: Installation, by: Actor) -> None:
    """On a read-only database, the server itself refuses writes."""
    url = installation.settings.resolved_database_url()
    with (
        opened(url, read_only=True) as database,
        pytest.raises(DBAPIError, match="read-only"),
        database.writing(by=by) as session,
    ):
        access.add_key(session, name="a", key="k", scopes=[])


def test_a_writer_without_the_lock_times_out(url: str) -> None:
    """If a writer does not get the write lock before the timeout, it raises the same error as for an unreachable
    database."""
    with opened(url + "?options=-c%20lock_timeout%3D200ms") as database, opened(url) as other:
        with other.writing() as first:
            first.execute(sa.text("SELECT 1"))
            with pytest.raises(OperationalError), database.writing() as second:
                second.execute(sa.text("SELECT 1"))
        with database.writing() as third:
            assert third.scalar(sa.text("SELECT 1")) == 1


def test_an_idle_transaction_loses_its_connection(url: str) -> None:
    """If a transaction is idle for too long, its connection is closed, and the next transaction gets a new one."""
    with opened(url + "?options=-c%20idle_in_transaction_session_timeout%3D1s") as database, opened(url) as other:

        def connected(process: int) -> bool:
            with other.reading() as session:
                found = session.scalars(sa.text("SELECT pid FROM pg_stat_activity")).all()
            return process in found

        def fall_silent() -> None:
            with database.writing() as session:
                mine = session.scalar(sa.text("SELECT pg_backend_pid()"))
                wait_until(lambda: not connected(mine))
                session.execute(sa.text("SELECT 1"))

        with pytest.raises(OperationalError):
            fall_silent()
        with database.writing() as session:
            assert session.scalar(sa.text("SELECT 1")) == 1


def test_a_connection_lost_after_its_ping_is_replaced(url: str) -> None:
    """If the server closes a connection after the ping but before the transaction, the transaction fails as if the
    database were unreachable, and the next transaction gets a new connection."""
    with opened(url) as database, opened(url) as other:

        def end(driver: psycopg.Connection[Any], *_: object) -> None:
            with other.writing() as session:
                session.execute(sa.text("SELECT pg_terminate_backend(:pid, 10000)"), {"pid": driver.info.backend_pid})
            with pytest.raises(psycopg.OperationalError):
                driver.execute("SELECT 1")

        with database.writing() as session:
            assert session.scalar(sa.text("SELECT 1")) == 1
        sa.event.listen(database.engine, "checkout", end, once=True)
        with pytest.raises(OperationalError), database.reading() as session:
            session.scalar(sa.text("SELECT 1"))
        with database.reading() as session:
            assert session.scalar(sa.text("SELECT 1")) == 1


def test_an_aborted_pipeline_raises_the_first_error(url: str) -> None:
    """If the driver's last error merely reports that the pipeline was aborted, the first error is raised instead."""

    def end() -> None:
        with opened(url) as database, database.writing() as session, driver.translated(session.connection(), None):
            try:
                raise UniqueViolation
            finally:
                raise PipelineAborted

    with pytest.raises(IntegrityError):
        end()


def test_a_heartbeat_needs_no_write_lock(url: str) -> None:
    """A session that does not need the write lock, such as a heartbeat, can proceed while another session is
    writing."""
    with opened(url) as database, database.writing() as first:
        first.execute(sa.text("SELECT 1"))
        with database.writing(exclusive=False) as second:
            assert second.scalar(sa.text("SELECT 1")) == 1


def test_a_session_does_not_inherit_the_mode_of_its_connection(installation: Installation) -> None:
    """A connection that was last used for reading, or for writing without the write lock, takes the lock the next time
    it is used for an ordinary write."""
    with installation.database.reading() as session:
        session.execute(sa.text("SELECT 1"))
    with installation.database.writing(exclusive=False) as session:
        session.execute(sa.text("SELECT 1"))
    with installation.database.writing() as session:
        held = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()"
        assert session.scalar(sa.text(held)) == 1
        assert session.scalar(sa.text("SHOW transaction_isolation")) == "read committed"


def test_excess_sessions_wait_for_a_connection(installation: Installation) -> None:
    """If there are more sessions than connections in the pool, the excess sessions wait for a connection, and
    all succeed."""
    together = threading.Barrier(20)

    def read(number: int) -> int:
        if number < 20:
            together.wait()
        with installation.database.reading() as session:
            session.execute(sa.text("SELECT pg_sleep(0.05)"))
            return len(session.scalars(sa.select(ApiKey)).all())

    with ThreadPoolExecutor(40) as threads:
        assert list(threads.map(read, range(80))) == [1] * 80


@pytest.mark.parametrize("patience", [0.0, 2.0])
def test_only_the_first_call_waits_for_the_server(patience: float) -> None:
    """Only the first call waits for an unreachable server; later calls fail at once."""
    with opened("postgresql://nobody@127.0.0.1:1/none", patience_seconds=patience) as database:
        waited = []
        for _ in range(10):
            started = time.monotonic()
            with pytest.raises(OperationalError), database.reading() as session:
                session.execute(sa.text("SELECT 1"))
            waited.append(time.monotonic() - started)
        assert patience <= waited[0] < patience + 30
        assert statistics.median(waited[1:]) < 1.5


@pytest.mark.parametrize("url", ["mysql://somewhere/lethe", "nonsense"])
def test_unsupported_databases_are_refused(url: str) -> None:
    """A database URL for anything other than SQLite or PostgreSQL is refused, and the error names the setting."""
    with pytest.raises(DatabaseUnreadable, match="LETHE_DATABASE_URL"):
        Database(url)


def test_only_one_package_depends_on_the_database() -> None:
    """No code outside `app/db` depends on which database is in use."""
    root = Path(app.__file__).parents[1]
    sources = (path for folder in ("app", "worker") for path in (root / folder).rglob("*.py"))
    asking = {
        path.relative_to(root).parent.as_posix() for path in sources if re.search(r"\bdialect\.[a-z]", path.read_text())
    }
    assert asking == {"app/db"}
