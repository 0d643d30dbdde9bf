"""Bulk inserts; inserts in few round trips, to hold the write lock only briefly; and pages of query results."""

import base64
import binascii
import datetime
import functools
import itertools
import json
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, TypeVarTuple

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import InstrumentedAttribute, Session

from app.db import driver, sealed, tables
from lethe.contract.problems import FieldError, InputInvalid

_Row = TypeVar("_Row", bound=tables.Table)
_Stored = tuple[type[tables.Table], Sequence[Any], bool]
_BATCH = 10_000
_ROOM_KIB = 256 * 1024
_MANY = 100
"""Number of rows from which COPY saves more time than its extra round trip costs."""
_WAITING = "bulk.waiting"


def insert(
    session: Session, table: type[tables.Table], *, columns: Sequence[str], rows: Iterable[Sequence[Any]]
) -> None:
    """Insert `rows` into `table`, each with one value per column; `columns` must be in the table's order. PostgreSQL
    uses COPY, which takes 8 s instead of 35 s for a million rows of `records`. SQLite gets a larger page cache, because
    its indexes are filled in random order and the default cache would write each page to the log repeatedly."""
    remaining = iter(rows)
    connection = session.connection()
    is_server = connection.dialect.name == "postgresql"
    batch = list(itertools.islice(remaining, _BATCH))
    insertion = _insertion(table, connection.dialect, columns=tuple(columns))
    with nullcontext() if is_server or len(batch) < _BATCH else _roomy(connection):
        while batch:
            if is_server:
                _copy(connection, table, columns, batch)
            else:
                driver.run(connection, insertion.sql, insertion.processed(batch), many=True)
            batch = list(itertools.islice(remaining, _BATCH))


def new(table: type[_Row], **values: Any) -> _Row:
    """Return a row for use with `store` only. Without the ORM's change-tracking state, it is much faster to create.
    Columns without a value are NULL."""
    row: _Row = table.__mapper__.class_manager.new_instance()
    vars(row).update(_nothing(table), **values)
    return row


def count_on(session: Session) -> None:
    """Advance PostgreSQL's autoincrement sequences past explicitly numbered rows, as SQLite does automatically."""
    for table in tables.Table.metadata.sorted_tables if session.get_bind().dialect.name == "postgresql" else ():
        if (column := table.autoincrement_column) is not None:
            sequence, last = sa.func.pg_get_serial_sequence(table.name, column.name), sa.func.max(column)
            session.execute(sa.select(sa.func.setval(sequence, sa.func.coalesce(last, 1), last.is_not(None))))


def store(
    session: Session,
    table: type[tables.Table],
    rows: Sequence[tables.Table] | Sequence[Mapping[str, Any]],
    *,
    unless_there: bool = False,
) -> None:
    """Insert new rows after the session's pending changes. With `unless_there`, skip rows whose key already exists.

    Pass rows made by `new` if they will be read again. Otherwise pass mappings of all columns except autoincremented
    ones, which is cheaper. Column defaults are not applied. Values are converted for the driver here, in half the time
    that SQLAlchemy takes.
    """
    if not rows:
        return
    pending = session.info.get(_WAITING)
    if pending is None:
        _run(session, [(table, rows, unless_there)])
    else:
        pending.append((table, rows, unless_there))


@contextmanager
def together(session: Session) -> Iterator[None]:
    """Send all rows stored in the block at its end, in order; to PostgreSQL in one round trip if they are few.
    The block must not read rows that it stored."""
    pending: list[_Stored] = []
    session.info[_WAITING] = pending
    try:
        yield
    finally:
        del session.info[_WAITING]
    if pending:
        _run(session, pending)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Insertion:
    """INSERT statement for the driver. `of` returns a row's values in the order of `columns`, and `processors` convert
    them for the driver."""

    sql: str
    columns: Sequence[str]
    of: Callable[[Mapping[str, Any]], tuple[Any, ...]]
    processors: Sequence[Callable[[Any], Any] | None]

    def values(self, rows: Sequence[tables.Table] | Sequence[Mapping[str, Any]]) -> list[tuple[Any, ...]]:
        return self.processed(
            [self.of(_nothing(type(r)) | vars(r) if isinstance(r, tables.Table) else r) for r in rows]
        )

    def processed(self, rows: Sequence[Sequence[Any]]) -> list[tuple[Any, ...]]:
        if len(rows) == 1:
            of_one = zip(rows[0], self.processors, strict=True)
            return [tuple([v if process is None or v is None else process(v) for v, process in of_one])]
        columns = zip(*rows, strict=True)
        processed = [_processed(column, process) for column, process in zip(columns, self.processors, strict=True)]
        return list(zip(*processed, strict=True))


def _processed(column: Sequence[Any], process: Callable[[Any], Any] | None) -> Sequence[Any]:
    """Convert a column's values with `process`, once if all rows share one value, such as a time or a tenant. Private
    values are always sealed one by one."""
    if process is None:
        return column
    # Rows that shared one sealed value would lose it together, as soon as one of them is due to be erased.
    if len(set(map(id, column))) == 1 and not isinstance(column[0], sealed.Private):
        return [process(column[0])] * len(column)
    return [process(value) for value in column]


def _run(session: Session, stored: Sequence[_Stored]) -> None:
    """Insert rows. For many rows, PostgreSQL uses COPY, which takes a third as long as INSERT; a pipeline cannot
    contain COPY."""
    connection = driver.connection_of(session)
    is_server = connection.dialect.name == "postgresql"
    by_copy = is_server and any(len(rows) >= _MANY for _, rows, _ in stored)
    with _pipeline(connection) if is_server and not by_copy and len(stored) > 1 else nullcontext():
        for table, rows, unless_there in stored:
            insertion = _insertion(table, connection.dialect, unless_there=unless_there)
            values = insertion.values(rows)
            if by_copy and not unless_there:
                _copy(connection, table, insertion.columns, values)
            elif is_server:
                connection.exec_driver_sql(insertion.sql, values)
            else:
                driver.run(connection, insertion.sql, values, many=True)


@functools.lru_cache(maxsize=200)
def _insertion(
    table: type[tables.Table], dialect: sa.Dialect, *, columns: Sequence[str] = (), unless_there: bool = False
) -> _Insertion:
    into = table.metadata.tables[table.__tablename__]
    keys = tuple(columns or [column.key for column in into.c if column.autoincrement is not True])
    types = [into.c[key].type for key in keys]
    of_driver: Any = type(dialect)
    return _Insertion(
        sql=_sql(table, of_driver, keys, unless_there=unless_there),
        columns=keys,
        of=operator.itemgetter(*keys),
        # Drivers take bytes as they are.
        processors=[
            None if isinstance(kind, sa.LargeBinary) else kind.dialect_impl(dialect).bind_processor(dialect)
            for kind in types
        ],
    )


@functools.cache
def _sql(table: type[tables.Table], of_driver: Any, keys: tuple[str, ...], *, unless_there: bool) -> str:
    is_server = of_driver.name == "postgresql"
    # Without inline(), PostgreSQL's statement would return the new keys, and a pipeline must get no results.
    statement = (postgresql if is_server else sqlite).insert(table.metadata.tables[table.__tablename__]).inline()
    if unless_there:
        statement = statement.on_conflict_do_nothing()
    by_place = of_driver(paramstyle="format" if is_server else "qmark")
    return str(statement.compile(dialect=by_place, column_keys=keys))


@functools.cache
def _nothing(table: type[tables.Table]) -> dict[str, Any]:
    return dict.fromkeys(column.key for column in table.__mapper__.column_attrs)


@contextmanager
def _pipeline(connection: sa.Connection) -> Iterator[None]:
    """Send statements without waiting for each of them; they must return no results. Errors are raised at the end."""
    server: Any = connection.connection.driver_connection
    with driver.translated(connection, None), server.pipeline():
        yield


def _copy(
    connection: sa.Connection, table: type[tables.Table], columns: Sequence[str], rows: Sequence[Sequence[Any]]
) -> None:
    names = [connection.dialect.identifier_preparer.quote(name) for name in (table.__tablename__, *columns)]
    statement = f"COPY {names[0]} ({', '.join(names[1:])}) FROM STDIN"
    server: Any = connection.connection
    with driver.translated(connection, statement), server.cursor() as cursor, cursor.copy(statement) as copy:
        for row in rows:
            copy.write_row(row)


@contextmanager
def _roomy(connection: sa.Connection) -> Iterator[None]:
    """Enlarge SQLite's page cache inside the block."""
    (previous,) = connection.exec_driver_sql("PRAGMA cache_size").one()
    connection.exec_driver_sql(f"PRAGMA cache_size = -{_ROOM_KIB}")
    try:
        yield
    finally:
        connection.exec_driver_sql(f"PRAGMA cache_size = {previous}")


def in_parts(values: Iterable[str]) -> Iterator[list[str]]:
    """Yield batches of values that fit one statement on either database, even if it binds each value three times."""
    remaining = iter(values)
    while batch := list(itertools.islice(remaining, 5000)):
        yield batch


T = TypeVar("T")
Ts = TypeVarTuple("Ts")


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    items: list[T]
    next_cursor: str | None


def page(
    session: Session,
    query: sa.Select[T],
    at: InstrumentedAttribute[datetime.datetime],
    key: InstrumentedAttribute[str],
    *,
    limit: int,
    cursor: str | None,
    ascending: bool = False,
) -> Page[T]:
    """Return `limit` rows of `query` after `cursor`, ordered by (`at`, `key`), descending unless `ascending`. Raises
    `InputInvalid` if the cursor does not come from a page."""
    query = ordered(query, at, key, limit=limit, cursor=cursor, ascending=ascending)
    return cut(session, query, at, key, limit=limit)


def ordered(
    query: sa.Select[*Ts],
    at: InstrumentedAttribute[datetime.datetime],
    key: InstrumentedAttribute[str],
    *,
    limit: int,
    cursor: str | None,
    ascending: bool = False,
) -> sa.Select[*Ts]:
    """Return the statement for a page. It selects one row more than `limit` to detect a next page. Raises the same
    errors as `page`."""
    if cursor is not None:
        last_at, last_key = _decode(cursor)
        last = sa.tuple_(sa.literal(last_at, at.type), sa.literal(last_key, key.type))
        # A comparison of tuples is one range of an index; an OR of comparisons is not.
        position = sa.tuple_(at, key)
        query = query.where(position > last if ascending else position < last)
    order = (at.asc(), key.asc()) if ascending else (at.desc(), key.desc())
    return query.order_by(*order).limit(limit + 1)


def cut(
    session: Session,
    query: sa.Select[T],
    at: InstrumentedAttribute[datetime.datetime],
    key: InstrumentedAttribute[str],
    *,
    limit: int,
) -> Page[T]:
    """Execute a statement returned by `ordered` and return its page. `at` and `key` may be columns of another table
    with the same names."""
    with sealed.opening(session):
        rows = list(session.scalars(query))
    more = len(rows) > limit
    rows = rows[:limit]
    return Page(rows, _encode(getattr(rows[-1], at.key), getattr(rows[-1], key.key)) if more else None)


def _encode(at: datetime.datetime, key: str) -> str:
    return base64.urlsafe_b64encode(json.dumps([at.isoformat(), key]).encode()).decode().rstrip("=")


def _decode(cursor: str) -> tuple[datetime.datetime, str]:
    try:
        at, key = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
        moment = datetime.datetime.fromisoformat(at)
        if moment.tzinfo is None or not isinstance(key, str):
            raise ValueError
        moment = moment.astimezone(datetime.UTC)
        # Refuse lone surrogates, which the database cannot store.
        key.encode()
    except (ValueError, TypeError, OverflowError, binascii.Error) as error:
        message = "Expected the next_cursor of an earlier page"
        raise InputInvalid(message, [FieldError("cursor", message)]) from error
    return moment, key
