"""Many rows at once: an upload holds its turn for seconds, not for minutes."""

import functools
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session

from app.db.tables import Table

_BATCH = 10_000
_WAITING = "bulk.waiting"


def insert(session: Session, table: type[Table], *, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Add `rows`, each with one value per column, to `table`.

    PostgreSQL takes them by COPY: a million lines of `records` in 8 s where INSERT takes 35 s.
    """
    remaining = iter(rows)
    add = _copy if session.get_bind().dialect.name == "postgresql" else _insert
    while batch := list(itertools.islice(remaining, _BATCH)):
        add(session, table, columns, batch)


def store(session: Session, table: type[Table], rows: Sequence[Table] | Sequence[Mapping[str, Any]]) -> None:
    """Add new rows, in one statement made once: making a statement anew takes longer than running it.

    Rows that nobody looks at are cheaper as mappings, of all columns (but a number that the database gives).
    """
    if rows:
        statement, attributes = _insertion(table)
        values = [
            row if isinstance(row, Mapping) else {column: getattr(row, name) for column, name in attributes}
            for row in rows
        ]
        _run(session, statement, values)


def store_missing(session: Session, table: type[Table], rows: Sequence[Mapping[str, Any]]) -> None:
    """Add those of the new rows whose key is not taken yet, as `store` does."""
    if rows:
        _run(session, _insertion_of_missing(table, session.get_bind().dialect.name), rows)


@contextmanager
def together(session: Session) -> Iterator[None]:
    """Whatever is stored in the block goes to the database when it ends, in its order: in one round trip to PostgreSQL.

    So nothing in the block may read what was stored in it.
    """
    waiting: list[tuple[sa.Insert, Any]] = []
    session.info[_WAITING] = waiting
    try:
        yield
    finally:
        del session.info[_WAITING]
    if not waiting:
        return
    connection = session.connection()
    with _pipeline(connection):
        for statement, values in waiting:
            connection.execute(statement, values)


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


def _run(session: Session, statement: sa.Insert, values: Sequence[Mapping[str, Any]]) -> None:
    waiting = session.info.get(_WAITING)
    if waiting is None:
        session.connection().execute(statement, values)
    else:
        waiting.append((statement, values))


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
        raise sa.exc.DBAPIError.instance(statement, None, error, errors.Error, hide_parameters=True) from error


@functools.cache
def _insertion_of_missing(table: type[Table], dialect: str) -> sa.Insert:
    into = table.metadata.tables[table.__tablename__]
    if dialect == "postgresql":
        return postgresql.insert(into).on_conflict_do_nothing()
    return sqlite.insert(into).on_conflict_do_nothing()


@functools.cache
def _insertion(table: type[Table]) -> tuple[sa.Insert, list[tuple[str, str]]]:
    """The statement, and which attribute goes into which column."""
    columns = [(attribute.columns[0], attribute.key) for attribute in sa.inspect(table).column_attrs]
    attributes = [(column.key, name) for column, name in columns if column.autoincrement is not True]
    return sa.insert(table.metadata.tables[table.__tablename__]).inline(), attributes


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
