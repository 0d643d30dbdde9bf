"""Cache of authenticated callers, and batched updates of the time each API key was last used.

Callers are cached for one second and last-used times are written once per minute, so that few calls query the database.
"""

import datetime
import time
from collections.abc import Callable

from sqlalchemy.exc import OperationalError, ProgrammingError

from app import periodic, telemetry
from app.access import repository, service as access
from app.db import Database, now, tables
from lethe.contract.problems import Unauthenticated, Unavailable

_BELIEVED_SECONDS = 1.0
"""Lifetime of a cached caller. A key revoked by another process is refused after this time at the latest."""
_MAX_CACHED_KEYS = 1000
_NOTED_EVERY = datetime.timedelta(minutes=1)
_WRITTEN_EVERY_SECONDS = 20.0


class Callers:
    """Cache of callers, keyed by API key. A process reads a key from the database at most once every
    `_BELIEVED_SECONDS`, and calls `used` with each key that it reads."""

    def __init__(self, database: Database, *, used: Callable[[tables.ApiKey], None] | None = None) -> None:
        self._database = database
        self._used = used
        self._known: dict[str, tuple[float, int, access.Caller]] = {}

    def recall(self, key: str | None, *, however_old: bool = False) -> access.Caller | None:
        """Return the cached caller for a key, or None if the key must be read from the database. With `however_old`,
        return the cached caller regardless of its age, unless this process has changed keys or policies since."""
        entry = self._known.get(access.hash_of(key)) if key else None
        if entry is None:
            return None
        until, changes, caller = entry
        return caller if (however_old or time.monotonic() < until) and changes == access.changes() else None

    def has_known(self, key: str) -> bool:
        """Return True if the key was valid when last read. Such a key may be looked up again even from a rate-limited
        address."""
        return access.hash_of(key) in self._known

    def authenticate(self, key: str | None) -> access.Caller:
        """Read a key's caller from the database. Raises `Unauthenticated`."""
        if not key:
            raise access.unauthenticated()
        # Both are taken before the database is read, so that a change committed meanwhile makes the entry stale.
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
        if len(self._known) >= _MAX_CACHED_KEYS:
            self._known.clear()
        self._known[access.hash_of(key)] = until, changes, caller
        return caller


class LastUses:
    """Times at which API keys were last used, to the minute. They are collected in memory, and a thread writes them in
    batches."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._noted: set[str] = set()
        self._writing = periodic.Periodic("last-uses", self.write, seconds=_WRITTEN_EVERY_SECONDS).start()

    def note(self, key: tables.ApiKey) -> None:
        """Record that `key` has just been used; the next batch writes this to the database."""
        at = datetime.datetime.now(datetime.UTC)
        if key.last_used_at is None or abs(at - key.last_used_at) >= _NOTED_EVERY:
            self._noted.add(key.id)

    def write(self) -> None:
        """Write the collected times to the database. Keep them if the database is unreachable or its schema differs."""
        key_ids, self._noted = self._noted, set()
        if not key_ids:
            return
        try:
            with self._database.writing(exclusive=False) as session:
                at = now(session)
                repository.used(session, list(key_ids), at=at, unless_since=at - _NOTED_EVERY)
        except (OperationalError, ProgrammingError, Unavailable) as error:
            telemetry.logger().warning("access.last_uses_not_written", error=type(error).__name__)
            self._noted |= key_ids

    def close(self) -> None:
        """Stop the thread and write the remaining times."""
        self._writing.stop()
        self.write()
