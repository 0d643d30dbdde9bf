"""Files and object stores for erasable data: durable once written, private, and overwritten before removal."""

import contextlib
import datetime
import errno
import fcntl
import io
import mmap
import os
import re
import secrets
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Protocol

from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR

from app import folders

_CHUNK = 2**20


@contextmanager
def created(path: Path) -> Iterator[IO[bytes]]:
    """Create a file that only its owner can read and that is durable after the block."""
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


@contextmanager
def locked(folder: Path, *, wait: bool = True) -> Iterator[int]:
    """Lock a folder against other processes, and yield its descriptor. The lock is released when the process ends, for
    whatever reason. Without `wait`, raise `BlockingIOError` if the folder is already locked."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        yield descriptor
    finally:
        os.close(descriptor)


def sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def written_at(paths: Iterable[Path]) -> Iterator[tuple[str, datetime.datetime]]:
    """Yield the name and the time of the last write (aware UTC) of each file that exists."""
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            yield path.name, datetime.datetime.fromtimestamp(path.stat().st_mtime, datetime.UTC)


def zero_and_verify(path: Path, spans: Sequence[tuple[int, int]]) -> None:
    """Overwrite (offset, size) spans with zeros and read them back, from the disk if the page cache can be dropped.

    Raises `OSError` if other bytes are read back.
    """
    with path.open("r+b", buffering=0) as file:
        _zero_and_verify(file.fileno(), spans, path)


def wipe_file(path: Path) -> None:
    """Overwrite a file with zeros, then remove it. A missing file is ignored, and concurrent calls are safe."""
    if path.exists():
        # A concurrent call that removes the file has overwritten it.
        with contextlib.suppress(FileNotFoundError):
            zero_and_verify(path, [(0, path.stat().st_size)])
            path.unlink()
        sync_folder(path.parent)


def replace(new: Path, path: Path) -> None:
    """Rename `new` to `path`, then overwrite the replaced file with zeros."""
    if not path.exists():
        new.rename(path)
        sync_folder(path.parent)
        return
    # Once the old file has lost its name, it can be overwritten only through a descriptor that is already open.
    with path.open("r+b", buffering=0) as old:
        size = os.fstat(old.fileno()).st_size
        new.rename(path)
        sync_folder(path.parent)
        # The rename must be durable first: a power failure could bring back the old name, with zeros in the file.
        _zero_and_verify(old.fileno(), [(0, size)], path)


def _zero_and_verify(descriptor: int, spans: Sequence[tuple[int, int]], path: Path) -> None:
    for offset, size in spans:
        for start in range(offset, offset + size, _CHUNK):
            os.pwrite(descriptor, bytes(min(_CHUNK, offset + size - start)), start)
    os.fsync(descriptor)
    for offset, size in spans:
        if hasattr(os, "posix_fadvise"):
            # The kernel drops only whole pages.
            first = offset - offset % mmap.PAGESIZE
            os.posix_fadvise(descriptor, first, offset + size + mmap.PAGESIZE - first, os.POSIX_FADV_DONTNEED)
        for start in range(offset, offset + size, _CHUNK):
            length = min(_CHUNK, offset + size - start)
            if os.pread(descriptor, length, start) != bytes(length):
                raise OSError(errno.EIO, "Zeros were written and something else was read back", str(path))


if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer

_KEY = 32
_BLOCK = 16


def create(folder: Path) -> "Spool":
    """Create an empty spool on the folder's file system."""
    return Spool(tempfile.TemporaryFile(dir=folder, buffering=0))


class Spool(io.RawIOBase):
    """Unnamed file, encrypted under a key held in memory. It can be read at any position, but is append-only, because
    no part of the key stream may be used twice."""

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
        """Append all of `content`. Raises `UnsupportedOperation` if the position is not at the end of the file."""
        if self._position != self._size:
            raise io.UnsupportedOperation("A spool is written at its end only.")
        remaining = memoryview(self._ciphered(content, self._position))
        while remaining:
            count = os.pwrite(self._file.fileno(), remaining, self._position)
            self._position += count
            self._size = self._position
            remaining = remaining[count:]
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
        """Encrypt or decrypt bytes at a position; the two operations are identical."""
        counter = (position // _BLOCK).to_bytes(_BLOCK, "big")
        stream = Cipher(AES(self._key), CTR(counter)).encryptor()
        stream.update(bytes(position % _BLOCK))
        return stream.update(memoryview(content).cast("B"))


_UNFINISHED = ".unfinished"
_NAME = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)+")


class StoreUnavailable(OSError):
    """Failure of the store. The effect of a failed write is unknown, so the write must be repeated."""


class FolderAway(StoreUnavailable):
    """Missing folder: it was never created, or its file system is not mounted."""


class StoreKeepsVersions(OSError):
    """Store that retains overwritten or deleted objects, and therefore must not be used."""


class ObjectStore(Protocol):
    """Store of named objects. Writes are atomic, and durable when the call returns."""

    def check(self) -> None:
        """Check that objects can be written, read and erased; otherwise raise `StoreKeepsVersions` or an `OSError`."""

    def put(self, name: str, content: bytes) -> None:
        """Write an object, replacing an existing object of this name."""

    def create(self, name: str, content: bytes) -> None:
        """Write a new object, or raise `FileExistsError` if the name exists. Of concurrent calls only one succeeds."""

    def get(self, name: str) -> bytes:
        """Return the content of an object, or raise `FileNotFoundError`."""

    def delete(self, name: str) -> None:
        """Delete an object; ignore a missing object."""

    def names(self, group: str | None = None) -> dict[str, datetime.datetime]:
        """Return the names of all objects, or of one group, each with its write time (aware UTC). This includes partial
        files left by a crash, which `delete` removes."""


class FolderStore:
    """Folder of files with mode 0600. Replaced and deleted files are overwritten with zeros.

    Files are first written to a subfolder, so that remnants of a crash are quick to find."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def check(self) -> None:
        folders.make(self._folder)

    def put(self, name: str, content: bytes) -> None:
        replace(self._written(name, content), self._path(name))

    def create(self, name: str, content: bytes) -> None:
        unfinished = self._written(name, content)
        try:
            os.link(unfinished, self._path(name))
        finally:
            unfinished.unlink()
        sync_folder(self._folder)

    def get(self, name: str) -> bytes:
        try:
            return self._path(name).read_bytes()
        except FileNotFoundError:
            if self._folder.is_dir():
                raise
            raise FolderAway(f"The folder {self._folder} is not there; is it mounted?") from None

    def delete(self, name: str) -> None:
        folder, path = self._folder / _UNFINISHED, self._path(name)
        for unfinished in os.listdir(folder) if folder.is_dir() else ():
            if unfinished.startswith(f"{name}."):
                wipe_file(folder / unfinished)
        wipe_file(path)

    def names(self, group: str | None = None) -> dict[str, datetime.datetime]:
        pattern = "[!.]*.*" if group is None else f"{group}.*"
        # A crash during a write leaves a partial file, whose name may never become that of an object.
        unfinished = {
            name.rpartition(".")[0]: at for name, at in written_at((self._folder / _UNFINISHED).glob(pattern))
        }
        return unfinished | dict(written_at(self._folder.glob(pattern)))

    def _written(self, name: str, content: bytes) -> Path:
        path = self._folder / _UNFINISHED / f"{checked(name)}.{secrets.token_hex(4)}"
        self.check()
        path.parent.mkdir(mode=0o700, exist_ok=True)
        try:
            with created(path) as file:
                file.write(content)
        except OSError:
            # On a full disk this frees the space of the partial file.
            path.unlink(missing_ok=True)
            raise
        return path

    def _path(self, name: str) -> Path:
        return self._folder / checked(name)


def checked(name: str) -> str:
    """Return the name if it is valid in every store; otherwise raise `ValueError`."""
    if not _NAME.fullmatch(name):
        raise ValueError(f"Expected {name=} of letters, digits, '_' and '-', with a '.' after its group")
    return name
