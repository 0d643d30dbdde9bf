"""The service's store of bytes: named objects, in a folder or in a bucket.

What a name has before its first '.' is its group: a version of a model, a dataset.

What is stored here need not be forgettable by the store: whatever is about people is sealed before it comes
(`app/vault/sealing.py`). Every operation raises `OSError` for what the store cannot do now.
"""

import datetime
import os
import re
import secrets
from pathlib import Path
from typing import Protocol

from app import folders
from app.vault.files import created, replace, sync_folder, wipe_file, written_at

_UNFINISHED = ".unfinished"
_NAME = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)+")


class StoreUnavailable(OSError):
    """The store did not do what it was asked; what it did with a write is unknown, so it is to be repeated."""


class FolderAway(StoreUnavailable):
    """The folder is not there: it was never made, or what it is on is not mounted."""


class StoreKeepsVersions(OSError):
    """The store keeps what is overwritten or deleted, so it is not used."""


class ObjectStore(Protocol):
    """Named objects, each there whole or not at all, and durable when a call returns."""

    def check(self) -> None:
        """Raises `StoreKeepsVersions` or another `OSError` where things cannot be written, read and forgotten."""

    def put(self, name: str, content: bytes) -> None:
        """Write the object, in place of the one of this name if there is one."""

    def create(self, name: str, content: bytes) -> None:
        """Write an object of a new name. Raises `FileExistsError`; of several that race one succeeds."""

    def get(self, name: str) -> bytes:
        """Raises `FileNotFoundError`."""

    def delete(self, name: str) -> None:
        """Nothing happens where there is none."""

    def names(self, group: str | None = None) -> dict[str, datetime.datetime]:
        """The objects, all or those of a group, and when (aware UTC) they were written."""


class FolderStore:
    """A folder of files of mode 0600; what is replaced or deleted is overwritten with zeros first.

    Files are written in a folder of their own inside it, so that what a crash left of one is found among a few.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def check(self) -> None:
        folders.make(self._folder)

    def put(self, name: str, content: bytes) -> None:
        replace(self._written(name, content), self._path(name))

    def create(self, name: str, content: bytes) -> None:
        written = self._written(name, content)
        try:
            os.link(written, self._path(name))
        finally:
            written.unlink()
        sync_folder(self._folder)

    def get(self, name: str) -> bytes:
        try:
            return self._path(name).read_bytes()
        except FileNotFoundError:
            if self._folder.is_dir():
                raise
            raise FolderAway(f"The folder {self._folder} is not there; is it mounted?") from None

    def delete(self, name: str) -> None:
        for left_by_a_crash in (self._folder / _UNFINISHED).glob(f"{checked(name)}.*"):
            wipe_file(left_by_a_crash)
        wipe_file(self._path(name))

    def names(self, group: str | None = None) -> dict[str, datetime.datetime]:
        return dict(written_at(self._folder.glob("[!.]*.*" if group is None else f"{group}.*")))

    def _written(self, name: str, content: bytes) -> Path:
        path = self._folder / _UNFINISHED / f"{checked(name)}.{secrets.token_hex(4)}"
        self.check()
        path.parent.mkdir(mode=0o700, exist_ok=True)
        try:
            with created(path) as file:
                file.write(content)
        except OSError:  # a full disk gets back the room that this took
            path.unlink(missing_ok=True)
            raise
        return path

    def _path(self, name: str) -> Path:
        return self._folder / checked(name)


def checked(name: str) -> str:
    """The name, if it is one that every store takes."""
    if not _NAME.fullmatch(name):
        raise ValueError(f"Expected {name=} of letters, digits, '_' and '-', with a '.' after its group")
    return name
