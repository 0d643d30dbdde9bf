"""Stores of people's records: the interface of adapters, and the codes of their refusals."""

import contextlib
import hashlib
import os
import subprocess
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from lethe.features.stores.needles import StoreRecord
from lethe.features.stores.searching import CHUNK_BYTES


class StoreError(Exception):
    """A store cannot be erased from or searched; nothing is acknowledged. `code` names the reason, and the message
    contains no personal data."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreFile:
    """File of a store. `name` is its path in the store, and `is_public` is False if names may be about people.
    `decoded` yields the unpacked content, in parts with a name; None if the file is only read raw."""

    path: Path
    name: str
    is_public: bool = True
    decoded: Callable[[], Iterable[tuple[str, bytes]]] | None = None

    def chunks(self) -> Iterator[bytes]:
        """Yield the bytes of the file, or nothing if the file no longer exists."""
        with contextlib.suppress(FileNotFoundError), self.path.open("rb") as file:
            while chunk := file.read(CHUNK_BYTES):
                yield chunk


class Store(Protocol):
    """Store of records. `kind` is chroma, lancedb, pgvector or documents; `method` states how it erases people."""

    kind: str
    method: str

    def version(self) -> str:
        """Return the version of the store. Raises `StoreError` if that version was not tested."""

    def held(self) -> AbstractContextManager[None]:
        """Keep other processes out of the store, or raise `StoreError`."""

    def find(self, identifier: str) -> list[StoreRecord]:
        """Return the records of a person. Raises `StoreError` if the records have no identifier."""

    def plant(self, identifier: str) -> None:
        """Add a record of a made-up person that resembles the others. Raises `StoreError` if the store refuses it."""

    def erase(self, identifiers: Sequence[str]) -> None:
        """Delete the records of people, and compact or rebuild the store so that its files hold none of them."""

    def files(self) -> Iterable[StoreFile]:
        """Flush memory to the files, and return all files that may hold records."""

    def live(self) -> Iterator[StoreRecord]:
        """Yield all records that the store returns."""


def of_package(name: str, module: str, tested: str) -> str:
    """Return the version of a client, which must be the tested one. Raises `StoreError`."""
    import importlib.metadata

    try:
        version = importlib.metadata.version(module)
    except importlib.metadata.PackageNotFoundError:
        raise StoreError("store_library_missing", f"Install {module}=={tested} to open {name}") from None
    if version != tested:
        raise StoreError("store_version_untested", f"Expected {name} {tested}, found {version}")
    return version


def require_unused(folder: Path) -> None:
    """Raise `StoreError` if another process has opened a file of a folder, or if this cannot be determined."""
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
    """Hold an exclusive lock on a file next to the store. Raises `StoreError` if another run of Lethe holds it."""
    import fcntl

    with path.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise StoreError("store_in_use", "Another run of lethe store works on the store") from None
        yield


@contextlib.contextmanager
def stopped(stop: Sequence[str], start: Sequence[str]) -> Iterator[None]:
    """Run the command that stops the application of a store and, in any case at the end, the command that starts it.
    Raises `StoreError` if the application does not stop."""
    if stop and subprocess.run(stop, check=False, stdout=subprocess.DEVNULL).returncode != 0:  # noqa: S603
        raise StoreError("store_not_stopped", "The command that stops the application failed")
    try:
        yield
    finally:
        if start and subprocess.run(start, check=False, stdout=subprocess.DEVNULL).returncode != 0:  # noqa: S603
            raise StoreError("store_not_started", "The command that starts the application failed")


def swap(old: Path, new: Path) -> None:
    """Replace a folder by the rebuilt one, and destroy the old one. `recover` finishes a swap that a crash cut
    short."""
    aside = old.with_name(f"{old.name}.lethe-old")
    _sync(new)
    old.rename(aside)
    new.rename(old)
    _sync(old.parent, deep=False)
    destroy(aside)


def recover(folder: Path) -> None:
    """Finish or undo a swap that a crash cut short. Calling it again is a no-op."""
    aside, new = folder.with_name(f"{folder.name}.lethe-old"), folder.with_name(f"{folder.name}.lethe-new")
    if aside.exists() and not folder.exists():
        # The crash was between the two renames. The new folder is complete, because only complete ones are swapped.
        (new if new.exists() else aside).rename(folder)
    for left in (aside, new):
        if left.exists() and folder.exists():
            destroy(left)


def destroy(folder: Path) -> None:
    """Overwrite each file of a folder with zeros, and remove the folder."""
    import shutil

    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.is_symlink():
            overwrite(path)
    shutil.rmtree(folder)


def overwrite(path: Path) -> None:
    """Overwrite a file with zeros, in place, and sync it. File systems that copy on write keep the old blocks."""
    with path.open("r+b") as file:
        left = path.stat().st_size
        while left:
            left -= file.write(bytes(min(left, CHUNK_BYTES)))
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
    """Return the size in bytes and the SHA-256 (hex) of a file."""
    size, digest = 0, hashlib.sha256()
    for chunk in file.chunks():
        size += len(chunk)
        digest.update(chunk)
    return size, digest.hexdigest()


def is_control(identifier: Any) -> bool:
    """Return True for the identifier of a made-up person."""
    return isinstance(identifier, str) and identifier.startswith(CONTROL)


CONTROL = "lethe-control-"
"""Prefix of the identifiers and ids of made-up people."""
