"""Verification of the tombstone journal at every startup, on a schedule, before backups and before runs: damage that is
first noticed during a restore is noticed too late.

The verdict is stored next to the journal for monitoring and for all processes that use the journal.
"""

import dataclasses
import datetime
import json
import os
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from app import config, errors, installations, telemetry
from app.journal import tombstones
from app.journal.journal import NOTHING, Extent, Journal
from app.vault.store import locked

_WHOLE_EVERY = datetime.timedelta(hours=1)
"""Interval between verifications of the whole file; between them, only new lines are verified."""
_BELIEVED_FOR = 2 * _WHOLE_EVERY
"""Maximum age of the last full verification when a run starts; if it is older, the file is verified first."""


class BackupState(StrEnum):
    """State of the journal; `unverified` if it has not been verified within the last two hours."""

    WHOLE = "whole"
    DAMAGED = "damaged"
    UNVERIFIED = "unverified"


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupVerdict:
    """Verdict of the last verification: the verified `extent` of the file, or the `fault` found. `whole_at` is when the
    whole file was last verified, and `inode` identifies the file."""

    at: datetime.datetime
    whole_at: datetime.datetime
    inode: int
    extent: Extent
    fault: str | None

    @property
    def found(self) -> BackupState:
        if self.fault is not None:
            return BackupState.DAMAGED
        return BackupState.WHOLE if _now() - self.whole_at < _BELIEVED_FOR else BackupState.UNVERIFIED


def verify(installation: installations.Installation, *, full: bool = True) -> BackupVerdict:
    """Verify the journal, store the verdict and return it; damage is logged. With `full=False`, verify only the lines
    added since the last verification if its verdict still holds, which it does for an hour."""
    journal = tombstones.journal(installation)
    last = last_verdict(installation.settings)
    # The inode is read first, so that a file replaced meanwhile counts as not verified.
    inode = _inode(journal.path)
    is_sound = last is not None and _is_the_same(last, journal.path) and last.fault is None
    since = last if not full and last and is_sound and _now() - last.whole_at < _WHOLE_EVERY else None
    verdict = _verified(journal, inode, since=since)
    if verdict.fault is not None:
        telemetry.logger().error("backup.tombstones_damaged", fault=verdict.fault)
    _keep(verdict_file(installation.settings), verdict)
    return verdict


def verify_at_start(installation: installations.Installation) -> None:
    """Verify the whole journal at startup. Damage does not prevent startup, but it prevents erasures."""
    try:
        verify(installation)
    except OSError as error:
        telemetry.logger().error("backup.tombstones_not_read", error=type(error).__name__)


def require_whole(installation: installations.Installation, *, now: bool = False) -> None:
    """Verify the whole journal, unless it was verified recently and `now` is False. Raises `TombstonesDamaged`."""
    last = last_verdict(installation.settings)
    path = tombstones.journal(installation).path
    if not now and last is not None and last.found is BackupState.WHOLE and _is_the_same(last, path):
        return
    verdict = verify(installation)
    if verdict.fault is not None:
        raise errors.TombstonesDamaged(verdict.fault)


def last_verdict(settings: config.Settings) -> BackupVerdict | None:
    """Return the last verdict; None if it is missing or unreadable."""
    try:
        document = json.loads(verdict_file(settings).read_text())
        moments = {name: datetime.datetime.fromisoformat(document[name]) for name in ("at", "whole_at")}
        return BackupVerdict(**document | moments | {"extent": Extent(**document["extent"])})
    except (OSError, ValueError, KeyError, TypeError):
        return None


def verdict_file(settings: config.Settings) -> Path:
    journal = settings.resolved_tombstones()
    return journal.with_name(f".{journal.name}.verdict")


def files(settings: config.Settings) -> set[Path]:
    """Return the paths of the files that verification may leave next to the journal."""
    file = verdict_file(settings)
    return {file, _temporary(file)}


def _temporary(file: Path) -> Path:
    return file.with_name(f"{file.name}.new")


def _verified(journal: Journal, inode: int, *, since: BackupVerdict | None) -> BackupVerdict:
    at = _now()
    begin = since.extent if since else NOTHING
    whole_at = since.whole_at if since else at
    fault: str | None = None
    try:
        try:
            extent = journal.extent(since=begin)
        except errors.TombstonesDamaged:
            if not journal.path.parent.is_dir():
                raise
            # Another process may have replaced the file while dropping lines, so verify it again under the lock.
            with locked(journal.path.parent):
                extent, whole_at, inode = journal.extent(), at, _inode(journal.path)
    except errors.TombstonesDamaged as error:
        fault, extent = error.detail, begin
    return BackupVerdict(at=at, whole_at=whole_at, inode=inode, extent=extent, fault=fault)


def _is_the_same(last: BackupVerdict, path: Path) -> bool:
    """Return True if `path` is the file that was last verified and has not shrunk since."""
    try:
        stat = os.stat(path)
    except FileNotFoundError:
        return False
    return stat.st_ino == last.inode and stat.st_size >= last.extent.bytes


def _inode(path: Path) -> int:
    try:
        return os.stat(path).st_ino
    except FileNotFoundError:
        return 0


def _keep(file: Path, verdict: BackupVerdict) -> None:
    """Store a verdict atomically. A lost verdict merely causes the whole journal to be verified again. The next call
    overwrites any temporary file left by a killed process."""
    text = json.dumps(dataclasses.asdict(verdict), default=datetime.datetime.isoformat)
    temporary = _temporary(file)
    try:
        with locked(file.parent):
            with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as stream:
                stream.write(text)
            temporary.rename(file)
    except OSError as error:
        telemetry.logger().warning("backup.verdict_not_kept", error=type(error).__name__)


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)
