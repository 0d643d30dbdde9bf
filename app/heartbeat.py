"""Signs of life of workers: a file in the data folder for each host, touched every few seconds, and empty.

A worker that has just started says nothing yet: one that dies again and again is as silent as one that is not there.
"""

import contextlib
import datetime
import os
import socket
from pathlib import Path

from app.periodic import Periodic

SECONDS = 5.0
"""From one sign to the next, and from the start to the first."""
SILENT_AFTER = datetime.timedelta(seconds=60)
"""A worker that gave no sign for so long is taken for dead."""

_FORGOTTEN_AFTER = datetime.timedelta(days=7)


class Heartbeat(Periodic):
    """Signs of life of this host's workers, for as long as the block lasts or the process lives."""

    def __init__(self, data_dir: Path, *, seconds: float = SECONDS) -> None:
        self._file = _folder(data_dir) / socket.gethostname()
        super().__init__("heartbeat", self._beat, seconds=seconds)

    def _beat(self) -> None:
        with contextlib.suppress(OSError):  # then this worker is silent, which is what is looked for
            self._file.parent.mkdir(mode=0o700, exist_ok=True)
            self._file.touch(mode=0o600)
            os.utime(self._file)
            _sweep(self._file.parent)


def last_seen(data_dir: Path, *, host: str | None = None) -> datetime.datetime | None:
    """The last sign of life of a worker (of this host, if one is named), by the clock of the file system."""
    seen = hosts(data_dir)
    return seen.get(host) if host is not None else max(seen.values(), default=None)


def hosts(data_dir: Path) -> dict[str, datetime.datetime]:
    """The last sign of life of a worker of each host, by the clock of the file system."""
    with contextlib.suppress(FileNotFoundError):
        return {file.name: _touched(file) for file in sorted(_folder(data_dir).iterdir())}
    return {}


def this_host_is_alive(data_dir: Path) -> bool:
    """Return True if a worker of this host gave a sign of life lately."""
    seen = last_seen(data_dir, host=socket.gethostname())
    return seen is not None and datetime.datetime.now(datetime.UTC) - seen < SILENT_AFTER


def _folder(data_dir: Path) -> Path:
    return data_dir / "workers"


def _touched(file: Path) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(file.stat().st_mtime, datetime.UTC)


def _sweep(folder: Path) -> None:
    """Hosts that come and go, as containers do, leave nothing behind for long."""
    for file in folder.iterdir():
        if datetime.datetime.now(datetime.UTC) - _touched(file) > _FORGOTTEN_AFTER:
            file.unlink(missing_ok=True)
