"""Many rows at once, and new rows in few round trips: the write lock is held no longer than need be."""

import functools
import itertools
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session

from app.db.sealed import Private
from app.db.tables import Table

_Row = TypeVar("_Row", bound=Table)
_Stored = tuple[type[Table], Sequence[Any], bool]
_BATCH = 10_000
_ROOM_KIB = 256 * 1024
_MANY = 100
"""Number of rows from which a COPY takes less time than the wait for it."""
_WAITING = "bulk.waiting"
_INSERTIONS = "bulk.insertions"


def insert(session: Session, table: type[Table], *, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Add `rows`, each with one value per column, to `table`.

    PostgreSQL takes them by COPY: a million lines of `records` in 8 s where INSERT takes 35 s. SQLite gets memory for
    the pages of its indexes, to which rows go in no order: with what it takes by itself each of them is written to the
    log again and again.
    """
    remaining = iter(rows)
    connection = session.connection()
    is_server = connection.dialect.name == "postgresql"
    first = list(itertools.islice(remaining, _BATCH))
    with nullcontext() if is_server or len(first) < _BATCH else _roomy(connection):
        for batch in itertools.chain([first], iter(lambda: list(itertools.islice(remaining, _BATCH)), [])):
            (_copy if is_server else _insert)(connection, table, columns, batch)


def new(table: type[_Row], **values: Any) -> _Row:
    """A row for `store`, and for nothing else: without what the ORM keeps of objects that change, which takes most of
    the time. A column without a value is NULL."""
    row: _Row = table.__mapper__.class_manager.new_instance()
    vars(row).update(_nothing(table), **values)
    return row


def store(
    session: Session,
    table: type[Table],
    rows: Sequence[Table] | Sequence[Mapping[str, Any]],
    *,
    unless_there: bool = False,
) -> None:
    """Add new rows, after what the session has yet to flush; with `unless_there` those whose key is not taken yet.

    Rows that nobody reads are cheaper as mappings, of all columns (but a number that the database gives); others as
    `new` makes them. A column's default is not applied. The driver gets values as it takes them: SQLAlchemy takes twice
    as long to make them so.
    """
    if not rows:
        return
    waiting = session.info.get(_WAITING)
    if waiting is None:
        _run(session, [(table, rows, unless_there)])
    else:
        waiting.append((table, rows, unless_there))


@contextmanager
def together(session: Session) -> Iterator[None]:
    """Send everything that is stored in the block to the database when it ends, in its order: in one round trip to
    PostgreSQL where it is little. So nothing in the block may read what was stored in it."""
    waiting: list[_Stored] = []
    session.info[_WAITING] = waiting
    try:
        yield
    finally:
        del session.info[_WAITING]
    if waiting:
        _run(session, waiting)


def count_on(session: Session) -> None:
    """Let the database number new rows from where those that were added end. SQLite does by itself."""
    if session.get_bind().dialect.name != "postgresql":
        return
    for table in Table.metadata.sorted_tables:
        column = table.autoincrement_column
        if column is not None:
            sequence = sa.func.pg_get_serial_sequence(table.name, column.name)
            last = sa.func.max(column)
            session.execute(sa.select(sa.func.setval(sequence, sa.func.coalesce(last, 1), last.is_not(None))))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Insertion:
    """A statement for a driver, and how it gets its values: out of what, and through what."""

    sql: str
    columns: Sequence[str]
    of: Callable[[Mapping[str, Any]], tuple[Any, ...]]
    nothing: dict[str, Any]
    processors: tuple[Callable[[Any], Any] | None, ...]

    def values(self, rows: Sequence[Table] | Sequence[Mapping[str, Any]]) -> list[tuple[Any, ...]]:
        given = [self.of(self.nothing | vars(row) if isinstance(row, Table) else row) for row in rows]
        columns = zip(*given, strict=True)
        processed = [_processed(column, process) for column, process in zip(columns, self.processors, strict=True)]
        return list(zip(*processed, strict=True))


def _processed(column: Sequence[Any], process: Callable[[Any], Any] | None) -> Sequence[Any]:
    """Process once a value that is the same in all rows, as times and tenants are; but each is sealed by itself."""
    if process is None:
        return column
    if len(set(map(id, column))) == 1 and not isinstance(column[0], Private):
        return [process(column[0])] * len(column)
    return [process(value) for value in column]


def _run(session: Session, stored: Sequence[_Stored]) -> None:
    """PostgreSQL takes many rows by COPY, which no pipeline takes: a third of the time that INSERT takes."""
    session.flush()
    connection = session.connection()
    is_server = connection.dialect.name == "postgresql"
    by_copy = is_server and any(len(rows) >= _MANY for _, rows, _ in stored)
    made = connection.info.setdefault(_INSERTIONS, {})
    with _pipeline(connection) if is_server and not by_copy and len(stored) > 1 else nullcontext():
        for table, rows, unless_there in stored:
            insertion = made.get((table, unless_there))
            if insertion is None:
                insertion = made[table, unless_there] = _insertion(table, connection.dialect, unless_there=unless_there)
            values = insertion.values(rows)
            if by_copy and not unless_there:
                _copy(connection, table, insertion.columns, values)
            else:
                connection.exec_driver_sql(insertion.sql, values)


def _insertion(table: type[Table], dialect: sa.Dialect, *, unless_there: bool) -> _Insertion:
    into = table.metadata.tables[table.__tablename__]
    insert = postgresql.insert if dialect.name == "postgresql" else sqlite.insert
    statement = insert(into).inline()
    if unless_there:
        statement = statement.on_conflict_do_nothing()
    columns = [column for column in into.c if column.autoincrement is not True]
    keys = [column.key for column in columns]
    same: Any = type(dialect)
    by_place = same(paramstyle="format" if dialect.name == "postgresql" else "qmark")
    return _Insertion(
        sql=str(statement.compile(dialect=by_place, column_keys=keys)),
        columns=keys,
        of=operator.itemgetter(*keys),
        nothing=_nothing(table),
        processors=tuple(column.type.dialect_impl(dialect).bind_processor(dialect) for column in columns),
    )


@functools.cache
def _nothing(table: type[Table]) -> dict[str, Any]:
    return dict.fromkeys(column.key for column in table.__mapper__.column_attrs)


@contextmanager
def _pipeline(connection: sa.Connection) -> Iterator[None]:
    """Statements that give nothing back are sent without a wait for each; what one raises is raised at the end."""
    driver: Any = connection.connection.driver_connection
    with _translated(connection, None), driver.pipeline():
        yield


@contextmanager
def _translated(connection: sa.Connection, statement: str | None) -> Iterator[None]:
    """Raise errors of the driver as SQLAlchemy's."""
    errors: Any = connection.dialect.dbapi
    try:
        yield
    except errors.Error as error:
        cause: Any = error
        while type(cause).__name__ == "PipelineAborted" and isinstance(cause.__context__, errors.Error):
            cause = cause.__context__  # a pipeline says at its end that it failed, and not why
        raise sa.exc.DBAPIError.instance(statement, None, cause, errors.Error, hide_parameters=True) from error


def _copy(connection: sa.Connection, table: type[Table], columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    names = [connection.dialect.identifier_preparer.quote(name) for name in (table.__tablename__, *columns)]
    statement = f"COPY {names[0]} ({', '.join(names[1:])}) FROM STDIN"
    driver: Any = connection.connection
    with _translated(connection, statement), driver.cursor() as cursor, cursor.copy(statement) as copy:
        for row in rows:
            copy.write_row(row)


def _insert(
    connection: sa.Connection, table: type[Table], columns: Sequence[str], rows: Sequence[Sequence[Any]]
) -> None:
    """Past SQLAlchemy, which takes longer to hand rows over than SQLite does to store them."""
    if not rows:
        return
    dialect, types = connection.dialect, [table.metadata.tables[table.__tablename__].c[name].type for name in columns]
    values = [
        column
        if isinstance(kind, sa.LargeBinary)
        else _processed(column, kind.dialect_impl(dialect).bind_processor(dialect))
        for column, kind in zip(zip(*rows, strict=True), types, strict=True)
    ]
    names = [dialect.identifier_preparer.quote(name) for name in (table.__tablename__, *columns)]
    statement = f"INSERT INTO {names[0]} ({', '.join(names[1:])}) VALUES ({', '.join('?' * len(columns))})"  # noqa: S608
    connection.exec_driver_sql(statement, list(zip(*values, strict=True)))


@contextmanager
def _roomy(connection: sa.Connection) -> Iterator[None]:
    """Memory for pages of SQLite, while many rows come."""
    (usual,) = connection.exec_driver_sql("PRAGMA cache_size").one()
    connection.exec_driver_sql(f"PRAGMA cache_size = -{_ROOM_KIB}")
    try:
        yield
    finally:
        connection.exec_driver_sql(f"PRAGMA cache_size = {usual}")
