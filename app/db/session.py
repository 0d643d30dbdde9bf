"""Sessions: one for reading, one for writing. Nothing else in the project commits.

What differs between SQLite and PostgreSQL is in this package: how to begin, what time it is, how to wait.
"""

import datetime
import functools
import re
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import LoaderCriteriaOption, ORMExecuteState, Session, sessionmaker, with_loader_criteria

from app import telemetry
from app.db import postgresql, sealed, sqlite
from app.db.likely import usually
from app.db.tables import Certificate, DeletionRequest, Owned, Suppression, Table, WebhookDelivery
from app.errors import DatabaseUnreadable
from lethe.contract.problems import DatabaseDamaged, Problem

UTC = datetime.UTC

_CLOCK = sa.select(sa.func.clock_timestamp())
_UNABLE_NOW = ("25006", "25P03", "25P04")
"""PostgreSQL's codes for a server, such as a standby, that refuses to change anything now; and for one that has ended a
transaction that was silent for too long, or too long."""
_DAMAGED_IN_SQLITE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_DAMAGED_IN_POSTGRESQL = ("XX001", "XX002")
_FULL_IN_POSTGRESQL = "53100"
_NOT_ITS_OWN = "A statement for one tenant reaches what belongs to all; it must select by the classes of app.db.tables."


@dataclass(frozen=True, slots=True, kw_only=True)
class Actor:
    """The actor of a session: a tenant, and whose key or which part of the service it is that acts. `maker`: of
    deletion requests, and what belongs to them, it sees only those that were made by this line of keys."""

    tenant_id: str
    name: str
    maker: str | None = None


class Database:
    """The database of one process; `close` gives its connections back.

    `read_only`: the database itself refuses whatever would change it. `patience_seconds`: how long a session waits for
    a server that is away before it raises; nothing has been done by then. `vault`: seals and opens what callers wrote;
    without it that cannot be stored and seems empty. Whatever the database cannot do now is an
    `sqlalchemy.exc.OperationalError`. Raises `DatabaseUnreadable` for a database that is neither SQLite nor PostgreSQL.
    """

    def __init__(
        self, url: str, *, vault: sealed.Vault | None = None, read_only: bool = False, patience_seconds: float = 2.0
    ) -> None:
        self.engine = _engine(url, read_only=read_only, patience_seconds=patience_seconds)
        self.read_only = read_only
        self._url = url
        if vault is not None:
            sealed.give(self.engine, vault)
        self._guard: Callable[[], None] = _let_pass
        self._sessions = sessionmaker(self.engine, expire_on_commit=False)
        sa.event.listen(self._sessions, "do_orm_execute", _of_its_tenant)
        sa.event.listen(self.engine, "before_cursor_execute", _refuse_unowned)

    @property
    def name(self) -> str:
        """The database's name and what speaks to it: for people."""
        return f"{self.engine.dialect.name} by {self.engine.dialect.driver}"

    def guard(self, check: Callable[[], None]) -> None:
        """Have `check` called before each session begins; where it raises there is none."""
        self._guard = check

    @contextmanager
    def reading(self, *, by: Actor | None = None) -> Iterator[Session]:
        """A session on one snapshot; whatever it changed is rolled back.

        `by`: it sees what belongs to this tenant alone. Without it (workers, operations) it sees everything.
        """
        with self._named(), self._guarded(by) as session:
            session.connection(execution_options={"lethe_read_only": True})
            yield session

    @contextmanager
    def writing(self, *, by: Actor | None = None, exclusive: bool = True) -> Iterator[Session]:
        """A session that is committed when the block ends, and rolled back if it raises; `by` as in `reading`.

        There is one write lock for all hosts: from its first statement on, a block sees everything that was committed,
        and nobody else writes. Without `exclusive` it may begin at once (SQLite always locks): for a block that
        changes one row, which it locks first.
        """
        with self._named(), self._guarded(by) as session, session.begin():
            if not exclusive:
                session.connection(execution_options={"lethe_exclusive": False})
            yield session

    def _guarded(self, by: Actor | None) -> Session:
        if self._url in _damaged:
            raise _damage()
        self._guard()
        return self._sessions(info={"actor": by})

    @contextmanager
    def looking(self) -> Iterator[sa.Connection]:
        """A connection to read from that nothing guards: to find out whose database it is."""
        with self._named(), self.engine.connect().execution_options(lethe_read_only=True) as connection:
            yield connection

    def check(self) -> None:
        """Read the whole database, where nobody else would notice that a page of it is damaged: SQLite.

        Raises `DatabaseDamaged`, as every session of this process does from then on.
        """
        if self.engine.dialect.name == "sqlite":
            with self._named():
                sqlite.check(self.engine)

    def scrub(self) -> None:
        """Make sure that what was deleted or updated is in none of the database's files, as far as nobody reads it any
        more; what is left goes the next time. On PostgreSQL that is not ours to do: what may not stay comes there
        sealed."""
        if self.engine.dialect.name == "sqlite":
            with self._named():
                try:
                    sqlite.rewrite(self.engine)
                finally:
                    sqlite.scrub(self.engine)

    def close(self) -> None:
        self.engine.dispose()

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Raise what the database cannot do by the names that the others know it by; of damage no more is read."""
        try:
            with _named():
                yield
        except (sa.exc.DBAPIError, sqlite3.DatabaseError) as error:
            if not _is_damage(error):
                raise
            _damaged.add(self._url)
            telemetry.logger().critical("database.damaged")
            raise _damage() from error


_damaged: set[str] = set()
"""The databases in which this process met a damaged page: what else is in them is believed no more."""


def _is_damage(error: Exception) -> bool:
    told = error.orig if isinstance(error, sa.exc.DBAPIError) else error
    code = getattr(told, "sqlite_errorcode", 0) & 0xFF
    return code in _DAMAGED_IN_SQLITE or getattr(told, "sqlstate", None) in _DAMAGED_IN_POSTGRESQL


def _damage() -> DatabaseDamaged:
    return DatabaseDamaged(
        "A page of the database is damaged: nobody is answered from it any more. Restore a backup with the tombstones, "
        "or mend the database, and start again."
    )


def is_full(error: sa.exc.OperationalError) -> bool:
    """Return True if the database failed for lack of room."""
    code = getattr(error.orig, "sqlite_errorcode", 0) & 0xFF
    return code == sqlite3.SQLITE_FULL or getattr(error.orig, "sqlstate", None) == _FULL_IN_POSTGRESQL


def _let_pass() -> None:
    """Let everything pass, to a session that only sets a database up, or reads behind a gateway."""


def actor(session: Session) -> Actor:
    """The actor of the session. Raises `RuntimeError` if nobody was named: nothing may come to belong to nobody."""
    found: Actor | None = session.info.get("actor")
    if found is None:
        raise RuntimeError("This session acts for no tenant.")
    return found


def rows(session: Session, statement: sa.Executable, parameters: Mapping[str, Any]) -> Iterable[Any]:
    """The rows of a statement that selects columns, as `session.execute` finds them; for a session that acts for nobody
    in half the time, because nothing is left for the ORM to do."""
    if session.info.get("actor") is not None:
        return session.execute(statement, parameters)
    session.flush()
    return session.connection().execute(statement, parameters)


def _of_its_tenant(execution: ORMExecuteState) -> None:
    """Restrict every query, however it is joined, to the things of the session's own tenant."""
    by: Actor | None = execution.session.info.get("actor")
    if by is None or execution.is_column_load or execution.is_relationship_load:
        return
    if execution.is_update and isinstance(execution.parameters, Sequence):  # by primary keys alone
        raise RuntimeError(_NOT_ITS_OWN)
    execution.statement = execution.statement.options(_own(by.tenant_id))
    if by.maker is not None:
        execution.statement = execution.statement.options(*_made_by(by.tenant_id, by.maker))
    execution.update_execution_options(lethe_of_tenant=True)


@functools.lru_cache(maxsize=1000)
def _own(tenant_id: str) -> LoaderCriteriaOption:
    return with_loader_criteria(Owned, lambda table: usually(table.tenant_id == tenant_id), include_aliases=True)


@functools.lru_cache(maxsize=1000)
def _made_by(tenant_id: str, maker: str) -> tuple[LoaderCriteriaOption, ...]:
    mine = sa.select(DeletionRequest.id).where(DeletionRequest.tenant_id == tenant_id, DeletionRequest.maker == maker)
    return (
        with_loader_criteria(DeletionRequest, DeletionRequest.maker == maker, include_aliases=True),
        *(
            with_loader_criteria(table, table.request_id.in_(mine), include_aliases=True)
            for table in (WebhookDelivery, Certificate, Suppression)
        ),
    )


def _refuse_unowned(
    _connection: sa.Connection, _cursor: Any, sql: str, _parameters: Any, context: Any, _many: bool
) -> None:
    """The criteria reach whatever names a class; what names a table in another way is refused before it is run."""
    if context.execution_options.get("lethe_of_tenant") and not _owned_throughout(sql):
        raise RuntimeError(_NOT_ITS_OWN)


@functools.lru_cache(maxsize=1000)
def _owned_throughout(sql: str) -> bool:
    """Return True if each mention of an `Owned` table comes with the condition on its tenant; but for what is
    inserted."""
    mentioned = Counter(alias or table for table, alias in _mentions().findall(_INSERTED.sub("", sql)))
    return all(len(re.findall(rf"\b{name}\.tenant_id = [?%]", sql)) >= times for name, times in mentioned.items())


_INSERTED = re.compile(r"^INSERT INTO \w+")


@functools.cache
def _mentions() -> re.Pattern[str]:
    """A pattern for mentions of a table that is `Owned`, and of its alias; neither `table.column` nor a parameter."""
    tables = [mapper.local_table.description for mapper in Table.registry.mappers if issubclass(mapper.class_, Owned)]
    return re.compile(rf"(?<!%\()(?<![.\w])({'|'.join(tables)})\b(?!\.)(?: AS (\w+))?")


def now(session: Session) -> datetime.datetime:
    """The database's clock (aware UTC): leases are compared on it, whatever the hosts believe. SQLite has no own."""
    if session.get_bind().dialect.name == "sqlite":
        return datetime.datetime.now(UTC)
    stamp = session.scalar(_CLOCK)
    assert isinstance(stamp, datetime.datetime)
    return stamp.astimezone(UTC)


def _engine(url: str, *, read_only: bool, patience_seconds: float) -> sa.Engine:
    try:
        parsed = sa.make_url(url)
    except sa.exc.ArgumentError as error:
        raise DatabaseUnreadable("LETHE_DATABASE_URL is not a database URL.") from error
    match parsed.get_backend_name():
        case "sqlite":
            return sqlite.engine(parsed, read_only=read_only)
        case "postgresql" | "postgres":
            return postgresql.engine(parsed, read_only=read_only, patience_seconds=patience_seconds)
        case name:
            raise DatabaseUnreadable(
                f"Expected LETHE_DATABASE_URL to begin with postgresql:// or sqlite:///, not {name}."
            )


@contextmanager
def _named() -> Iterator[None]:
    try:
        yield
    except sa.exc.InternalError as error:
        if error.orig is None or getattr(error.orig, "sqlstate", None) not in _UNABLE_NOW:
            raise
        raise sa.exc.OperationalError(None, None, error.orig) from error
    except sa.exc.StatementError as error:
        is_the_drivers = isinstance(error, sa.exc.DBAPIError)
        if not is_the_drivers and isinstance(error.orig, Problem | OSError):  # of a value, or of the vault
            raise error.orig from None
        raise
    except sa.exc.TimeoutError as error:  # all connections of this process are in use
        raise sa.exc.OperationalError(None, None, error) from error
