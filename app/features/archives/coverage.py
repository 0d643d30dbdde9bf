"""Check that tombstones are at least as new as a backup, by their position, which the archive records.

Tombstones that end before that position were copied before the backup was made: they lack the people who asked to be
forgotten since.
"""

import contextlib
import datetime
from dataclasses import dataclass

from sqlalchemy.orm import Session

from app.errors import BackupRefused, TombstonesStale
from app.installations import Installation
from app.journal import repository, tombstones
from app.journal.journal import GENESIS, Extent, Journal, JournalLine
from lethe.contract.problems import DatabasePutBack


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalPosition:
    """Position of the tombstones: number of `lines` of the `file`, `hash` and time `ended_at` of the last line, and the
    last event in the archive's database that tombstones record, by its `number` and the request `of` which it is.

    The event identifies the position in a file of another host, or in a file that was rewritten after a loss."""

    file: str | None
    lines: int
    hash: str
    ended_at: str | None
    number: int
    of: str | None


def current_position(session: Session, installation: Installation) -> JournalPosition:
    """Record all that `session` sees in the tombstones, and return their position.

    Raises `TombstonesDamaged`, and `BackupRefused` if the file cannot be written.
    """
    number, of = repository.last_telling_event(session) or (0, None)
    try:
        # A database that was put back can still be backed up and then restored properly.
        with contextlib.suppress(DatabasePutBack):
            tombstones.record(installation)
    except OSError as error:
        place = installation.settings.resolved_tombstones()
        raise BackupRefused(
            f"The tombstones at {place} cannot be written ({type(error).__name__}); "
            "without them nobody could restore the backup."
        ) from error
    ends = tombstones.journal(installation).ends()
    if ends is None:
        return JournalPosition(file=None, lines=0, hash=GENESIS, ended_at=None, number=number, of=of)
    first, last, extent = ends
    ended_at = last.at.isoformat()
    return JournalPosition(
        file=first.file, lines=extent.lines, hash=extent.hash, ended_at=ended_at, number=number, of=of
    )


def require(journal: Journal, position: JournalPosition, *, made_at: datetime.datetime) -> None:
    """Raise `TombstonesStale` unless the file reaches the position at which the backup was made."""
    first: JournalLine | None = None
    last, extent = None, Extent(lines=0, bytes=0, hash=GENESIS)
    is_covered = position.lines == 0
    for last, extent in journal.entries():
        first = first or last
        is_covered = is_covered or _covers(first, last, extent, position, made_at=made_at)
    if is_covered:
        return
    if first is None or last is None:
        raise TombstonesStale(f"{journal.path} is empty; {_should_have(position)}")
    if first.file != position.file:
        lacks = f"It lacks all since {last.at:%F %T} UTC, among them event {position.number} of the backup."
    elif extent.lines < position.lines:
        lacks = f"It lacks {position.lines - extent.lines} of them, all since {last.at:%F %T} UTC."
    else:
        lacks = "Its entries are others than those: it went another way since."
    raise TombstonesStale(f"{journal.path} has {extent.lines} entries; {_should_have(position)} {lacks}")


def _should_have(position: JournalPosition) -> str:
    return (
        f"when the backup was made there were {position.lines}, up to {position.ended_at}. Whoever asked to be "
        "forgotten since would be back. Nothing was restored; find the newest copy of the tombstones."
    )


def _covers(
    first: JournalLine, line: JournalLine, extent: Extent, position: JournalPosition, *, made_at: datetime.datetime
) -> bool:
    """Return True if `line` shows that a file that begins with `first` reaches the position."""
    if first.file is not None and first.file == position.file:
        was_dropped = line.kind == "dropped" and line.count is not None and line.count > position.lines
        return was_dropped or (extent.lines, extent.hash) == (position.lines, position.hash)
    begun_at = first.at if first.kind == "begun" else first.begun
    # A file begun after the backup was written from a database that knew all that the backup knows.
    if begun_at is not None and begun_at >= made_at:
        return True
    was_dropped = line.kind == "dropped" and line.count is not None and line.number > position.number
    has_event = position.number == 0 or (line.number, line.of) == (position.number, position.of)
    return was_dropped or has_event or (extent.lines, extent.hash) == (position.lines, position.hash)
