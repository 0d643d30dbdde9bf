r"""Sealed archive: a sequence of pieces, encrypted and decrypted as a stream, so that no plaintext reaches a disk.

    lethe-backup/1\n
    the data key, wrapped by the key file     76 bytes
    chunks of 2**20 bytes                     each 16 bytes longer when sealed; the last one may be shorter

Each chunk is sealed (AES-256-GCM) under a nonce of its number and of a flag that marks the last chunk, so that an
archive with truncated, missing, changed or reordered chunks does not open. Each archive has a data key of its own. The
chunks contain the pieces one after the other: the lengths of name and content, the name, the content.
"""

import hashlib
import secrets
import struct
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Any

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from app.errors import BackupDamaged, BackupRefused
from app.keys import KeyEncryption, KeyEncryptionKeyLost

_FORMAT = b"lethe-backup/1\n"
_WRAPPED = 76
_CHUNK = 2**20
_TAG = 16
_HEAD = struct.Struct(">HQ")


class _Tallies:
    """Number of pieces, number of bytes and SHA-256 of each thing, such as a table."""

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
    """Part of a `thing`, such as `tables/requests`."""

    thing: str
    content: bytes


class Writer:
    """Writer of an archive. An archive does not open unless its writer was closed after the last piece."""

    def __init__(self, file: IO[bytes], key: KeyEncryption) -> None:
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
        """Return the tallies of all things written so far."""
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
    """Iterable over the pieces of an archive in their order, once."""

    def __init__(self, file: IO[bytes], key: KeyEncryption) -> None:
        """Open the archive. Raises `BackupRefused` for a file that is not an archive, or another key."""
        self._head = file.read(len(_FORMAT) + _WRAPPED)
        if not self._head.startswith(_FORMAT):
            raise BackupRefused("This is no backup that this release can read.")
        try:
            secret = key.unwrap(self._head[len(_FORMAT) :], _FORMAT.decode())
        except KeyEncryptionKeyLost as error:
            raise BackupRefused("The key file is not the one that this backup was made with.") from error
        except ValueError as error:
            raise BackupDamaged("The archive is damaged.") from error
        self._file, self._cipher = file, AESGCM(secret)
        self._next, self._num_opened = file.read(_CHUNK + _TAG), 0
        self._waiting, self._ended = bytearray(), False
        self._tallies = _Tallies()

    def __iter__(self) -> Iterator[Piece]:
        """Yield each piece, and tally it once the consumer asks for the next. Raises `BackupDamaged`."""
        while head := self._read(_HEAD.size):
            name_size, size = _HEAD.unpack(head)
            piece = Piece(thing=self._read(name_size).decode(), content=self._read(size))
            yield piece
            self._tallies.count(piece.thing, piece.content)

    def tallies(self) -> dict[str, Any]:
        """Return the tallies of all things whose pieces were read and processed so far."""
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
            raise BackupDamaged("The archive was cut off or changed; use another one.") from error
        self._num_opened += 1


def _nonce(number: int, *, last: bool) -> bytes:
    return number.to_bytes(11, "big") + bytes([last])
