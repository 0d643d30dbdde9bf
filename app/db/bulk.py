"""Many rows at once, and new rows in few round trips: whoever writes holds the turn no longer than need be."""

import itertools
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session

from app.db.tables import Table

_BATCH = 10_000
_WAITING = "bulk.waiting"
_INSERTIONS = "bulk.insertions"


def insert(session: Session, table: type[Table], *, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Add `rows`, each with one value per column, to `table`.

    PostgreSQL takes them by COPY: a million lines of `records` in 8 s where INSERT takes 35 s.
    """
    remaining = iter(rows)
    add = _copy if session.get_bind().dialect.name == "postgresql" else _insert
    while batch := list(itertools.islice(remaining, _BATCH)):
        add(session, table, columns, batch)


def store(
    session: Session,
    table: type[Table],
    rows: Sequence[Table] | Sequence[Mapping[str, Any]],
    *,
    unless_there: bool = False,
) -> None:
    """Add new rows, after what the session has yet to flush; with `unless_there` those whose key is not taken yet.

    Rows that nobody looks at are cheaper as mappings, of all columns (but a number that the database gives). A column's
    default is not applied. The driver gets values as it takes them: SQLAlchemy takes twice as long to make them so.
    """
    if not rows:
        return
    waiting = session.info.get(_WAITING)
    if waiting is None:
        session.flush()
        _run(session.connection(), table, rows, unless_there=unless_there)
    else:
        waiting.append((table, rows, unless_there))


@contextmanager
def together(session: Session) -> Iterator[None]:
    """Whatever is stored in the block goes to the database when it ends, in its order: in one round trip to PostgreSQL.

    So nothing in the block may read what was stored in it.
    """
    waiting: list[tuple[type[Table], Sequence[Any], bool]] = []
    session.info[_WAITING] = waiting
    try:
        yield
    finally:
        del session.info[_WAITING]
    if not waiting:
        return
    session.flush()
    connection = session.connection()
    with _pipeline(connection):
        for table, rows, unless_there in waiting:
            _run(connection, table, rows, unless_there=unless_there)


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
    of_mapping: Callable[[Any], tuple[Any, ...]]
    of_object: Callable[[Any], tuple[Any, ...]]
    processors: tuple[Callable[[Any], Any] | None, ...]

    def values(self, row: Table | Mapping[str, Any]) -> tuple[Any, ...]:
        found = self.of_object(row) if isinstance(row, Table) else self.of_mapping(row)
        return tuple(
            process(value) if process else value for value, process in zip(found, self.processors, strict=True)
        )


def _run(connection: sa.Connection, table: type[Table], rows: Sequence[Any], *, unless_there: bool) -> None:
    made = connection.info.setdefault(_INSERTIONS, {})
    insertion = made.get((table, unless_there))
    if insertion is None:
        insertion = made[table, unless_there] = _insertion(table, connection.dialect, unless_there=unless_there)
    connection.exec_driver_sql(insertion.sql, [insertion.values(row) for row in rows])


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
        of_mapping=operator.itemgetter(*keys),
        of_object=operator.attrgetter(*keys),
        processors=tuple(column.type.dialect_impl(dialect).bind_processor(dialect) for column in columns),
    )


@contextmanager
def _pipeline(connection: sa.Connection) -> Iterator[None]:
    """Statements that give nothing back are sent without a wait for each; what one raises is raised at the end."""
    if connection.dialect.name != "postgresql":
        yield
        return
    driver: Any = connection.connection.driver_connection
    with _translated(connection, None), driver.pipeline():
        yield


@contextmanager
def _translated(connection: sa.Connection, statement: str | None) -> Iterator[None]:
    """What the driver raises, as what SQLAlchemy raises."""
    errors: Any = connection.dialect.dbapi
    try:
        yield
    except errors.Error as error:
        cause: Any = error
        while type(cause).__name__ == "PipelineAborted" and isinstance(cause.__context__, errors.Error):
            cause = cause.__context__  # a pipeline says at its end that it failed, and not why
        raise sa.exc.DBAPIError.instance(statement, None, cause, errors.Error, hide_parameters=True) from error


def _copy(session: Session, table: type[Table], columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    connection = session.connection()
    names = [connection.dialect.identifier_preparer.quote(name) for name in (table.__tablename__, *columns)]
    statement = f"COPY {names[0]} ({', '.join(names[1:])}) FROM STDIN"
    driver: Any = connection.connection
    with _translated(connection, statement), driver.cursor() as cursor, cursor.copy(statement) as copy:
        for row in rows:
            copy.write_row(row)


def _insert(session: Session, table: type[Table], columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    session.execute(sa.insert(table), [dict(zip(columns, row, strict=True)) for row in rows])
