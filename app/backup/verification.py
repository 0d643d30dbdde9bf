"""Verification of the tombstones: at every start, on a schedule, before a backup and before a run, because a restore
that finds them damaged finds it too late.

What was found lies beside them, for every process that uses them and for monitoring.
"""

import dataclasses
import datetime
import json
import os
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from app import telemetry
from app.backup import tombstones
from app.backup.journal import NOTHING, Extent, Journal
from app.config import Settings
from app.errors import TombstonesDamaged
from app.installations import Installation
from app.vault.files import locked

_WHOLE_EVERY = datetime.timedelta(hours=1)
"""All of the file is verified so often; in between, what was added."""
_BELIEVED_FOR = 2 * _WHOLE_EVERY
"""A run that begins later than that after all of it was verified verifies it first."""


class Found(StrEnum):
    """`unverified`: nobody has looked for two hours, or there is no file yet."""

    WHOLE = "whole"
    DAMAGED = "damaged"
    UNVERIFIED = "unverified"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The verdict of the last verification of the file: up to where it holds, or the `fault`. `whole_at`: when all of
    it was verified last. `inode`: which file that was."""

    at: datetime.datetime
    whole_at: datetime.datetime
    inode: int
    extent: Extent
    fault: str | None

    @property
    def found(self) -> Found:
        if self.fault is not None:
            return Found.DAMAGED
        return Found.WHOLE if _now() - self.whole_at < _BELIEVED_FOR else Found.UNVERIFIED


def verify(installation: Installation, *, whole: bool = True) -> Verdict:
    """Verify the tombstones, or where that is known to hold what was added since, and say so; damage is logged."""
    journal = tombstones.journal(installation)
    last = last_verdict(installation.settings)
    inode = _inode(journal.path)
    since = last if not whole and last is not None and _holds_still(last, journal.path) else None
    verdict = _verified(journal, inode, since=since)
    if verdict.fault is not None:
        telemetry.logger().error("backup.tombstones_damaged", fault=verdict.fault)
    _keep(verdict_file(installation.settings), verdict)
    return verdict


def verify_at_start(installation: Installation) -> None:
    """Verify all of the tombstones; a start goes on in spite of what is found, and does not erase."""
    try:
        verify(installation)
    except OSError as error:
        telemetry.logger().error("backup.tombstones_not_read", error=type(error).__name__)


def verify_on_schedule(installation: Installation) -> None:
    """Verify what was added, and every hour all of it."""
    verify(installation, whole=False)


def require_whole(installation: Installation, *, now: bool = False) -> None:
    """Raises `TombstonesDamaged` unless all of the tombstones was verified lately, or is `now`."""
    last = last_verdict(installation.settings)
    path = tombstones.journal(installation).path
    if not now and last is not None and last.found is Found.WHOLE and _is_the_same(last, path):
        return
    found = verify(installation)
    if found.fault is not None:
        raise TombstonesDamaged(found.fault)


def last_verdict(settings: Settings) -> Verdict | None:
    """The last verdict; None where nobody could say so."""
    try:
        said = json.loads(verdict_file(settings).read_text())
        return Verdict(
            at=datetime.datetime.fromisoformat(said["at"]),
            whole_at=datetime.datetime.fromisoformat(said["whole_at"]),
            inode=said["inode"],
            extent=Extent(**said["extent"]),
            fault=said["fault"],
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def verdict_file(settings: Settings) -> Path:
    own = settings.resolved_tombstones()
    return own.with_name(f".{own.name}.verdict")


def files(settings: Settings) -> set[Path]:
    """The files that may lie beside the tombstones because they were verified."""
    file = verdict_file(settings)
    return {file, _changing(file)}


def _changing(file: Path) -> Path:
    return file.with_name(f"{file.name}.new")


def _verified(journal: Journal, inode: int, *, since: Verdict | None) -> Verdict:
    at = _now()
    begin = since.extent if since else NOTHING
    whole_at = since.whole_at if since else at
    try:
        try:
            extent = journal.extent(since=begin)
        except TombstonesDamaged:
            if not journal.path.parent.is_dir():
                raise
            with locked(journal.path.parent):  # a process that drops lines writes another file meanwhile
                extent, whole_at, inode = journal.extent(), at, _inode(journal.path)
    except TombstonesDamaged as error:
        return Verdict(at=at, whole_at=whole_at, inode=inode, extent=begin, fault=error.detail)
    return Verdict(at=at, whole_at=whole_at, inode=inode, extent=extent, fault=None)


def _holds_still(last: Verdict, path: Path) -> bool:
    """Return True if verification may go on from the last verdict."""
    return _is_the_same(last, path) and last.fault is None and _now() - last.whole_at < _WHOLE_EVERY


def _is_the_same(last: Verdict, path: Path) -> bool:
    """Return True if it is the file that was verified last, and no shorter."""
    try:
        now = os.stat(path)
    except FileNotFoundError:
        return False
    return now.st_ino == last.inode and now.st_size >= last.extent.bytes


def _inode(path: Path) -> int:
    try:
        return os.stat(path).st_ino
    except FileNotFoundError:
        return 0


def _keep(file: Path, verdict: Verdict) -> None:
    """Whole, or not at all. It may be lost: then all is verified again. What a kill leaves the next one overwrites."""
    text = json.dumps(dataclasses.asdict(verdict), default=datetime.datetime.isoformat)
    changing = _changing(file)
    try:
        with locked(file.parent):
            with open(os.open(changing, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as written:
                written.write(text)
            changing.rename(file)
    except OSError as error:
        telemetry.logger().warning("backup.verdict_not_kept", error=type(error).__name__)


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)
