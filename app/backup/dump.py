"""The tables, line by line, as they are stored: the same lines go into SQLite and into PostgreSQL.

Sealed values stay sealed, and keyed references stay what they are; the vault and the keys are parts of their own.
"""

import base64
import datetime
import json
from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.db.tables import Moment, NetworkPiece, RequestAttachment, Table
from app.errors import BackupDamaged

_LINES = 2000
"""Lines of a piece, at most."""
_LINES_OF = {NetworkPiece.__tablename__: 4, RequestAttachment.__tablename__: 4}
"""Lines of a piece where a line is long."""


def _stored(table: sa.Table) -> sa.Table:
    """The same table, with columns that seal, open and hash nothing."""
    columns = [sa.Column(column.name, _stored_type(column.type)) for column in table.columns]
    return sa.Table(table.name, sa.MetaData(), *columns)


def _stored_type(kind: sa.types.TypeEngine[Any]) -> sa.types.TypeEngine[Any]:
    return kind.impl_instance if isinstance(kind, sa.TypeDecorator) and not isinstance(kind, Moment) else kind


TABLES = {table.name: _stored(table) for table in Table.metadata.sorted_tables}
"""In an order in which what others refer to comes first."""


def pieces(session: Session, table: sa.Table) -> Iterator[bytes]:
    """All rows of a table: in each piece a line that names the columns, then a line for each row. There is one at
    least."""
    names = _line([column.name for column in table.columns])
    lines = _LINES_OF.get(table.name, _LINES)
    found = session.connection().execute(sa.select(table), execution_options={"yield_per": lines})
    yield names
    for rows in found.partitions(lines):
        yield names + b"".join(_line([_written(value) for value in row]) for row in rows)


def load(session: Session, table: sa.Table, piece: bytes) -> None:
    """Add the rows of a piece. Raises `BackupDamaged` where it is of another table."""
    names, *rows = (json.loads(line) for line in piece.splitlines())
    if names != [column.name for column in table.columns]:
        raise BackupDamaged(f"The backup has other columns in the table {table.name} than this release.")
    kinds = [column.type for column in table.columns]
    lines = [dict(zip(names, map(_read, row, kinds), strict=True)) for row in rows]
    if lines:
        session.connection().execute(sa.insert(table), lines)


def _line(values: list[Any]) -> bytes:
    return json.dumps(values, separators=(",", ":"), allow_nan=False).encode() + b"\n"


def _written(value: Any) -> Any:
    match value:
        case datetime.datetime():
            return value.isoformat()
        case bytes():
            return base64.b64encode(value).decode()
        case _:
            return value


def _read(value: Any, kind: sa.types.TypeEngine[Any]) -> Any:
    match kind:
        case _ if value is None:
            return None
        case Moment():
            return datetime.datetime.fromisoformat(value)
        case sa.LargeBinary():
            return base64.b64decode(value)
        case _:
            return value
