"""Files that hold what must be able to go: durable when written, for their owner only, zero before they are removed."""

import contextlib
import datetime
import errno
import fcntl
import mmap
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

_CHUNK = 2**20


@contextmanager
def created(path: Path) -> Iterator[IO[bytes]]:
    """A new file, only for its owner to read, that is durable when the block ends."""
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


@contextmanager
def locked(folder: Path, *, wait: bool = True) -> Iterator[int]:
    """One process at a time; the lock goes with its process, however that ends. Yields the folder's descriptor."""
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
    """The names of those that are still there, and when (aware UTC) each was last written."""
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            yield path.name, datetime.datetime.fromtimestamp(path.stat().st_mtime, datetime.UTC)


def zero_and_verify(path: Path, spans: Sequence[tuple[int, int]]) -> None:
    """Zero these (offset, size) spans and read them back, from the disk where the page cache can be told to let go."""
    with path.open("r+b", buffering=0) as file:
        _zero_and_verify(file.fileno(), spans, path)


def wipe_file(path: Path) -> None:
    """Overwrite the file with zeros, then remove it, if it is there. Others may do so too."""
    if path.exists():
        with contextlib.suppress(FileNotFoundError):  # who removed it meanwhile had overwritten it
            zero_and_verify(path, [(0, path.stat().st_size)])
            path.unlink()
        sync_folder(path.parent)


def wipe(folder: Path) -> None:
    """Overwrite every file of the folder with zeros, then remove it, if it is there. Others may do so too."""
    if not folder.exists():
        return
    while folder.exists():
        with contextlib.suppress(FileNotFoundError):
            for path in folder.iterdir():
                zero_and_verify(path, [(0, path.stat().st_size)])
            shutil.rmtree(folder)
    sync_folder(folder.parent)


def replace(new: Path, path: Path) -> None:
    """Give `new` the name `path`, then overwrite with zeros what had that name."""
    if not path.exists():
        new.rename(path)
        sync_folder(path.parent)
        return
    with path.open("r+b", buffering=0) as old:
        size = os.fstat(old.fileno()).st_size
        new.rename(path)
        sync_folder(path.parent)
        _zero_and_verify(old.fileno(), [(0, size)], path)


def _zero_and_verify(descriptor: int, spans: Sequence[tuple[int, int]], path: Path) -> None:
    for offset, size in spans:
        for start in range(offset, offset + size, _CHUNK):
            os.pwrite(descriptor, bytes(min(_CHUNK, offset + size - start)), start)
    os.fsync(descriptor)
    for offset, size in spans:
        if hasattr(os, "posix_fadvise"):
            whole_pages = offset - offset % mmap.PAGESIZE  # a page is dropped whole or not at all
            os.posix_fadvise(
                descriptor, whole_pages, offset + size + mmap.PAGESIZE - whole_pages, os.POSIX_FADV_DONTNEED
            )
        for start in range(offset, offset + size, _CHUNK):
            length = min(_CHUNK, offset + size - start)
            if os.pread(descriptor, length, start) != bytes(length):
                raise OSError(errno.EIO, "Zeros were written and something else was read back", str(path))
