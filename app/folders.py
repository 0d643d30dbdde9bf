"""Folders and files that only their owner can access (0700 and 0600, whatever the umask), or also a group that was
given access, for example by Kubernetes' fsGroup. Paths opened to others are closed again, with a warning."""

import os
import stat
from collections.abc import Iterable
from pathlib import Path

from app import errors, telemetry

_GROUP_AND_OTHERS = 0o077
_OTHERS = 0o007


def make(folder: Path) -> None:
    """Create a folder and its missing parents with mode 0700."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    for path in reversed(missing):
        path.mkdir(mode=0o700, exist_ok=True)


def close(folders: Iterable[Path], files: Iterable[Path] = ()) -> None:
    """Remove access to existing folders and files for others, and for groups that were not granted access. Raises
    `FolderExposed` if the mode of a path cannot be changed because another user owns it."""
    for path in (*folders, *files):
        try:
            mode = stat.S_IMODE(path.stat().st_mode)
            exposed = mode & (_OTHERS if _is_of_group(path) else _GROUP_AND_OTHERS)
        except FileNotFoundError:
            continue
        if not exposed:
            continue
        try:
            os.chmod(path, mode & ~exposed)
        # SQLite removes its log when the last process closes the database.
        except FileNotFoundError:
            continue
        except OSError as error:
            raise errors.FolderExposed(
                f"Others can enter or read {path} (mode {mode:04o}), and its mode cannot be changed "
                f"({type(error).__name__}): make it {mode & ~exposed:04o}, and the property of the service's user."
            ) from error
        telemetry.logger().warning("installation.closed_to_others", path=str(path), mode=f"{mode:04o}")


def _is_of_group(path: Path) -> bool:
    """Return True if this process has access to a path through a group: the path belongs to another user, or its folder
    passes its group on (setgid)."""
    status = path.stat()
    folder = status if stat.S_ISDIR(status.st_mode) else path.parent.stat()
    return status.st_gid in {os.getegid(), *os.getgroups()} and (
        status.st_uid != os.geteuid() or bool(folder.st_mode & stat.S_ISGID)
    )
