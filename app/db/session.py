"""Sessions: one for reading, one for writing. Nothing else in the project commits.

What differs between SQLite and PostgreSQL is in this package: how to begin, what time it is, how to wait.
"""

import datetime
from collections.abc import Iterator
from contextlib import contextmanager

import sqlalchemy as sa
from sqlalchemy.orm import Session, sessionmaker

from app.db import postgresql, sqlite
from app.errors import DatabaseUnreadable, LetheError

UTC = datetime.UTC

_READ_ONLY = "25006"
"""PostgreSQL's code for a server, such as a standby, that refuses to change anything now."""


class Database:
    """The database of one process; `close` gives its connections back.

    `read_only`: the database itself refuses whatever would change it. `patience_seconds`: how long a session waits for
    a server that is away before it raises; nothing has been done by then. Whatever the database cannot do now is an
    `sqlalchemy.exc.OperationalError`. Raises `DatabaseUnreadable` for a database that is neither SQLite nor PostgreSQL.
    """

    def __init__(self, url: str, *, read_only: bool = False, patience_seconds: float = 2.0) -> None:
        self.engine = _engine(url, read_only=read_only, patience_seconds=patience_seconds)
        self._sessions = sessionmaker(self.engine, expire_on_commit=False)

    @contextmanager
    def reading(self) -> Iterator[Session]:
        """A session on one snapshot; whatever it changed is rolled back."""
        with _named(), self._sessions() as session:
            session.connection(execution_options={"lethe_read_only": True})
            yield session

    @contextmanager
    def writing(self, *, in_turn: bool = True) -> Iterator[Session]:
        """A session that is committed when the block ends, and rolled back if it raises.

        Writers take turns, on all hosts: from its first statement on, a block sees everything that was committed, and
        nobody else writes. Without `in_turn` it may begin at once (SQLite knows turns only): for a block that changes
        one row, which it locks first.
        """
        with _named(), self._sessions.begin() as session:
            if not in_turn:
                session.connection(execution_options={"lethe_in_turn": False})
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
        if error.orig is None or getattr(error.orig, "sqlstate", None) != _READ_ONLY:
            raise
        raise sa.exc.OperationalError(None, None, error.orig) from error
    except sa.exc.StatementError as error:
        if isinstance(error.orig, LetheError):  # of `app.db.tables`, about a value
            raise error.orig from None
        raise
    except sa.exc.TimeoutError as error:  # all connections of this process are in use
        raise sa.exc.OperationalError(None, None, error) from error
