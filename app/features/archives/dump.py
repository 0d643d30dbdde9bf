"""Tables as lines of JSON in their stored form, which load into SQLite and PostgreSQL alike.

Sealed values stay sealed, and keyed references stay as they are; vault and keys are separate parts of an archive.
"""

import base64
import datetime
import json
from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.db.tables import Moment, Table
from app.errors import BackupDamaged
from app.features.desk.tables import RequestAttachment
from app.features.networks.tables import NetworkPiece

_MAX_LINES = 2000
"""Maximum number of lines in a piece."""
_MAX_LONG_LINES = dict.fromkeys((NetworkPiece.__tablename__, RequestAttachment.__tablename__), 4)
"""Maximum number of lines in a piece, of tables with long lines."""


def _stored(table: sa.Table) -> sa.Table:
    """Return the same table with columns that neither seal, open nor hash."""
    columns = [sa.Column(column.name, _stored_type(column.type)) for column in table.columns]
    return sa.Table(table.name, sa.MetaData(), *columns)


def _stored_type(kind: sa.types.TypeEngine[Any]) -> sa.types.TypeEngine[Any]:
    return kind.impl_instance if isinstance(kind, sa.TypeDecorator) and not isinstance(kind, Moment) else kind


TABLES = {table.name: _stored(table) for table in Table.metadata.sorted_tables}
"""Tables by name, each after those that it refers to."""


def pieces(session: Session, table: sa.Table) -> Iterator[bytes]:
    """Yield all rows of a table in one or more pieces: a line of column names, then one line per row."""
    names = _line([column.name for column in table.columns])
    max_lines = _MAX_LONG_LINES.get(table.name, _MAX_LINES)
    rows = session.connection().execute(sa.select(table), execution_options={"yield_per": max_lines})
    yield names
    for part in rows.partitions(max_lines):
        yield names + b"".join(_line([_to_json(value) for value in row]) for row in part)


def load(session: Session, table: sa.Table, piece: bytes) -> None:
    """Insert the rows of a piece. Raises `BackupDamaged` if its columns are not those of the table."""
    names, *rows = (json.loads(line) for line in piece.splitlines())
    if names != [column.name for column in table.columns]:
        raise BackupDamaged(f"The backup has other columns in the table {table.name} than this release.")
    kinds = [column.type for column in table.columns]
    values = [dict(zip(names, map(_from_json, row, kinds), strict=True)) for row in rows]
    if values:
        session.connection().execute(sa.insert(table), values)


def _line(values: list[Any]) -> bytes:
    return json.dumps(values, separators=(",", ":"), allow_nan=False).encode() + b"\n"


def _to_json(value: Any) -> Any:
    match value:
        case datetime.datetime():
            return value.isoformat()
        case bytes():
            return base64.b64encode(value).decode()
        case _:
            return value


def _from_json(value: Any, kind: sa.types.TypeEngine[Any]) -> Any:
    match kind:
        case _ if value is None:
            return None
        case Moment():
            return datetime.datetime.fromisoformat(value)
        case sa.LargeBinary():
            return base64.b64decode(value)
        case _:
            return value
