"""A file of what must not lie anywhere: it has no name, and on the disk only what nobody can decipher.

Its key (AES-256-CTR) is made with it, is in the memory of this process alone and goes with it. So whatever ends the
process, and whatever the file system, a snapshot or a swapped page keeps of the file, there is nothing to wipe.
"""

import io
import os
import secrets
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer

_KEY = 32
_BLOCK = 16


def create(folder: Path) -> "Spool":
    """An empty one on the folder's file system."""
    return Spool(tempfile.TemporaryFile(dir=folder, buffering=0))


class Spool(io.RawIOBase):
    """Is written from its start to its end, once: no part of the key stream serves twice. Is read anywhere."""

    def __init__(self, file: io.FileIO) -> None:
        self._file = file
        self._key = secrets.token_bytes(_KEY)
        self._size = 0
        self._position = 0

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def write(self, content: "ReadableBuffer", /) -> int:
        """All of it. Raises `UnsupportedOperation` anywhere but at the end."""
        if self._position != self._size:
            raise io.UnsupportedOperation("A spool is written at its end only.")
        left = memoryview(self._ciphered(content, self._position))
        while left:
            written = os.pwrite(self._file.fileno(), left, self._position)
            self._position += written
            self._size = self._position
            left = left[written:]
        return memoryview(content).nbytes

    def readinto(self, buffer: "WriteableBuffer", /) -> int:
        view = memoryview(buffer).cast("B")
        read = os.pread(self._file.fileno(), len(view), self._position)
        view[: len(read)] = self._ciphered(read, self._position)
        self._position += len(read)
        return len(read)

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        position = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        if position < 0:
            raise ValueError(f"Expected {position=} >= 0")
        self._position = position
        return position

    def tell(self) -> int:
        return self._position

    def close(self) -> None:
        if not self.closed:
            self._file.close()
            self._key = b""
        super().close()

    def _ciphered(self, content: "ReadableBuffer", position: int) -> bytes:
        """Enciphered what is clear, clear what is enciphered."""
        counter = (position // _BLOCK).to_bytes(_BLOCK, "big")
        stream = Cipher(AES(self._key), CTR(counter)).encryptor()
        stream.update(bytes(position % _BLOCK))
        return stream.update(memoryview(content).cast("B"))
