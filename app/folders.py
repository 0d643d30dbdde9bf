"""Folders that only their owner can enter: what is made is 0700 and 0600, whatever the umask says; what was opened to
others meanwhile is closed again, and that is said."""

import os
from collections.abc import Iterable
from pathlib import Path

from app import telemetry
from app.errors import FolderExposed

_OTHERS = 0o077


def make(folder: Path) -> None:
    """The folder, and those above it that are not there, of mode 0700."""
    missing = [one for one in (folder, *folder.parents) if not one.exists()]
    for one in reversed(missing):
        one.mkdir(mode=0o700, exist_ok=True)


def close(folders: Iterable[Path], files: Iterable[Path] = ()) -> None:
    """Let nobody but the owner enter these folders and read these files, as far as they are there.

    Raises `FolderExposed` for what is somebody else's, so that its mode cannot be changed.
    """
    for path in (*folders, *files):
        try:
            mode = path.stat().st_mode & 0o777
        except FileNotFoundError:
            continue
        if not mode & _OTHERS:
            continue
        try:
            os.chmod(path, mode & ~_OTHERS)
        except FileNotFoundError:  # such as a database's log, which goes with the last process that closes it
            continue
        except OSError as error:
            raise FolderExposed(
                f"Others can enter or read {path} (mode {mode:04o}), and its mode cannot be changed "
                f"({type(error).__name__}): make it {mode & ~_OTHERS:04o}, and the property of the service's user."
            ) from error
        telemetry.logger().warning("installation.closed_to_others", path=str(path), mode=f"{mode:04o}")
