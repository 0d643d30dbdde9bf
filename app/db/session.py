"""Sessions for reading and for writing. Nothing else in the project commits.

This package also hides the differences between SQLite and PostgreSQL: transactions, clocks and retries.
"""

import datetime
import functools
import re
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import LoaderCriteriaOption, ORMExecuteState, Session, sessionmaker, with_loader_criteria

from app import errors, telemetry, turns
from app.db import functions, postgresql, sealed, sqlite
from app.db.tables import Certificate, DeletionRequest, Owned, Suppression, Table
from lethe import sockets
from lethe.contract.problems import DatabaseDamaged, Problem

UTC = datetime.UTC
EVER = datetime.datetime.max.replace(tzinfo=UTC)
"""Time by which everything is due that becomes due without a commit."""

_UNABLE_NOW = ("25006", "25P03", "25P04")
"""PostgreSQL error codes for a read-only server, such as a standby, and for transactions ended by a timeout."""
_DAMAGED_IN_SQLITE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_DAMAGED_IN_POSTGRESQL = ("XX001", "XX002")
_FULL_IN_POSTGRESQL = "53100"
_NOT_ITS_OWN = "A statement for one tenant reaches what belongs to all; it must select by the classes of app.db.tables."


@dataclass(frozen=True, slots=True, kw_only=True)
class Actor:
    """Actor of a session: its tenant, and the name of the API key, person or service component. With `maker` (an API
    key and its rotations), the session sees only this key's deletion requests and the objects that belong to them."""

    tenant_id: str
    name: str
    maker: str | None = None


class Database:
    """Database of one process. Temporary failures are raised as `sqlalchemy.exc.OperationalError`.

    Args:
        vault: Vault that seals and opens callers' texts. Without it, they cannot be stored and are read as empty.
        read_only: Whether the database itself refuses changes.
        patience_seconds: How long a session waits for an unreachable server before it raises, having done nothing.

    Raises:
        DatabaseUnreadable: if the database is neither SQLite nor PostgreSQL.
    """

    def __init__(
        self, url: str, *, vault: sealed.Sealer | None = None, read_only: bool = False, patience_seconds: float = 2.0
    ) -> None:
        self.engine = _engine(url, read_only=read_only, patience_seconds=patience_seconds)
        self.read_only = read_only
        self._url = url
        if vault is not None:
            sealed.give(self.engine, vault)
        self.turns = _turns.setdefault(url, turns.Turns())
        self._guard: Callable[[], None] = lambda: None
        self._watch: Any = None
        self._watching = threading.Lock()
        self._answers: dict[Callable[..., object], tuple[object, bool]] = {}
        self._sessions = sessionmaker(self.engine, expire_on_commit=False)
        sa.event.listen(self._sessions, "do_orm_execute", _of_its_tenant)
        sa.event.listen(self.engine, "before_cursor_execute", _refuse_unowned)

    @property
    def name(self) -> str:
        """Names of the dialect and the driver, for display."""
        return f"{self.engine.dialect.name} by {self.engine.dialect.driver}"

    def guard(self, check: Callable[[], None]) -> None:
        """Call `check` before each session; if it raises, the session does not begin."""
        self._guard = check

    @contextmanager
    def reading(self, *, by: Actor | None = None) -> Iterator[Session]:
        """Open a session on one snapshot; its changes are rolled back. With `by`, it sees only objects of the actor's
        tenant; without `by` (workers, operations), it sees everything."""
        with self._named(), self._guarded(by) as session:
            session.connection(execution_options={"lethe_read_only": True})
            yield session

    @contextmanager
    def writing(self, *, by: Actor | None = None, exclusive: bool = True, tenant_id: str = "") -> Iterator[Session]:
        """Open a session that is committed at the end of the block, or rolled back if it raises; `by` as in `reading`.

        All hosts share one write lock. From its first statement on, a block sees every commit and is the only writer. A
        block that locks and changes a single row needs no write lock: without `exclusive`, only SQLite takes it.

        Writers in one process alternate between tenants: the tenant of `by`, or `tenant_id` for a session that sees
        everything and works for one tenant. The service's own sessions count as one additional tenant.
        """
        turn: AbstractContextManager[None] = nullcontext()
        if exclusive or self.engine.dialect.name == "sqlite":
            turn = self.turns.taken(by.tenant_id if by else tenant_id, seconds=sqlite.PATIENCE_SECONDS)
        with self._named(), turn, self._guarded(by) as session, session.begin():
            if not exclusive:
                session.connection(execution_options={"lethe_exclusive": False})
            yield session

    def is_ruled_out(self, question: Callable[..., object], **arguments: object) -> bool:
        """Return True if `question`, called with a session and `arguments`, returned a false value and nothing has been
        committed since, so that a poller need not read. The answer must not depend on the time: ask for what is due at
        `EVER`. On PostgreSQL, which does not tell of commits, nothing is ruled out."""
        asked = self._commits(), arguments
        known, answer = self._answers.get(question, (None, True))
        if asked[0] is not None and known != asked:
            with self.reading() as session:
                answer = bool(question(session, **arguments))
            self._answers[question] = asked, answer
        return asked[0] is not None and not answer

    def _commits(self) -> object:
        """Return a value that changes with each commit; None if it is unknown. The connection that watches SQLite's
        file never writes, since its own commits would not count, and takes up no place in the pool."""
        with self._watching, suppress(sa.exc.SQLAlchemyError, sqlite3.Error):
            if self._watch is None and self.engine.dialect.name == "sqlite":
                borrowed = self.engine.raw_connection()
                borrowed.detach()
                self._watch = borrowed.dbapi_connection
            return self._watch and self._watch.execute("PRAGMA data_version").fetchall()
        return None

    def refuse_callers(self, reason: Problem | None) -> None:
        """Make this process refuse all sessions on behalf of an actor by raising `reason`, or accept them again if it
        is None. The service's own sessions are not affected."""
        _refused[self._url] = reason

    def require_served(self) -> None:
        """Raise the reason for refusing callers, if there is one."""
        if reason := _refused.get(self._url):
            raise type(reason)(reason.detail)

    def _guarded(self, by: Actor | None) -> Session:
        if self._url in _damaged:
            raise _damage()
        if by is not None:
            self.require_served()
        self._guard()
        return self._sessions(info={"actor": by})

    @contextmanager
    def looking(self) -> Iterator[sa.Connection]:
        """Open an unguarded read-only connection, to identify the installation that owns the database."""
        with self._named(), self.engine.connect().execution_options(lethe_read_only=True) as connection:
            yield connection

    def check(self) -> None:
        """Read the whole database on SQLite, to find damaged pages that no query reads. If there are any, this and
        every later session of this process raise `DatabaseDamaged`."""
        if self.engine.dialect.name == "sqlite":
            with self._named():
                sqlite.check(self.engine)

    def scrub(self) -> None:
        """Remove deleted and overwritten values from SQLite's files, unless a reader still needs them; the next call
        removes the rest. PostgreSQL's files are out of reach, but personal data arrives there already sealed."""
        if self.engine.dialect.name == "sqlite":
            with self._named():
                try:
                    sqlite.rewrite(self.engine)
                finally:
                    sqlite.scrub(self.engine)

    def close(self) -> None:
        if self._watch:
            self._watch.close()
        self.engine.dispose()

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Translate database errors. After damage, refuse all further sessions."""
        try:
            yield
        # All connections of this process are in use, or other writers of this process come first.
        except (sa.exc.TimeoutError, turns.NoTurn) as error:
            raise sa.exc.OperationalError(None, None, error) from error
        except (sa.exc.StatementError, sqlite3.DatabaseError) as error:
            if _is_damage(error):
                _damaged.add(self._url)
                telemetry.logger().critical("database.damaged")
                raise _damage() from error
            cause: Any = getattr(error, "orig", None)
            if isinstance(error, sa.exc.InternalError) and getattr(cause, "sqlstate", None) in _UNABLE_NOW:
                raise sa.exc.OperationalError(None, None, cause) from error
            # Column types and the vault raise their own errors, which SQLAlchemy wraps.
            if not isinstance(error, sa.exc.DBAPIError) and isinstance(cause, Problem | OSError):
                raise cause from None
            raise


_refused: dict[str, Problem | None] = {}
"""Reason for refusing callers, keyed by database URL."""
_turns: dict[str, turns.Turns] = {}
"""Queues of this process's writers, keyed by database URL."""
_damaged: set[str] = set()
"""URLs of databases in which this process has found a damaged page. Their other contents are no longer trusted."""


def _is_damage(error: Exception) -> bool:
    cause = error.orig if isinstance(error, sa.exc.DBAPIError) else error
    code = getattr(cause, "sqlite_errorcode", 0) & 0xFF
    return code in _DAMAGED_IN_SQLITE or getattr(cause, "sqlstate", None) in _DAMAGED_IN_POSTGRESQL


def _damage() -> DatabaseDamaged:
    return DatabaseDamaged(
        "A page of the database is damaged, so no call is answered from it. Restore a backup with the tombstones, "
        "or repair the database, and start again."
    )


def is_full(error: sa.exc.OperationalError) -> bool:
    """Return True if the database failed because it ran out of disk space."""
    code = getattr(error.orig, "sqlite_errorcode", 0) & 0xFF
    return code == sqlite3.SQLITE_FULL or getattr(error.orig, "sqlstate", None) == _FULL_IN_POSTGRESQL


def actor(session: Session) -> Actor:
    """Return the actor of the session. Raises `RuntimeError` if it has none, because every new object must belong to a
    tenant."""
    by: Actor | None = session.info.get("actor")
    if by is None:
        raise RuntimeError("This session acts for no tenant.")
    return by


def _of_its_tenant(execution: ORMExecuteState) -> None:
    """Restrict every query, including its joins, to objects of the session's tenant."""
    by: Actor | None = execution.session.info.get("actor")
    if by is None or execution.is_column_load or execution.is_relationship_load:
        return
    # Loader criteria do not apply to bulk updates by primary key.
    if execution.is_update and isinstance(execution.parameters, Sequence):
        raise RuntimeError(_NOT_ITS_OWN)
    execution.statement = execution.statement.options(_own(by.tenant_id))
    if by.maker is not None:
        execution.statement = execution.statement.options(*_made_by(by.tenant_id, by.maker))
    execution.update_execution_options(lethe_of_tenant=True)


@functools.lru_cache(maxsize=1000)
def _own(tenant_id: str) -> LoaderCriteriaOption:
    return with_loader_criteria(
        Owned, lambda table: functions.usually(table.tenant_id == tenant_id), include_aliases=True
    )


@functools.lru_cache(maxsize=1000)
def _made_by(tenant_id: str, maker: str) -> tuple[LoaderCriteriaOption, ...]:
    request_ids = sa.select(DeletionRequest.id).where(
        DeletionRequest.tenant_id == tenant_id, DeletionRequest.maker == maker
    )
    return (
        with_loader_criteria(DeletionRequest, DeletionRequest.maker == maker, include_aliases=True),
        *(
            with_loader_criteria(table, table.request_id.in_(request_ids), include_aliases=True)
            for table in (Certificate, Suppression, *sockets.plugs("app.features", "tables", "OF_REQUESTS"))
        ),
    )


def _refuse_unowned(
    _connection: sa.Connection, _cursor: Any, sql: str, _parameters: Any, context: Any, _many: bool
) -> None:
    """Raise `RuntimeError` if a statement uses an `Owned` table without a condition on its tenant. The check is needed
    because SQLAlchemy's loader criteria restrict only mapped classes."""
    if context is not None and context.execution_options.get("lethe_of_tenant") and not _owned_throughout(sql):
        raise RuntimeError(_NOT_ITS_OWN)


@functools.lru_cache(maxsize=1000)
def _owned_throughout(sql: str) -> bool:
    """Return True if a statement filters each `Owned` table that it mentions by tenant, except the target of an
    INSERT."""
    mentioned = Counter(alias or table for table, alias in _mentions().findall(_INSERTED.sub("", sql)))
    return all(len(re.findall(rf"\b{name}\.tenant_id = [?%]", sql)) >= times for name, times in mentioned.items())


_INSERTED = re.compile(r"^INSERT INTO \w+")


@functools.cache
def _mentions() -> re.Pattern[str]:
    """Return a pattern for mentions of an `Owned` table and its alias; it matches neither `table.column` nor
    parameters."""
    tables = [mapper.local_table.description for mapper in Table.registry.mappers if issubclass(mapper.class_, Owned)]
    return re.compile(rf"(?<!%\()(?<![.\w])({'|'.join(tables)})\b(?!\.)(?: AS (\w+))?")


def now(session: Session) -> datetime.datetime:
    """Return the current time (aware UTC) by the database's clock, which all hosts use to compare leases. The clock is
    read once per transaction and advanced by this host's monotonic clock. SQLite uses the host's clock."""
    if session.get_bind().dialect.name == "sqlite":
        return datetime.datetime.now(UTC)
    at, read_at = postgresql.clock(session.connection())
    return at + datetime.timedelta(seconds=time.monotonic() - read_at)


def _engine(url: str, *, read_only: bool, patience_seconds: float) -> sa.Engine:
    try:
        parsed = sa.make_url(url)
    except sa.exc.ArgumentError as error:
        raise errors.DatabaseUnreadable("LETHE_DATABASE_URL is not a database URL.") from error
    match parsed.get_backend_name():
        case "sqlite":
            return sqlite.engine(parsed, read_only=read_only)
        case "postgresql" | "postgres":
            return postgresql.engine(parsed, read_only=read_only, patience_seconds=patience_seconds)
        case name:
            raise errors.DatabaseUnreadable(
                f"Expected LETHE_DATABASE_URL to begin with postgresql:// or sqlite:///, not {name}."
            )
