"""Stores of people's records: the adapters' interface, and the codes for refusals."""

import contextlib
import hashlib
import os
import subprocess
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from lethe.features.stores import needles, searching


class StoreError(Exception):
    """Failure to search a store or erase from it, so that nothing is acknowledged. `code` names the reason. The message
    contains no personal data."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreFile:
    """File of a store. `name` is its path in the store; `is_public` is False if the name may identify people. `decoded`
    yields the unpacked content as named parts; None if the file is only read raw."""

    path: Path
    name: str
    is_public: bool = True
    decoded: Callable[[], Iterable[tuple[str, bytes]]] | None = None

    def chunks(self) -> Iterator[bytes]:
        """Yield the file's bytes, or nothing if the file no longer exists."""
        with contextlib.suppress(FileNotFoundError), self.path.open("rb") as file:
            while chunk := file.read(searching.CHUNK_BYTES):
                yield chunk


class Store(Protocol):
    """Store of people's records. `kind` is chroma, lancedb, pgvector or documents; `method` states how it erases."""

    kind: str
    method: str

    def version(self) -> str:
        """Return the store's version. Raises `StoreError` if Lethe has not been tested with this version."""

    def held(self) -> AbstractContextManager[None]:
        """Keep other processes out of the store. Raises `StoreError` if that is not possible."""

    def find(self, identifier: str) -> list[needles.StoreRecord]:
        """Return a person's records. Raises `StoreError` if the store's records have no identifier."""

    def plant(self, identifier: str) -> None:
        """Add a record of a made-up person, similar to existing ones. Raises `StoreError` if the store refuses it."""

    def erase(self, identifiers: Sequence[str]) -> None:
        """Delete people's records, and compact or rebuild the store so that its files no longer contain them."""

    def files(self) -> Iterable[StoreFile]:
        """Flush the store's memory to its files, and return all files that may contain records."""

    def live(self) -> Iterator[needles.StoreRecord]:
        """Yield every live record, as the store returns it."""


def of_package(name: str, module: str, tested: str) -> str:
    """Return a client package's version. Raises `StoreError` unless it is the tested version."""
    import importlib.metadata

    try:
        version = importlib.metadata.version(module)
    except importlib.metadata.PackageNotFoundError:
        raise StoreError("store_library_missing", f"Install {module}=={tested} to open {name}") from None
    if version != tested:
        raise StoreError("store_version_untested", f"Expected {name} {tested}, found {version}")
    return version


def require_unused(folder: Path) -> None:
    """Raise `StoreError` if another process that this user can inspect has a file in the folder open."""
    import psutil

    inside = os.path.realpath(folder) + os.sep
    for process in psutil.process_iter():
        if process.pid == os.getpid():
            continue
        with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            if any(os.path.realpath(file.path).startswith(inside) for file in process.open_files()):
                raise StoreError("store_in_use", f"Process {process.pid} has files of the store open; stop it first")


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on a file next to the store. Raises `StoreError` if another Lethe command holds it."""
    import fcntl

    with path.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise StoreError("store_in_use", "Another run of lethe store works on the store") from None
        yield


@contextlib.contextmanager
def stopped(stop: Sequence[str], start: Sequence[str]) -> Iterator[None]:
    """Run an application's `stop` command and, when the `with` block ends for any reason, its `start` command. Raises
    `StoreError` if either command fails."""
    if stop and subprocess.run(stop, check=False, stdout=subprocess.DEVNULL).returncode != 0:  # noqa: S603
        raise StoreError("store_not_stopped", "The command that stops the application failed")
    try:
        yield
    finally:
        if start and subprocess.run(start, check=False, stdout=subprocess.DEVNULL).returncode != 0:  # noqa: S603
            raise StoreError("store_not_started", "The command that starts the application failed")


def swap(old: Path, new: Path) -> None:
    """Replace a folder with the rebuilt one, and destroy the old one. `recover` finishes a swap interrupted by a
    crash."""
    aside = old.with_name(f"{old.name}.lethe-old")
    # After `destroy` the rebuilt files are the only copy, so they must be on the disk first.
    _sync(new)
    old.rename(aside)
    new.rename(old)
    _sync(old.parent, deep=False)
    destroy(aside)


def recover(folder: Path) -> None:
    """Finish or undo a swap that was interrupted by a crash. Calling this again is a no-op."""
    aside, new = folder.with_name(f"{folder.name}.lethe-old"), folder.with_name(f"{folder.name}.lethe-new")
    if aside.exists() and not folder.exists():
        # The crash was between the two renames. The new folder is complete, because only complete ones are swapped.
        (new if new.exists() else aside).rename(folder)
    for left in (aside, new):
        if left.exists() and folder.exists():
            destroy(left)


def destroy(folder: Path) -> None:
    """Overwrite each file in a folder with zeros, and remove the folder."""
    import shutil

    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.is_symlink():
            overwrite(path)
    shutil.rmtree(folder)


def overwrite(path: Path) -> None:
    """Overwrite a file with zeros in place, and sync it. Copy-on-write file systems keep the old blocks."""
    with path.open("r+b") as file:
        left = path.stat().st_size
        while left:
            left -= file.write(bytes(min(left, searching.CHUNK_BYTES)))
        file.flush()
        os.fsync(file.fileno())


def _sync(folder: Path, *, deep: bool = True) -> None:
    for path in (folder, *(folder.rglob("*") if deep else ())):
        number = os.open(path, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)


def digest_of(file: StoreFile) -> tuple[int, str]:
    """Return a file's size in bytes and its SHA-256 (hex)."""
    size, digest = 0, hashlib.sha256()
    for chunk in file.chunks():
        size += len(chunk)
        digest.update(chunk)
    return size, digest.hexdigest()


def is_control(identifier: Any) -> bool:
    """Return True if the identifier is that of a made-up person."""
    return isinstance(identifier, str) and identifier.startswith(CONTROL)


CONTROL = "lethe-control-"
"""Prefix of the identifiers and ids of made-up people."""
