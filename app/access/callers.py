"""The callers of a process: known for a second, and the use of their keys noted every minute, so that few calls ask the
database."""

import datetime
import time
from collections.abc import Callable

from sqlalchemy.exc import OperationalError, ProgrammingError

from app import telemetry
from app.access import repository
from app.access import service as access
from app.access.service import Caller
from app.db import Database, now
from app.db.tables import ApiKey
from app.periodic import Periodic
from lethe.contract.problems import Unauthenticated, Unavailable

_BELIEVED_SECONDS = 1.0
"""A key that another process revokes is refused that much later at the latest."""
_MOST_BELIEVED = 1000
_NOTED_EVERY = datetime.timedelta(minutes=1)
_WRITTEN_EVERY_SECONDS = 20.0


class Callers:
    """The callers behind keys; the database is asked about each once in `_BELIEVED_SECONDS`, not at every call.

    `used` is told of each key that the database is asked about.
    """

    def __init__(self, database: Database, *, used: Callable[[ApiKey], None] | None = None) -> None:
        self._database = database
        self._used = used
        self._known: dict[str, tuple[float, int, Caller]] = {}

    def recall(self, key: str | None) -> Caller | None:
        """At once; None where the database must be asked."""
        if not key or (found := self._known.get(access.hash_of(key))) is None:
            return None
        until, changes, caller = found
        return caller if time.monotonic() < until and changes == access.changes() else None

    def last_known(self, key: str | None) -> Caller | None:
        """The caller when the database was asked last, unless this process has changed what keys open since."""
        if not key or (found := self._known.get(access.hash_of(key))) is None:
            return None
        _, changes, caller = found
        return caller if changes == access.changes() else None

    def has_known(self, key: str) -> bool:
        """Return True if the key was in force when it last came: then it is asked about, no matter who else calls from
        its address."""
        return access.hash_of(key) in self._known

    def authenticate(self, key: str | None) -> Caller:
        """Ask the database. Raises `Unauthenticated`."""
        if not key:
            raise access.unauthenticated()
        until, changes = time.monotonic() + _BELIEVED_SECONDS, access.changes()
        with self._database.reading() as session:
            try:
                row = access.find(session, key)
            except Unauthenticated:
                self._known.pop(access.hash_of(key), None)
                raise
            caller = access.caller_with(session, row)
        if self._used is not None:
            self._used(row)
        if len(self._known) >= _MOST_BELIEVED:
            self._known.clear()
        self._known[access.hash_of(key)] = until, changes, caller
        return caller


class LastUses:
    """The last uses of keys, to the minute: noted while they are, written by a thread of its own, many at once."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._noted: set[str] = set()
        self._writing = Periodic("last-uses", self.write, seconds=_WRITTEN_EVERY_SECONDS).start()

    def note(self, key: ApiKey) -> None:
        """`key` is being used."""
        at = datetime.datetime.now(datetime.UTC)
        if key.last_used_at is None or abs(at - key.last_used_at) >= _NOTED_EVERY:
            self._noted.add(key.id)

    def write(self) -> None:
        """Write what was noted to the database; while that cannot be reached, or has another schema, it is kept."""
        noted, self._noted = self._noted, set()
        if not noted:
            return
        try:
            with self._database.writing(exclusive=False) as session:
                at = now(session)
                repository.used(session, list(noted), at=at, unless_since=at - _NOTED_EVERY)
        except (OperationalError, ProgrammingError, Unavailable) as error:
            telemetry.logger().warning("access.last_uses_not_written", error=type(error).__name__)
            self._noted |= noted

    def close(self) -> None:
        """Write the rest, and end."""
        self._writing.stop()
        self.write()
