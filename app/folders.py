"""Folders and files that only their owner can access (0700 and 0600, whatever the umask). Paths opened to others
meanwhile are closed again, with a warning."""

import os
from collections.abc import Iterable
from pathlib import Path

from app import telemetry
from app.errors import FolderExposed

_OTHERS = 0o077


def make(folder: Path) -> None:
    """Create a folder and its missing parents with mode 0700."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    for path in reversed(missing):
        path.mkdir(mode=0o700, exist_ok=True)


def close(folders: Iterable[Path], files: Iterable[Path] = ()) -> None:
    """Remove the access of group and others to existing folders and files. Raises `FolderExposed` if the mode of a path
    cannot be changed because another user owns it."""
    for path in (*folders, *files):
        try:
            mode = path.stat().st_mode & 0o777
        except FileNotFoundError:
            continue
        if not mode & _OTHERS:
            continue
        try:
            os.chmod(path, mode & ~_OTHERS)
        # SQLite removes its log when the last process closes the database.
        except FileNotFoundError:
            continue
        except OSError as error:
            raise FolderExposed(
                f"Others can enter or read {path} (mode {mode:04o}), and its mode cannot be changed "
                f"({type(error).__name__}): make it {mode & ~_OTHERS:04o}, and the property of the service's user."
            ) from error
        telemetry.logger().warning("installation.closed_to_others", path=str(path), mode=f"{mode:04o}")
