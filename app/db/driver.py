"""Statements sent straight to the driver, because SQLAlchemy's overhead exceeds the database's own running time.

Event listeners on the engine are still called, and errors are converted to SQLAlchemy's.
"""

import functools
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

_MAX_ELEMENTS = 128
"""Maximum length of a list for which the compiled statement is cached and reused for lists of similar length."""
_CONNECTION = "driver.connection"


def run(connection: sa.Connection, sql: str, values: Sequence[Any] = (), *, many: bool = False) -> list[Any]:
    """Run a statement and return its rows. On SQLite only, `many` runs it once for each element of `values`."""
    if connection.dialect.name != "sqlite":
        return list(connection.exec_driver_sql(sql, tuple(values)))
    announce: Any = connection.engine.dispatch.before_cursor_execute
    announce(connection, None, sql, values, None, many)
    driver: Any = connection.connection.dbapi_connection
    try:
        found: list[Any] = (driver.executemany if many else driver.execute)(sql, values).fetchall()
    # Entering the context before each statement would take as long as many a statement.
    except Exception:
        with translated(connection, sql):
            raise
    return found


@contextmanager
def translated(connection: sa.Connection, statement: str | None) -> Iterator[None]:
    """Convert driver errors to SQLAlchemy errors."""
    errors: Any = connection.dialect.dbapi
    try:
        yield
    except errors.Error as error:
        cause: Any = error
        # PipelineAborted is raised at the end of a pipeline; its context has the reason.
        while type(cause).__name__ == "PipelineAborted" and isinstance(cause.__context__, errors.Error):
            cause = cause.__context__
        raise sa.exc.DBAPIError.instance(statement, None, cause, errors.Error, hide_parameters=True) from error


def connection_of(session: Session) -> sa.Connection:
    """Return a session's connection after sending its pending changes. The session itself takes much longer to find the
    connection, so it is asked once per transaction and savepoint."""
    session.flush()
    current: Any = session.get_nested_transaction() or session.get_transaction()
    known: tuple[Any, sa.Connection] | None = session.info.get(_CONNECTION)
    if known is None or current is None or known[0]() is not current or not current.is_active:
        connection = session.connection()
        current = session.get_nested_transaction() or session.get_transaction()
        known = session.info[_CONNECTION] = weakref.ref(current), connection
    return known[1]


def rows(session: Session, statement: Any, parameters: Mapping[str, Any]) -> Iterable[Any]:
    """Execute a SELECT of columns, built at import time, and return its rows like `session.execute`. Sessions without a
    tenant bypass the ORM and SQLAlchemy's statements and, on SQLite, SQLAlchemy altogether. Columns cannot be of types
    `Numeric` or `Float`, whose results depend on the server's type."""
    if session.info.get("actor") is not None:
        return session.execute(statement, parameters)
    connection = connection_of(session)
    padded = {name: _padded(value) if isinstance(value, list) else value for name, value in parameters.items()}
    sizes = tuple([(name, len(value) if isinstance(value, list) else -1) for name, value in padded.items()])
    if any(size > _MAX_ELEMENTS for _, size in sizes):
        return connection.execute(statement, parameters)
    return _compiled(statement, connection.dialect, sizes)(connection, padded)


def _padded(values: list[Any]) -> list[Any]:
    """Repeat the last value until the length is a power of two, which does not change the result of IN."""
    return values + values[-1:] * ((1 << (len(values) - 1).bit_length()) - len(values)) if len(values) > 1 else values


@functools.lru_cache(maxsize=200)
def _compiled(statement: Any, dialect: sa.Dialect, sizes: tuple[tuple[str, int], ...]) -> Callable[..., list[Any]]:
    by_place: Any = type(dialect)
    compiled = statement.compile(dialect=by_place(paramstyle="qmark" if dialect.name == "sqlite" else "format"))
    state = compiled.construct_expanded_state({name: None if size < 0 else [None] * size for name, size in sizes})
    elements = [(name, state.parameter_expansion[name]) for name, size in sizes if size >= 0]
    list_of = {element: name for name, expanded in state.parameter_expansion.items() for element in expanded}
    bound = [(name, compiled.binds[list_of.get(name, name)].type) for name in state.positiontup]
    to_driver = [(name, kind.dialect_impl(dialect).bind_processor(dialect)) for name, kind in bound]
    of_driver = [c.type.dialect_impl(dialect).result_processor(dialect, None) for c in statement.selected_columns]

    def select(connection: sa.Connection, parameters: Mapping[str, Any]) -> list[Any]:
        given = {**state.parameters, **parameters}
        for name, expanded in elements:
            given.update(zip(expanded, parameters[name], strict=True))
        values = [given[name] if process is None else process(given[name]) for name, process in to_driver]
        found = run(connection, state.statement, values)
        return [tuple([v if p is None else p(v) for v, p in zip(row, of_driver, strict=True)]) for row in found]

    return select
