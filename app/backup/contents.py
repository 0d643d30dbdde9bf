"""The pieces of an archive, in their order, and its statement about itself."""

import datetime
import json
from collections.abc import Iterator
from dataclasses import dataclass

from app.backup.archive import Piece, Reader
from app.backup.coverage import JournalPosition
from app.backup.service import FORMAT
from app.db import migrate
from app.errors import BackupDamaged, BackupRefused


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """The archive's statement about itself."""

    id: str
    created_at: datetime.datetime
    version: str
    schema: list[str]
    tombstones: JournalPosition


class Pieces:
    """The pieces of an archive, which come in a known order."""

    def __init__(self, reader: Reader) -> None:
        self._pieces = iter(reader)
        self._next = next(self._pieces, None)

    def of(self, kind: str) -> Iterator[Piece]:
        """Those of one kind, which come next."""
        while self._next is not None and self._next.thing.partition("/")[0] == kind:
            yield self._next
            self._next = next(self._pieces, None)

    def one(self, kind: str) -> Piece:
        found = list(self.of(kind))
        if len(found) != 1:
            raise BackupDamaged("The archive does not hold what a backup holds.")
        return found[0]


def about_of(piece: Piece) -> About:
    found = json.loads(piece.content)
    if (found["format"], found["schema"]) != (FORMAT, migrate.heads()):
        raise BackupRefused(f"The backup was made by Lethe {found['version']}; restore it with that, then upgrade.")
    created_at = datetime.datetime.fromisoformat(found["created_at"])
    return About(
        id=found["id"],
        created_at=created_at,
        version=found["version"],
        schema=found["schema"],
        tombstones=JournalPosition.from_json(found["tombstones"]),
    )


def last_name(piece: Piece) -> str:
    return piece.thing.rpartition("/")[2]
