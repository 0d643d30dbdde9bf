"""Worker heartbeats: one empty file per host in the data folder, touched every few seconds.

A worker sends its first heartbeat only after `SECONDS`, so a worker that keeps dying at startup counts as silent.
"""

import contextlib
import datetime
import os
import socket
from pathlib import Path

from app.periodic import Periodic

SECONDS = 5.0
"""Interval between heartbeats, and between a worker's start and its first heartbeat."""
SILENT_AFTER = datetime.timedelta(seconds=60)
"""Time without a heartbeat after which a worker is considered dead."""

_FORGOTTEN_AFTER = datetime.timedelta(days=7)


class Heartbeat(Periodic):
    """Heartbeat of this host's workers, for the duration of the block or the process."""

    def __init__(self, data_dir: Path, *, seconds: float = SECONDS) -> None:
        self._file = _folder(data_dir) / socket.gethostname()
        super().__init__("heartbeat", self._beat, seconds=seconds)

    def _beat(self) -> None:
        # A missing heartbeat reports the failure.
        with contextlib.suppress(OSError):
            self._file.parent.mkdir(mode=0o700, exist_ok=True)
            self._file.touch(mode=0o600)
            os.utime(self._file)
            _sweep(self._file.parent)


def last_seen(data_dir: Path, *, host: str | None = None) -> datetime.datetime | None:
    """Return the time, by the file system's clock, of the last heartbeat from any worker or, if given, from `host`;
    None if there has been none."""
    heartbeats = hosts(data_dir)
    return heartbeats.get(host) if host is not None else max(heartbeats.values(), default=None)


def hosts(data_dir: Path) -> dict[str, datetime.datetime]:
    """Return the time of each host's last heartbeat by the file system's clock, keyed by host name."""
    with contextlib.suppress(FileNotFoundError):
        return {file.name: _touched(file) for file in sorted(_folder(data_dir).iterdir())}
    return {}


def this_host_is_alive(data_dir: Path) -> bool:
    """Return True if a worker of this host sent a heartbeat within `SILENT_AFTER`."""
    seen_at = last_seen(data_dir, host=socket.gethostname())
    return seen_at is not None and datetime.datetime.now(datetime.UTC) - seen_at < SILENT_AFTER


def _folder(data_dir: Path) -> Path:
    return data_dir / "workers"


def _touched(file: Path) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(file.stat().st_mtime, datetime.UTC)


def _sweep(folder: Path) -> None:
    """Delete the heartbeats of former hosts, such as containers."""
    for file in folder.iterdir():
        if datetime.datetime.now(datetime.UTC) - _touched(file) > _FORGOTTEN_AFTER:
            file.unlink(missing_ok=True)
