"""An archive: pieces, sealed as they come and opened as they come; none of it is ever on a disk in clear.

    lethe-backup/1\\n
    the data key, wrapped by the key file     76 bytes
    chunks of 2**20 bytes                     each 16 bytes longer for being sealed; the last one as it comes

A chunk is sealed (AES-256-GCM) under a nonce of its number and of whether it is the last: whatever was cut off, left
out, changed, or put in another order does not open. Each archive has a data key of its own. In the chunks are the
pieces, one after the other: the lengths of name and content, the name, the content.
"""

import hashlib
import secrets
import struct
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """The tally of one thing that was written, such as one table: its pieces, their bytes, and their SHA-256."""

    pieces: int
    bytes: int
    sha256: str


class _Tallies:
    def __init__(self) -> None:
        self._hashes: defaultdict[str, Any] = defaultdict(hashlib.sha256)
        self._counts: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0])

    def count(self, thing: str, content: bytes) -> None:
        self._hashes[thing].update(content)
        counts = self._counts[thing]
        counts[0], counts[1] = counts[0] + 1, counts[1] + len(content)

    def as_json(self) -> dict[str, Any]:
        return {
            thing: asdict(Tally(pieces=counts[0], bytes=counts[1], sha256=self._hashes[thing].hexdigest()))
            for thing, counts in self._counts.items()
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Some bytes of a `thing`, such as `tables/requests`."""

    thing: str
    content: bytes


class Writer:
    """Takes pieces one by one; `close` says that there are no more, without which the archive does not open."""

    def __init__(self, file: IO[bytes], key: KeyEncryption) -> None:
        self._sealing = _Sealing(file, key)
        self._tallies = _Tallies()

    def write(self, thing: str, content: bytes) -> None:
        self._tallies.count(thing, content)
        name = thing.encode()
        self._sealing.write(_HEAD.pack(len(name), len(content)) + name)
        self._sealing.write(content)

    def tallies(self) -> dict[str, Any]:
        """The tallies of all things so far."""
        return self._tallies.as_json()

    def close(self) -> None:
        self._sealing.close()


class Reader:
    """The pieces of an archive, in their order. Raises `BackupRefused` if it is none, or the key is another one."""

    def __init__(self, file: IO[bytes], key: KeyEncryption) -> None:
        self._opening = _Opening(file, key)
        self._tallies = _Tallies()

    def __iter__(self) -> Iterator[Piece]:
        """Raises `BackupDamaged`."""
        while head := self._opening.read(_HEAD.size):
            name_size, size = _HEAD.unpack(head)
            piece = Piece(thing=self._opening.read(name_size).decode(), content=self._opening.read(size))
            yield piece
            self._tallies.count(piece.thing, piece.content)

    def tallies(self) -> dict[str, Any]:
        """The tallies of all things that were read and dealt with so far."""
        return self._tallies.as_json()


class _Sealing:
    def __init__(self, file: IO[bytes], key: KeyEncryption) -> None:
        secret = secrets.token_bytes(32)
        self._head = _FORMAT + key.wrap(secret, _FORMAT.decode())
        self._file, self._cipher = file, AESGCM(secret)
        self._waiting, self._sealed = bytearray(), 0
        file.write(self._head)

    def write(self, content: bytes) -> int:
        self._waiting += content
        while len(self._waiting) > _CHUNK:  # what is full may be the last
            self._seal(bytes(self._waiting[:_CHUNK]), last=False)
            del self._waiting[:_CHUNK]
        return len(content)

    def close(self) -> None:
        self._seal(bytes(self._waiting), last=True)

    def _seal(self, chunk: bytes, *, last: bool) -> None:
        self._file.write(self._cipher.encrypt(_nonce(self._sealed, last=last), chunk, self._head))
        self._sealed += 1


class _Opening:
    def __init__(self, file: IO[bytes], key: KeyEncryption) -> None:
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
        self._next, self._opened = file.read(_CHUNK + _TAG), 0
        self._waiting, self._ended = bytearray(), False

    def read(self, size: int) -> bytes:
        while len(self._waiting) < size and not self._ended:
            self._open()
        found = bytes(self._waiting[:size])
        del self._waiting[:size]
        return found

    def _open(self) -> None:
        chunk, self._next = self._next, self._file.read(_CHUNK + _TAG)
        self._ended = not self._next
        try:
            self._waiting += self._cipher.decrypt(_nonce(self._opened, last=self._ended), chunk, self._head)
        except (InvalidTag, ValueError) as error:
            raise BackupDamaged("The archive was cut off or changed; use another one.") from error
        self._opened += 1


def _nonce(number: int, *, last: bool) -> bytes:
    return number.to_bytes(11, "big") + bytes([last])
