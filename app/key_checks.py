"""Consistency of keys, stores and database: check values and markers show that they belong to the same installation.

The database contains the installation's id and a check value for each key. The data folder, and the folder or bucket of
rows and weights, contain an object with the id. A process with the wrong keys could find no person and open no content,
so it is stopped before it answers any question about a person.
"""

import contextlib
import datetime
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from app import telemetry
from app.db import Database, migrate, tables
from app.keys import PUBLIC, KeyEncryptionFile, KeyEncryptionKeyLost, Keys, KeyUnreadable
from app.vault.store import FolderAway, ObjectStore
from lethe.contract.problems import InstallationMismatch, Unavailable

_MARK = "installation.id"
_KEK = "kek"
_UNMARKED = "unmarked"
"""Entry stored with the check values until every place has been marked, so that an interrupted set-up can resume."""
_BELIEVED_SECONDS = 1.0
"""Time for which the database's check values are cached. Files are checked each time."""
_REFERENCES_SECONDS = 60.0
"""Interval between checks of the datasets' reference values."""
_ATTEMPTS = 5
"""Maximum number of comparisons, repeated because a key may change between reading keys and reading check values."""
_WHERE = "Are LETHE_DATA_DIR, LETHE_STORE_URL and LETHE_DATABASE_URL right?"
_table: Any = tables.InstallationIdentity.__table__
_datasets: Any = tables.Dataset.__table__


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseIdentity:
    """Installation id and key check values stored in a database."""

    id: str
    check_values: Mapping[str, Any]

    @property
    def is_marked(self) -> bool:
        """True once every storage location has been marked."""
        return _UNMARKED not in self.check_values


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageLocation:
    """Folder or bucket that bears its installation's mark. `name` is used in messages."""

    name: str
    objects: ObjectStore

    def owner(self) -> str | None:
        """Return the id of the installation whose mark the location bears; None if it has no mark."""
        try:
            return self.objects.get(_MARK).decode(errors="replace").strip()
        except (FileNotFoundError, FolderAway):
            return None

    def mark(self, installation_id: str) -> None:
        """Mark the location with an installation's id, unless it already has a mark."""
        with contextlib.suppress(FileExistsError):
            if self.owner() is None:
                self.objects.create(_MARK, installation_id.encode())


def of_database(database: Database) -> DatabaseIdentity | None:
    """Return the identity stored in the database; None if it has no identity."""
    with database.looking() as connection:
        if not sa.inspect(connection).has_table(_table.name):
            return None
        return _read(connection)


def require_unused(database: Database) -> None:
    """Raise `InstallationMismatch` if a database without an identity holds data."""
    with database.looking() as connection:
        if not sa.inspect(connection).has_table(tables.Tenant.__tablename__):
            return
        if connection.scalar(sa.select(sa.func.count()).select_from(tables.Tenant.__table__)) == 0:
            return
    raise InstallationMismatch(
        "The database holds data and does not state which installation it belongs to: restore it from a backup, or "
        "let LETHE_DATABASE_URL name an empty one. Nothing was changed."
    )


def enter(connection: sa.Connection, keys: Keys, key_encryption: KeyEncryptionFile) -> None:
    """Store a new installation id and the keys' check values in the database, unless it already has an identity."""
    if _read(connection) is None:
        installation_id = tables.new_id("ins")
        values: dict[str, Any] = {name: keys.check_value(name, installation_id) for name in (*keys.paths(), PUBLIC)}
        values |= {_KEK: key_encryption.check_values(installation_id), _UNMARKED: True}
        at = datetime.datetime.now(datetime.UTC)
        connection.execute(sa.insert(_table).values(id=installation_id, check_values=values, created_at=at))


def accept(database: Database, key_encryption: Sequence[str]) -> None:
    """Replace the stored check values of the key-encryption key; during a rotation there are two."""
    with database.writing() as session:
        row = session.scalars(sa.select(tables.InstallationIdentity)).one()
        row.check_values = row.check_values | {_KEK: list(dict.fromkeys(key_encryption))}


def confirm_marked(database: Database) -> None:
    """Record that every storage location is marked. From then on, a location without a mark is a mismatch."""
    with database.writing() as session:
        row = session.scalars(sa.select(tables.InstallationIdentity)).one()
        row.check_values = {name: value for name, value in row.check_values.items() if name != _UNMARKED}


def is_anything_stored(database: Database) -> bool:
    """Return True if the database refers to rows or weights, which must then exist in a store."""
    with database.looking() as connection:
        return any(connection.scalar(sa.text(f"SELECT count(*) FROM {table}")) for table in ("datasets", "versions"))  # noqa: S608


def wrong(keys: Keys, key_encryption: KeyEncryptionFile, identity: DatabaseIdentity) -> str | None:
    """Return a message about the key that does not match the database; None if all keys match."""
    return wrong_key(keys, identity) or _wrong_key_encryption(key_encryption, identity)


def wrong_key(keys: Keys, identity: DatabaseIdentity) -> str | None:
    """Like `wrong`, return a message about a key that does not match, but do not check the key-encryption key."""
    for name, path in keys.paths().items():
        try:
            if keys.check_value(name, identity.id) != identity.check_values.get(name):
                return f"{path} is not the key that this database was set up with; put that back."
        except OSError as error:
            return str(error) if isinstance(error, KeyUnreadable) else f"{path} cannot be read."
    return None


def _wrong_key_encryption(key_encryption: KeyEncryptionFile, identity: DatabaseIdentity) -> str | None:
    path, _ = key_encryption.paths()
    try:
        check_values = key_encryption.check_values(identity.id)
    except OSError as error:
        return str(error) if isinstance(error, KeyEncryptionKeyLost) else f"{path} cannot be read."
    if set(check_values) <= set(identity.check_values.get(_KEK, ())):
        return None
    return f"{path} is not the key-encryption key that this database was set up with; put that back."


class Guard:
    """Guard that compares a process's keys, key files and stores with its database, at startup and before sessions.

    `keys` are the keys in the process's memory. A changed or restored file is noticed immediately (by `stat`), without
    a restart. A bucket is checked only at startup. With `partly`, only what the process can access is compared; it may
    lack access to the key-encryption key and the stores.
    """

    def __init__(
        self,
        database: Database,
        *,
        keys: Keys,
        key_encryption: KeyEncryptionFile,
        folders: Mapping[Path, StorageLocation],
        bucket: StorageLocation | None,
        partly: bool = False,
    ) -> None:
        self._database = database
        self._keys = keys
        self._key_encryption = key_encryption
        self._folders = folders
        self._bucket = bucket
        self._partly = partly
        marks = [folder / _MARK for folder in folders]
        self._paths = (*keys.paths().values(), *key_encryption.paths(), *marks)
        self._seen: Sequence[object] | None = None
        self._until = 0.0
        self._references_until = 0.0
        self._said: str | None = None

    def start(self) -> None:
        """Raise `InstallationMismatch` on any mismatch. An unreachable database or bucket does not count as one."""
        try:
            reason = self._wrong()
            if reason is None and self._bucket is not None:
                # Nothing is read from an unreachable bucket.
                with contextlib.suppress(OSError):
                    reason = _wrong_owner(self._bucket.name, self._bucket.owner(), self._known())
        # check() compares again before the first session.
        except (sa.exc.OperationalError, sa.exc.TimeoutError, Unavailable):
            return
        if reason is not None:
            raise InstallationMismatch(reason)

    def check(self) -> None:
        """Log a mismatch and raise `InstallationMismatch`; raise `Unavailable` if the database has no identity yet."""
        states = self._look()
        if states == self._seen and time.monotonic() < self._until:
            return
        until = time.monotonic() + _BELIEVED_SECONDS
        reason = self._wrong()
        if reason is not None:
            self._seen = None
            if reason != self._said:
                telemetry.logger().error("installation.mismatch", reason=reason)
            self._said = reason
            raise InstallationMismatch(
                "The keys or the stores of this process are not those of its database: nobody is answered until they "
                "are put back. Its log says which."
            )
        if self._said is not None:
            telemetry.logger().info("installation.mended")
        self._seen, self._until, self._said = states, until, None

    def _wrong(self) -> str | None:
        """Return the reason for a mismatch, or None. If anything changes during the comparison, it is repeated."""
        reason: str | None = None
        for _ in range(_ATTEMPTS):
            before = self._look()
            identity = self._known()
            reason = self._compared(identity)
            if reason is None or (before == self._look() and identity == self._known()):
                break
        return reason

    def _compared(self, identity: DatabaseIdentity) -> str | None:
        for keys in (self._keys, self._keys.fresh()):
            if wrong := wrong_key(keys, identity):
                return wrong
        for folder, place in self._folders.items():
            is_there = not self._partly or (folder / _MARK).exists()
            if is_there and (wrong := _wrong_place(place, identity)):
                return wrong
        is_there = not self._partly or any(path.exists() for path in self._key_encryption.paths())
        if is_there and (wrong := _wrong_key_encryption(self._key_encryption, identity)):
            return wrong
        return self._wrong_references()

    def _wrong_references(self) -> str | None:
        """Return a message if a dataset's people were stored under a different key, so that requests would not find
        them."""
        if self._keys.is_public or time.monotonic() < self._references_until:
            return None
        stored = sa.select(_datasets.c.id, sa.type_coerce(_datasets.c.references_check, sa.String).label("check"))
        with self._database.looking() as connection:
            datasets = connection.execute(stored.where(_datasets.c.references_check.is_not(None))).all()
        for dataset_id, check in datasets:
            if self._keys.reference(dataset_id.encode()) != check:
                path = self._keys.paths()["subject.key"]
                return (
                    f"The people of dataset {dataset_id} were not stored under {path}; put back what belongs together."
                )
        self._references_until = time.monotonic() + _REFERENCES_SECONDS
        return None

    def _known(self) -> DatabaseIdentity:
        try:
            with self._database.looking() as connection:
                identity, is_usable = _read(connection), migrate.is_usable_there(connection, is_set_up=True)
        except (sa.exc.ProgrammingError, sa.exc.OperationalError) as error:
            with self._database.looking() as connection:
                is_there = sa.inspect(connection).has_table(_table.name)
            # Without the table, report an unreachable database.
            if not is_there:
                raise sa.exc.OperationalError(None, None, error.orig or error) from error
            if isinstance(error, sa.exc.ProgrammingError):
                raise Unavailable(
                    "The database tells this role too little: run `lethe migrate --grant-reader`."
                ) from error
            raise
        if identity is None:
            raise Unavailable("The database has not been set up by this release: run `lethe migrate`.")
        if not is_usable:
            raise Unavailable(
                "The schema of the database is another release's, which this one cannot use: end the processes of the "
                "older release, and run `lethe migrate` of the newer."
            )
        return identity

    def _look(self) -> Sequence[object]:
        return [_state(path) for path in self._paths]


def require(owners: Mapping[str, str | None], identity: DatabaseIdentity, *, is_needed: bool) -> None:
    """Raise `InstallationMismatch` if any of the places in `owners` bears another installation's mark, or if
    `is_needed` is True and a place lacks a mark."""
    for name, owner in owners.items():
        if (owner is not None or is_needed) and (wrong := _wrong_owner(name, owner, identity)):
            raise InstallationMismatch(wrong)


def require_nobodys(owners: Mapping[str, str | None], *, is_anything_kept: bool) -> None:
    """For an empty database, raise `InstallationMismatch` if one of the places in `owners` has a mark or content."""
    marked = next((name for name, owner in owners.items() if owner is not None), None)
    if marked is not None or is_anything_kept:
        raise InstallationMismatch(
            f"The database is empty, and {marked or next(iter(owners))} belongs to an installation. {_WHERE}"
        )


def _wrong_place(place: StorageLocation, identity: DatabaseIdentity) -> str | None:
    try:
        return _wrong_owner(place.name, place.owner(), identity)
    except OSError:
        return f"{place.name} cannot be read."


def _wrong_owner(name: str, owner: str | None, identity: DatabaseIdentity) -> str | None:
    if owner == identity.id:
        return None
    if owner is None:
        return f"{name} lacks what says that it belongs to this database ({_MARK}). {_WHERE}"
    return f"{name} belongs to another installation than the database. {_WHERE}"


def _read(connection: sa.Connection) -> DatabaseIdentity | None:
    row = connection.execute(sa.select(_table.c.id, _table.c.check_values)).first()
    return None if row is None else DatabaseIdentity(id=row.id, check_values=row.check_values)


def _state(path: Path) -> object:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
