"""The check that tombstones are at least as new as a backup: an archive says where they stood when it was made.

Tombstones that end before that were copied before the backup: people who asked to be forgotten after it cannot be in
them.
"""

import contextlib
import datetime
from dataclasses import asdict, dataclass
from typing import Any, Self

from sqlalchemy.orm import Session

from app.backup import repository, tombstones
from app.backup.journal import GENESIS, Extent, Journal, Line
from app.errors import BackupRefused, DatabasePutBack, TombstonesStale
from app.installations import Installation


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalPosition:
    """The position of the tombstones: so many `lines` of the `file`, the last with this `hash`, of the time `ended_at`;
    and the last event of the archive's own database that tombstones tell of, `number`, which is the request `of`'s.
    Hosts may have files of their own, and one that was lost is written anew: those are told by the event."""

    file: str | None
    lines: int
    hash: str
    ended_at: str | None
    number: int
    of: str | None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> Self:
        return cls(**document)


def standing(session: Session, installation: Installation) -> JournalPosition:
    """The position of the tombstones, with all that `session` sees. Raises `TombstonesDamaged`, `BackupRefused`."""
    number, of = repository.last_telling_event(session) or (0, None)
    try:
        with contextlib.suppress(DatabasePutBack):  # then a backup of the database as it is, is the way out
            tombstones.record(installation)
    except OSError as error:
        place = installation.settings.resolved_tombstones()
        raise BackupRefused(
            f"The tombstones at {place} cannot be written ({type(error).__name__}); "
            "without them nobody could restore the backup."
        ) from error
    found = tombstones.journal(installation).ends()
    if found is None:
        return JournalPosition(file=None, lines=0, hash=GENESIS, ended_at=None, number=number, of=of)
    first, last, extent = found
    ended_at = last.at.isoformat()
    return JournalPosition(
        file=first.file, lines=extent.lines, hash=extent.hash, ended_at=ended_at, number=number, of=of
    )


def require(journal: Journal, stood: JournalPosition, *, made_at: datetime.datetime) -> None:
    """Raises `TombstonesStale` unless the file reaches to where tombstones stood when the backup was made."""
    first: Line | None = None
    last, extent = None, Extent(lines=0, bytes=0, hash=GENESIS)
    known = stood.lines == 0
    for last, extent in journal.entries():
        first = first or last
        known = known or _tells(first, last, extent, stood, made_at=made_at)
    if known:
        return
    if first is None or last is None:
        raise TombstonesStale(f"{journal.path} is empty; {_should_have(stood)}")
    if first.file != stood.file:
        lacks = f"It lacks all since {last.at:%F %T} UTC, among them event {stood.number} of the backup."
    elif extent.lines < stood.lines:
        lacks = f"It lacks {stood.lines - extent.lines} of them, all since {last.at:%F %T} UTC."
    else:
        lacks = "Its entries are others than those: it went another way since."
    raise TombstonesStale(f"{journal.path} has {extent.lines} entries; {_should_have(stood)} {lacks}")


def _should_have(stood: JournalPosition) -> str:
    return (
        f"when the backup was made there were {stood.lines}, up to {stood.ended_at}. Whoever asked to be forgotten "
        "since would be back. Nothing was restored; find the newest copy of the tombstones."
    )


def _tells(first: Line, line: Line, extent: Extent, stood: JournalPosition, *, made_at: datetime.datetime) -> bool:
    """Return True if a file that begins with `first` reaches to where the tombstones stood, as this line of it
    shows."""
    if first.file is not None and first.file == stood.file:
        was_dropped = line.kind == "dropped" and line.count is not None and line.count > stood.lines
        return was_dropped or (extent.lines, extent.hash) == (stood.lines, stood.hash)
    begun_at = first.at if first.kind == "begun" else first.begun
    if begun_at is not None and begun_at >= made_at:
        return True  # from the database, by when it knew all that it knew when the backup was made
    was_dropped = line.kind == "dropped" and line.count is not None and line.number > stood.number
    is_there = stood.number == 0 or (line.number, line.of) == (stood.number, stood.of)
    return was_dropped or is_there or (extent.lines, extent.hash) == (stood.lines, stood.hash)
