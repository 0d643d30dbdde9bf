r"""Sealed archive: a sequence of pieces, encrypted and decrypted as a stream, so that no plaintext reaches the disk.

    lethe-backup/1\n
    the data key, wrapped by the key file     76 bytes
    chunks of 2**20 bytes                     each 16 bytes longer when sealed; the last one may be shorter

Each chunk is sealed (AES-256-GCM) under a nonce made of its number and a last-chunk flag, so that an archive with
truncated, missing, changed or reordered chunks cannot be read. Each archive has its own data key. The pieces are
concatenated; each consists of the lengths of its name and content, its name, and its content.

Tables are stored as pieces of JSON lines, which can be loaded into both SQLite and PostgreSQL. Sealed values stay
sealed, and keyed references are unchanged. The vault and the keys are stored in separate pieces.
"""

import base64
import datetime
import hashlib
import json
import secrets
import struct
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Any

import sqlalchemy as sa
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from sqlalchemy.orm import Session

from app import errors, keys
from app.db.tables import Moment, Table
from app.features.desk.tables import RequestAttachment
from app.features.networks.tables import NetworkPiece

_MAX_LINES = 2000
"""Maximum number of lines in a piece."""
_MAX_LONG_LINES = dict.fromkeys((NetworkPiece.__tablename__, RequestAttachment.__tablename__), 4)
"""Maximum number of lines in a piece, for tables with long lines."""


def _stored(table: sa.Table) -> sa.Table:
    """Return a copy of the table whose columns pass values through without sealing, opening or hashing them."""
    columns = [sa.Column(column.name, _stored_type(column.type)) for column in table.columns]
    return sa.Table(table.name, sa.MetaData(), *columns)


def _stored_type(kind: sa.types.TypeEngine[Any]) -> sa.types.TypeEngine[Any]:
    return kind.impl_instance if isinstance(kind, sa.TypeDecorator) and not isinstance(kind, Moment) else kind


TABLES = {table.name: _stored(table) for table in Table.metadata.sorted_tables}
"""Tables by name, each after the tables that it references."""


def pieces(session: Session, table: sa.Table) -> Iterator[bytes]:
    """Yield a table's rows in one or more pieces, each a line of column names followed by one line per row."""
    names = _line([column.name for column in table.columns])
    max_lines = _MAX_LONG_LINES.get(table.name, _MAX_LINES)
    rows = session.connection().execute(sa.select(table), execution_options={"yield_per": max_lines})
    yield names
    for part in rows.partitions(max_lines):
        yield names + b"".join(_line([_to_json(value) for value in row]) for row in part)


def load(session: Session, table: sa.Table, piece: bytes) -> None:
    """Insert a piece's rows into the table. Raises `BackupDamaged` if the piece's columns differ from the table's."""
    names, *rows = (json.loads(line) for line in piece.splitlines())
    if names != [column.name for column in table.columns]:
        raise errors.BackupDamaged(f"The backup has other columns in the table {table.name} than this release.")
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


_FORMAT = b"lethe-backup/1\n"
_WRAPPED = 76
_CHUNK = 2**20
_TAG = 16
_HEAD = struct.Struct(">HQ")


class _Tallies:
    """Piece count, byte count and SHA-256 of each part of an archive, such as a table."""

    def __init__(self) -> None:
        self._hashes: defaultdict[str, Any] = defaultdict(hashlib.sha256)
        self._pieces: Counter[str] = Counter()
        self._bytes: Counter[str] = Counter()

    def count(self, thing: str, content: bytes) -> None:
        self._hashes[thing].update(content)
        self._pieces[thing] += 1
        self._bytes[thing] += len(content)

    def as_json(self) -> dict[str, Any]:
        return {
            thing: {"pieces": self._pieces[thing], "bytes": self._bytes[thing], "sha256": sha256.hexdigest()}
            for thing, sha256 in self._hashes.items()
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Piece of an archive, with part of the content of a `thing` such as `tables/requests`."""

    thing: str
    content: bytes


class Writer:
    """Archive writer. An archive cannot be read to its end unless its writer was closed after the last piece."""

    def __init__(self, file: IO[bytes], key: keys.KeyEncryption) -> None:
        secret = secrets.token_bytes(32)
        self._head = _FORMAT + key.wrap(secret, _FORMAT.decode())
        self._file, self._cipher = file, AESGCM(secret)
        self._waiting, self._num_sealed = bytearray(), 0
        self._tallies = _Tallies()
        file.write(self._head)

    def write(self, thing: str, content: bytes) -> None:
        self._tallies.count(thing, content)
        name = thing.encode()
        self._append(_HEAD.pack(len(name), len(content)) + name)
        self._append(content)

    def tallies(self) -> dict[str, Any]:
        """Return the tallies of everything written so far."""
        return self._tallies.as_json()

    def close(self) -> None:
        self._seal(bytes(self._waiting), last=True)

    def _append(self, content: bytes) -> None:
        self._waiting += content
        # A full chunk waits for more bytes, because it may be the last one.
        while len(self._waiting) > _CHUNK:
            self._seal(bytes(self._waiting[:_CHUNK]), last=False)
            del self._waiting[:_CHUNK]

    def _seal(self, chunk: bytes, *, last: bool) -> None:
        self._file.write(self._cipher.encrypt(_nonce(self._num_sealed, last=last), chunk, self._head))
        self._num_sealed += 1


class Reader:
    """Single-use iterable over an archive's pieces, in order."""

    def __init__(self, file: IO[bytes], key: keys.KeyEncryption) -> None:
        """Open the archive. Raises `BackupRefused` if the file is not an archive or the key is wrong."""
        self._head = file.read(len(_FORMAT) + _WRAPPED)
        if not self._head.startswith(_FORMAT):
            raise errors.BackupRefused("This is no backup that this release can read.")
        try:
            secret = key.unwrap(self._head[len(_FORMAT) :], _FORMAT.decode())
        except keys.KeyEncryptionKeyLost as error:
            raise errors.BackupRefused("The key file is not the one that this backup was made with.") from error
        except ValueError as error:
            raise errors.BackupDamaged("The archive is damaged.") from error
        self._file, self._cipher = file, AESGCM(secret)
        self._next, self._num_opened = file.read(_CHUNK + _TAG), 0
        self._waiting, self._ended = bytearray(), False
        self._tallies = _Tallies()

    def __iter__(self) -> Iterator[Piece]:
        """Yield each piece, and tally it once the consumer requests the next one. Raises `BackupDamaged`."""
        while head := self._read(_HEAD.size):
            name_size, size = _HEAD.unpack(head)
            piece = Piece(thing=self._read(name_size).decode(), content=self._read(size))
            yield piece
            self._tallies.count(piece.thing, piece.content)

    def tallies(self) -> dict[str, Any]:
        """Return the tallies of all pieces read and processed so far."""
        return self._tallies.as_json()

    def _read(self, size: int) -> bytes:
        while len(self._waiting) < size and not self._ended:
            self._open_chunk()
        content = bytes(self._waiting[:size])
        del self._waiting[:size]
        return content

    def _open_chunk(self) -> None:
        chunk, self._next = self._next, self._file.read(_CHUNK + _TAG)
        self._ended = not self._next
        try:
            self._waiting += self._cipher.decrypt(_nonce(self._num_opened, last=self._ended), chunk, self._head)
        except (InvalidTag, ValueError) as error:
            raise errors.BackupDamaged("The archive was cut off or changed; use another one.") from error
        self._num_opened += 1


def _nonce(number: int, *, last: bool) -> bytes:
    # The data key seals this archive alone, so a number never repeats as a nonce.
    return number.to_bytes(11, "big") + bytes([last])
